//! The four-letter words, which a terminal or a monitor can send instead of a handshake.
//!
//! The answers have ZooKeeper's formats, so that its tools can read them. Some words are costly, or list other clients,
//! so only the words that the builder allows are answered, as in ZooKeeper. An answer shows the state after the last
//! requests that were handled, including changes that are not on the disk yet: it is for people, not for decisions of a
//! client.
//!
//! The list of all words is `settings::four_letter::KNOWN`; a new word is added there and in `answer`.

mod clients;
mod monitor;
mod server;

use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep_until};

use crate::settings::four_letter::KNOWN;
use crate::shared::Shared;
use crate::sockets::stream::Peer;
use crate::tree_loop::TreeLoop;

pub(crate) use self::monitor::{Value, metrics};

/// The default trace mask of ZooKeeper's `gtmk`: clients, sessions, packets between servers, warnings.
pub(crate) const DEFAULT_TRACE_MASK: i64 = 306;

/// The pause after a listing, as a multiple of the listing's duration.
const PAUSE: u32 = 9;

/// The answer to a word of this peer; `None` if the word is unknown. `mask` is the argument of `stmk`.
pub(crate) async fn answer(
    word: [u8; 4],
    mask: i64,
    peer: Peer,
    shared: &Shared,
) -> Option<String> {
    let word = std::str::from_utf8(&word).ok().filter(|word| KNOWN.contains(word))?;
    if !shared.plan.four_letter_words.allows(word) {
        return Some(format!("{word} is not executed because it is not in the whitelist.\n"));
    }
    tracing::debug!(word, "answering a four-letter word");
    Some(match word {
        "ruok" => "imok".to_owned(),
        "isro" => "rw".to_owned(),
        "srvr" => server::srvr(shared),
        "conf" => server::conf(shared),
        "envi" => server::envi(),
        "dirs" => server::dirs(shared),
        // ZooKeeper's log of digests of the tree; this server does not compute digests.
        "hash" => String::new(),
        "mntr" => monitor::mntr(shared),
        // The mask of ZooKeeper's log at the level TRACE. Here it is stored without an effect.
        "gtmk" => shared.trace_mask.load(Ordering::Relaxed).to_string(),
        "stmk" => {
            shared.trace_mask.store(mask, Ordering::Relaxed);
            mask.to_string()
        }
        "srst" => {
            shared.metrics.reset();
            "Server stats reset.\n".to_owned()
        }
        "stat" => {
            look(shared, move |tree| clients::stat(tree, peer)).await? + &server::summary(shared)
        }
        "cons" => look(shared, move |tree| clients::cons(tree, peer)).await?,
        "crst" => look(shared, clients::crst).await?,
        "dump" => look(shared, clients::dump).await?,
        "wchs" => look(shared, clients::wchs).await?,
        "wchc" => look(shared, clients::wchc).await?,
        "wchp" => look(shared, clients::wchp).await?,
        _ => return None,
    })
}

/// Makes the tree thread produce a listing, which may be long: one after the other, and with pauses, so that all
/// listings together use only a small part of that thread's time.
///
/// Cancel-safe. The listing keeps its turn until it is complete: a pause also follows a listing whose caller is gone.
async fn look(
    shared: &Shared,
    list: impl FnOnce(&TreeLoop) -> String + Send + 'static,
) -> Option<String> {
    let mut next = shared.next_listing.clone().lock_owned().await;
    sleep_until(*next).await;
    let list_and_pause = move |tree: &TreeLoop| {
        let began = Instant::now();
        let listed = list(tree);
        *next = Instant::now() + began.elapsed() * PAUSE;
        listed
    };
    shared.look(list_and_pause).await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::engine::Engine;

    /// Symptom: sixty listings at once, with half a million watches, made all clients wait for 13 s.
    #[tokio::test]
    async fn a_listing_is_followed_by_a_pause() {
        let engine = Engine::builder().four_letter_word("*").start().await.unwrap();
        let shared = &engine.shared;
        let slow = |_: &TreeLoop| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            String::new()
        };
        look(shared, slow).await.unwrap();
        let (asked, next) = (Instant::now(), *shared.next_listing.lock().await);
        assert!(
            next > asked + std::time::Duration::from_millis(20),
            "longer than the listing took"
        );
        look(shared, clients::wchs).await.unwrap();
        assert!(Instant::now() >= next);
    }

    /// The caller may be gone before the tree thread begins the listing, and a timeout makes this happen repeatedly.
    #[tokio::test]
    async fn a_listing_that_nobody_waits_for_is_followed_by_a_pause() {
        let engine = Engine::builder().four_letter_word("*").start().await.unwrap();
        let shared = &engine.shared;
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let before = *shared.next_listing.lock().await;
        let slow = move |_: &TreeLoop| {
            let _ = begun.send(());
            let _ = ended.recv();
            String::new()
        };
        tokio::select! {
            _ = look(shared, slow) => panic!("the listing is not complete"),
            begun = has_begun => begun.unwrap(),
        }
        assert!(shared.next_listing.try_lock().is_err(), "the listing has ended");
        drop(end);
        assert!(*shared.next_listing.lock().await > before);
    }

    /// Symptom: a word that waited for a listing had no deadline, and kept its place until other callers stopped. Seen
    /// to fail without `in_time` around the answer.
    #[tokio::test]
    async fn e37_a_word_waits_for_its_listing_no_longer_than_a_connection_for_its_handshake() {
        let time = std::time::Duration::from_millis(50);
        let builder = Engine::builder().four_letter_word("*").handshake_time(time);
        let engine = builder.start().await.unwrap();
        let far = Instant::now() + std::time::Duration::from_secs(3_600);
        *engine.shared.next_listing.lock().await = far;
        let mut client = std::net::TcpStream::connect(engine.addr().unwrap()).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        client.write_all(b"wchs").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the connection is open");
        assert_eq!(answer, "");
    }

    /// The list of words and their answers are in two places.
    #[tokio::test]
    async fn every_listed_word_has_an_answer() {
        let engine = Engine::builder().four_letter_word("*").start().await.unwrap();
        let peer = Peer::Unix { uid: 0 };
        for word in KNOWN {
            let bytes = word.as_bytes().try_into().unwrap();
            assert!(answer(bytes, 0, peer, &engine.shared).await.is_some(), "{word}");
        }
        assert_eq!(answer(*b"kill", 0, peer, &engine.shared).await, None);
    }
}
