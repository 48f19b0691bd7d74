//! The four-letter words: what a plain terminal, or a monitor, can send instead of a handshake.
//!
//! The answers have ZooKeeper's formats, so that what reads those reads these. Some of them are
//! costly or tell who else is connected, so only those on the list of the builder are answered, as
//! in ZooKeeper. An answer shows the state after the last requests that were handled, including
//! what is not on the disk yet: it is for people who look on, not for clients who decide.

mod clients;
mod date;
mod monitor;
mod server;

use tokio::sync::oneshot;

use crate::net::conversation::Hub;
use crate::tree_loop::{Event, TreeLoop};

pub(crate) use self::monitor::{Value, metrics};

/// All that there are.
const KNOWN: [&str; 16] = [
    "conf", "cons", "crst", "dirs", "dump", "envi", "hash", "isro", "mntr", "ruok", "srst", "srvr",
    "stat", "wchc", "wchp", "wchs",
];
/// Harmless for whoever reaches the engine at all.
const ALWAYS: [&str; 3] = ["isro", "ruok", "srvr"];

/// The words that are answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    listed: Vec<&'static str>,
}

impl Words {
    /// Adds a word, or all of them for `*`; the error is a word that there is not.
    pub(crate) fn allow(&mut self, word: &str) -> Result<(), String> {
        match KNOWN.iter().find(|known| **known == word) {
            Some(known) => self.listed.push(known),
            None if word == "*" => self.listed.extend(KNOWN),
            None => return Err(word.to_owned()),
        }
        Ok(())
    }

    fn allows(&self, word: &str) -> bool {
        ALWAYS.contains(&word) || self.listed.contains(&word)
    }
}

/// The answer to a word; `None` if there is no such word.
pub(crate) async fn answer(word: [u8; 4], hub: &Hub) -> Option<String> {
    let word = std::str::from_utf8(&word).ok()?;
    let word = KNOWN.into_iter().find(|known| *known == word)?;
    if !hub.facts.words.allows(word) {
        return Some(format!("{word} is not executed because it is not in the whitelist.\n"));
    }
    tracing::debug!(word, "answering a four-letter word");
    Some(match word {
        "ruok" => "imok".to_owned(),
        "isro" => "rw".to_owned(),
        "srvr" => server::srvr(hub),
        "conf" => server::conf(hub),
        "envi" => server::envi(),
        "dirs" => server::dirs(hub),
        // ZooKeeper's log of digests of the tree; this server does not compute any.
        "hash" => String::new(),
        "mntr" => monitor::mntr(hub),
        "srst" => {
            hub.metrics.reset();
            "Server stats reset.\n".to_owned()
        }
        "stat" => look(hub, clients::stat).await? + &server::summary(hub),
        "cons" => look(hub, clients::cons).await?,
        "crst" => look(hub, clients::crst).await?,
        "dump" => look(hub, clients::dump).await?,
        "wchs" => look(hub, clients::wchs).await?,
        "wchc" => look(hub, clients::wchc).await?,
        _ => look(hub, clients::wchp).await?,
    })
}

/// Whether the tree thread takes questions: it does until its end.
pub(crate) async fn tree_answers(hub: &Hub) -> bool {
    look(hub, |_| String::new()).await.is_some()
}

/// Lets the tree thread write the answer; `None` if it has ended.
async fn look(hub: &Hub, write: fn(&TreeLoop) -> String) -> Option<String> {
    let (sender, answer) = oneshot::channel();
    let look = move |tree: &TreeLoop| {
        // Whoever asked may be gone.
        let _ = sender.send(write(tree));
    };
    hub.events.send(Event::Look(Box::new(look))).ok()?;
    answer.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_words_are_allowed() {
        let mut words = Words::default();
        assert!(words.allows("srvr") && words.allows("isro") && !words.allows("mntr"));
        words.allow("mntr").unwrap();
        assert!(words.allows("mntr") && !words.allows("wchc"));
        assert_eq!(words.allow("kill"), Err("kill".to_owned()));
        words.allow("*").unwrap();
        assert!(KNOWN.iter().all(|word| words.allows(word)));
    }
}
