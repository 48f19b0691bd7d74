//! A copy of the state while the engine runs.

use std::path::{Path, PathBuf};

use crate::data_dir::control;
use crate::engine::Engine;
use crate::error::StartError;
use crate::storage::StorageError;

/// What a backup has.
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

impl Engine {
    /// Copies the state as of the last commit into a new data directory while the engine goes on:
    /// every write acknowledged before the call is in it, and of each transaction all or nothing.
    /// To use it, [restore](crate::restore) it: an engine that is started on the copy itself gives
    /// fencing tokens again that were given since, and takes up sessions that are long over.
    ///
    /// The directory must not exist yet; its parent must. It is there as a whole or not at all.
    ///
    /// # Errors
    /// If the engine keeps nothing on a disk or has ended, if there is something at `dir`, or if
    /// the disk is full or fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the copy goes on.
    pub async fn backup(&self, dir: impl AsRef<Path>) -> Result<Backup, BackupError> {
        let path = dir.as_ref().to_path_buf();
        let snapshots = self.snapshots().ok_or(BackupError::NothingKept)?;
        let records = control::copy(&snapshots, path.clone()).await?;
        Ok(Backup { path, records })
    }
}
