//! The concurrent disk activity of the engine while a commit is synced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The activity with which a sync of the log may share the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DiskActivity {
    /// No other activity of this engine.
    Nothing,
    /// A log is written into the database.
    Checkpoint,
    /// A log file is prepared for writing: it grows or is reused.
    Preparation,
}

impl DiskActivity {
    /// All values, each at the index of its number.
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
    pub(crate) during: DiskActivity,
    pub(crate) took: Duration,
}

/// The present activity: set by the thread that does it, read by the committing thread.
#[derive(Debug, Clone, Default)]
pub(super) struct CurrentActivity(Arc<AtomicU8>);

impl CurrentActivity {
    pub(super) fn now(&self) -> DiskActivity {
        DiskActivity::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(super) fn begin(&self, what: DiskActivity) {
        self.0.store(what as u8, Ordering::Relaxed);
    }
}
