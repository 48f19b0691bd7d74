//! What else is under way on the disk while a commit is synced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// What a sync of the log may have to share the disk with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum During {
    /// Nothing of this engine's.
    Nothing,
    /// A log goes into the database.
    Checkpoint,
    /// A log file is made ready to be written: it grows, or is used again.
    Preparation,
}

impl During {
    /// All of them, each at the place of its number.
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Checkpoint, Self::Preparation];

    /// The value of the label in the metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Checkpoint => "checkpoint",
            Self::Preparation => "preparation",
        }
    }
}

/// How long the sync of a commit took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncTime {
    pub(crate) during: During,
    pub(crate) took: Duration,
}

/// What is under way now: set by the thread that does it, read by the thread that commits.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity(Arc<AtomicU8>);

impl Activity {
    pub(super) fn now(&self) -> During {
        During::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(super) fn begin(&self, what: During) {
        self.0.store(what as u8, Ordering::Relaxed);
    }
}
