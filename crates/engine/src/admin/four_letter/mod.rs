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

use crate::settings::four_letter::KNOWN;
use crate::shared::Shared;

pub(crate) use self::monitor::{Value, metrics};

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
        "stat" => shared.look(clients::stat).await? + &server::summary(shared),
        "cons" => shared.look(clients::cons).await?,
        "crst" => shared.look(clients::crst).await?,
        "dump" => shared.look(clients::dump).await?,
        "wchs" => shared.look(clients::wchs).await?,
        "wchc" => shared.look(clients::wchc).await?,
        "wchp" => shared.look(clients::wchp).await?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

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
