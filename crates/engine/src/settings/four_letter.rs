//! Which four-letter words there are, and which of them are answered.

/// All that there are.
pub(crate) const KNOWN: [&str; 16] = [
    "conf", "cons", "crst", "dirs", "dump", "envi", "hash", "isro", "mntr", "ruok", "srst", "srvr",
    "stat", "wchc", "wchp", "wchs",
];
/// Harmless in the hands of any client that reaches the engine.
const ALWAYS: [&str; 3] = ["isro", "ruok", "srvr"];

/// The words that are answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct FourLetterWords {
    listed: Vec<&'static str>,
}

impl FourLetterWords {
    /// Adds a word, or all of them for `*`; the error is a word that there is not.
    pub(crate) fn allow(&mut self, word: &str) -> Result<(), String> {
        match KNOWN.iter().find(|known| **known == word) {
            Some(known) => self.listed.push(known),
            None if word == "*" => self.listed.extend(KNOWN),
            None => return Err(word.to_owned()),
        }
        Ok(())
    }

    pub(crate) fn allows(&self, word: &str) -> bool {
        ALWAYS.contains(&word) || self.listed.contains(&word)
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
}
