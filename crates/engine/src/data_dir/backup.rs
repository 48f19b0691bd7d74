//! The result of a backup, or the reason why it failed.

use std::path::PathBuf;

use crate::error::StartError;
use crate::storage::StorageError;

/// A completed backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The new data directory.
    pub path: PathBuf,
    /// The number of its records: nodes, sessions and the last transaction.
    pub records: u64,
}

/// Why a backup failed; nothing remains at its path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The engine keeps everything in memory.
    #[error("the engine keeps its data in memory only, so it cannot be backed up")]
    NothingKept,
    /// The engine has ended.
    #[error(
        "the engine ended before the backup was complete: try again, which also works without an engine"
    )]
    Ended,
    /// The copy cannot be written, or the original cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The reason that the engine of another process reports.
    #[error("{0}")]
    Refused(String),
    /// The operating system refuses a thread.
    #[error(transparent)]
    System(#[from] StartError),
}
