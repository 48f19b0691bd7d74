//! The four-letter words: what a plain terminal, or a monitor, can send instead of a handshake.
//!
//! The answers have ZooKeeper's formats, so that its tools can read them. Some are costly, or show
//! other clients, so only the words that the builder lists are answered, as in ZooKeeper. An answer
//! shows the state after the last requests that were handled, including what is not on the disk yet:
//! it is for people to look at, and not for a client's decisions.
//!
//! The list of all words is `settings::four_letter::KNOWN`; a new word is added there and in `answer`.

mod clients;
mod monitor;
mod server;

use tokio::time::{Instant, sleep_until};

use crate::settings::four_letter::KNOWN;
use crate::shared::Shared;
use crate::tree_loop::TreeLoop;

pub(crate) use self::monitor::{Value, metrics};

/// How long the pause after a listing is, in times that it took.
const PAUSE: u32 = 9;

/// The answer to a word; `None` if there is no such word.
pub(crate) async fn answer(word: [u8; 4], shared: &Shared) -> Option<String> {
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
        // ZooKeeper's log of digests of the tree; this server does not compute any.
        "hash" => String::new(),
        "mntr" => monitor::mntr(shared),
        "srst" => {
            shared.metrics.reset();
            "Server stats reset.\n".to_owned()
        }
        "stat" => look(shared, clients::stat).await? + &server::summary(shared),
        "cons" => look(shared, clients::cons).await?,
        "crst" => look(shared, clients::crst).await?,
        "dump" => look(shared, clients::dump).await?,
        "wchs" => look(shared, clients::wchs).await?,
        "wchc" => look(shared, clients::wchc).await?,
        "wchp" => look(shared, clients::wchp).await?,
        _ => return None,
    })
}

/// Has the tree thread list something, which may be long: one after the other, and with pauses, so that
/// it takes no more than a small part of that thread's time, whoever many ask.
async fn look(
    shared: &Shared,
    list: impl FnOnce(&TreeLoop) -> String + Send + 'static,
) -> Option<String> {
    let mut next = shared.next_listing.lock().await;
    sleep_until(*next).await;
    let timed = move |tree: &TreeLoop| {
        let began = Instant::now();
        (list(tree), began.elapsed())
    };
    let (listed, took) = shared.look(timed).await?;
    *next = Instant::now() + took * PAUSE;
    Some(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

    /// Sixty at once kept everyone waiting for 13 s beside half a million watches.
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
            "as long as it took, and longer"
        );
        look(shared, clients::wchs).await.unwrap();
        assert!(Instant::now() >= next);
    }

    /// The list and the answers are in two places.
    #[tokio::test]
    async fn every_listed_word_has_an_answer() {
        let engine = Engine::builder().four_letter_word("*").start().await.unwrap();
        for word in KNOWN {
            let bytes = word.as_bytes().try_into().unwrap();
            assert!(answer(bytes, &engine.shared).await.is_some(), "{word}");
        }
        assert_eq!(answer(*b"kill", &engine.shared).await, None);
    }
}
