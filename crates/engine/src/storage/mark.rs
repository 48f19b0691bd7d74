//! The mark of a restored directory: the quiet time with which its engine must begin.

use std::time::Duration;

use super::error::{IoResultExt, StorageError};
use super::files::{RESTORED, read_text};
use crate::files::Directory;

const EXACT: &str = "quiet-time-ms";
const AT_LEAST: &str = "quiet-time-at-least-ms";

/// How long new sessions are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuietTime {
    /// Exactly this long, as an operator has set.
    Exactly(Duration),
    /// As long as the longest session timeout that may have been granted, and at least this long.
    AtLeast(Duration),
}

impl QuietTime {
    /// The time, for an engine that grants session timeouts of up to `longest`.
    pub(crate) fn of(self, longest: Duration) -> Duration {
        match self {
            Self::Exactly(time) => time,
            Self::AtLeast(time) => time.max(longest),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (word, ms) = text.trim_end().split_once(' ')?;
        let time = Duration::from_millis(ms.parse().ok()?);
        match word {
            EXACT => Some(Self::Exactly(time)),
            AT_LEAST => Some(Self::AtLeast(time)),
            _ => None,
        }
    }
}

/// Marks a data directory, durably.
pub(crate) fn mark_restored(dir: &Directory, quiet: QuietTime) -> Result<(), StorageError> {
    let (word, time) = match quiet {
        QuietTime::Exactly(time) => (EXACT, time),
        QuietTime::AtLeast(time) => (AT_LEAST, time),
    };
    let text = format!("{word} {}\n", time.as_millis());
    dir.replace(RESTORED, text.as_bytes()).at(&dir.path_of(RESTORED))
}

/// The quiet time that is due in a data directory.
pub(crate) fn restored_mark(dir: &Directory) -> Result<Option<QuietTime>, StorageError> {
    let Some(text) = read_text(dir, RESTORED)? else { return Ok(None) };
    let unknown =
        || StorageError::damaged(&dir.path_of(RESTORED), "it does not contain a quiet time");
    QuietTime::parse(&text).ok_or_else(unknown).map(Some)
}

/// Removes the mark: the quiet time is over.
pub(crate) fn remove_mark(dir: &Directory) -> Result<(), StorageError> {
    dir.remove(RESTORED).if_exists().at(&dir.path_of(RESTORED)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_mark_stays_until_it_is_removed() {
        let (_folder, directory) = Directory::temporary();
        assert_eq!(restored_mark(&directory).unwrap(), None);
        let time = Duration::from_millis(1_500);
        for quiet in [QuietTime::Exactly(time), QuietTime::AtLeast(time)] {
            mark_restored(&directory, quiet).unwrap();
            assert_eq!(restored_mark(&directory).unwrap(), Some(quiet));
        }
        remove_mark(&directory).unwrap();
        assert_eq!(restored_mark(&directory).unwrap(), None);
        remove_mark(&directory).unwrap();
    }

    #[test]
    fn an_engine_that_grants_more_is_quiet_for_longer() {
        let seconds = Duration::from_secs;
        assert_eq!(QuietTime::Exactly(seconds(0)).of(seconds(40)), seconds(0));
        assert_eq!(QuietTime::AtLeast(seconds(20)).of(seconds(40)), seconds(40));
        assert_eq!(QuietTime::AtLeast(seconds(60)).of(seconds(40)), seconds(60));
    }

    #[test]
    fn nonsense_is_damage() {
        let (_folder, directory) = Directory::temporary();
        fs::write(directory.path_of(RESTORED), "quiet").unwrap();
        let error = restored_mark(&directory).unwrap_err().to_string();
        assert!(error.contains("RESTORED is damaged"), "{error}");
    }
}
