//! The result of a backup: what is in it, or why it failed.

use std::path::PathBuf;

use crate::error::StartError;
use crate::storage::StorageError;

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The data directory that was made.
    pub path: PathBuf,
    /// How many records are in it: nodes, sessions and the last transaction.
    pub records: u64,
}

/// Why there is no backup; nothing is left where it was to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The engine keeps everything in memory.
    #[error("there is no data on a disk, so there is nothing to back up")]
    NothingKept,
    /// The engine has ended.
    #[error(
        "the engine ended before the backup was there: try again, which works without an engine too"
    )]
    Ended,
    /// The copy cannot be written, or the original cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The engine of another process says why.
    #[error("{0}")]
    Refused(String),
    /// The operating system refuses a thread.
    #[error(transparent)]
    System(#[from] StartError),
}
