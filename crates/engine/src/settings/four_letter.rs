//! The known four-letter words, and those that are answered.

/// All known words.
pub(crate) const KNOWN: [&str; 18] = [
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst",
    "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
];
/// Words that any client may use without harm.
const HARMLESS: [&str; 3] = ["isro", "ruok", "srvr"];
/// The word that a whitelist need not list, as in ZooKeeper, whose own scripts use it.
const ALWAYS: &str = "srvr";

/// The words to answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct FourLetterWords {
    listed: Vec<&'static str>,
    /// Whether the harmless words must be listed too.
    listed_only: bool,
}

impl FourLetterWords {
    /// Adds a word, or all of them for `*`; an unknown word is an error.
    pub(crate) fn allow(&mut self, word: &str) -> Result<(), String> {
        match KNOWN.iter().find(|known| **known == word) {
            Some(known) => self.listed.push(known),
            None if word == "*" => self.listed.extend(KNOWN),
            None => return Err(word.to_owned()),
        }
        Ok(())
    }

    /// Answers only the words of a list in ZooKeeper's form; unknown words are ignored.
    pub(crate) fn allow_only(&mut self, list: &str) {
        self.listed_only = true;
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if let Err(word) = self.allow(word) {
                tracing::warn!("the four-letter word {word:?} is unknown and is ignored");
            }
        }
    }

    pub(crate) fn allows(&self, word: &str) -> bool {
        word == ALWAYS
            || self.listed.contains(&word)
            || !self.listed_only && HARMLESS.contains(&word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_words_are_allowed() {
        let mut words = FourLetterWords::default();
        assert!(words.allows("srvr") && words.allows("isro") && !words.allows("mntr"));
        words.allow("mntr").unwrap();
        assert!(words.allows("mntr") && !words.allows("wchc"));
        assert_eq!(words.allow("kill"), Err("kill".to_owned()));
        words.allow("*").unwrap();
        assert!(KNOWN.iter().all(|word| words.allows(word)));
    }

    /// Symptom: `ruok` and `isro` were answered although ZooKeeper's list left them out, and an unknown word in it
    /// prevented the start.
    #[test]
    fn k40_a_whitelist_is_all_that_is_answered_and_may_have_unknown_words() {
        let mut words = FourLetterWords::default();
        words.allow_only(" mntr, kill ,,isro");
        for (word, is_allowed) in
            [("srvr", true), ("mntr", true), ("isro", true), ("ruok", false), ("stat", false)]
        {
            assert_eq!(words.allows(word), is_allowed, "{word}");
        }
        words.allow_only("*");
        assert!(KNOWN.iter().all(|word| words.allows(word)));
    }
}
