//! The mark of a restored directory: which quiet time is due before its engine begins.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{IoResultExt, StorageError};
use super::files::{RESTORED, replace};

const EXACT: &str = "quiet-time-ms";
const AT_LEAST: &str = "quiet-time-at-least-ms";

/// For how long no session is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuietTime {
    /// So long, as an operator has said.
    Exactly(Duration),
    /// For the longest session timeout that may have been granted, and no less than this.
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
pub(crate) fn mark_restored(directory: &Path, quiet: QuietTime) -> Result<(), StorageError> {
    let (word, time) = match quiet {
        QuietTime::Exactly(time) => (EXACT, time),
        QuietTime::AtLeast(time) => (AT_LEAST, time),
    };
    replace(directory, RESTORED, &format!("{word} {}\n", time.as_millis()))
}

/// The quiet time that is due in a data directory.
pub(crate) fn restored_mark(directory: &Path) -> Result<Option<QuietTime>, StorageError> {
    let path = path_in(directory);
    let Some(bytes) = fs::read(&path).if_exists().at(&path)? else {
        return Ok(None);
    };
    let quiet = QuietTime::parse(&String::from_utf8_lossy(&bytes));
    quiet.ok_or_else(|| StorageError::damaged(&path, "it names no quiet time")).map(Some)
}

/// Takes the mark away: the quiet time is over.
pub(crate) fn remove_mark(directory: &Path) -> Result<(), StorageError> {
    let path = path_in(directory);
    fs::remove_file(&path).if_exists().at(&path).map(drop)
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join(RESTORED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(restored_mark(directory.path()).unwrap(), None);
        let time = Duration::from_millis(1_500);
        for quiet in [QuietTime::Exactly(time), QuietTime::AtLeast(time)] {
            mark_restored(directory.path(), quiet).unwrap();
            assert_eq!(restored_mark(directory.path()).unwrap(), Some(quiet));
        }
        remove_mark(directory.path()).unwrap();
        assert_eq!(restored_mark(directory.path()).unwrap(), None);
        remove_mark(directory.path()).unwrap();
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
        let directory = tempfile::tempdir().unwrap();
        fs::write(path_in(directory.path()), "quiet").unwrap();
        let error = restored_mark(directory.path()).unwrap_err().to_string();
        assert!(error.contains("RESTORED is damaged"), "{error}");
    }
}
