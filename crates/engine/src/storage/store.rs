//! The durable copy of the engine's state: opening, commits, and its end.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use lockkeeper_tree::Table;

use super::activity::SyncTime;
use super::batch::Batch;
use super::copies::Snapshots;
use super::database::OpenDisk;
use super::dir::{DataDir, State};
use super::disk::{Wrap, plain};
use super::durability::Durability;
use super::error::{IoResultExt, StorageError};
use super::journal::Journal;
use super::log::{Applied, LogDir};

/// The durable copy of the engine's state.
pub(crate) struct Storage {
    /// `None` for [`Durability::Memory`].
    pub(super) disk: Option<Disk>,
}

impl Storage {
    /// Opens the database in `dir`, or creates both, and checks every page of the existing data.
    ///
    /// `dir` is ignored for [`Durability::Memory`] and required for the others.
    pub(crate) fn open(dir: Option<&Path>, durability: Durability) -> Result<Self, StorageError> {
        Storage::open_with(dir, durability, plain())
    }

    /// [`Storage::open`] with other files.
    pub(super) fn open_with(
        dir: Option<&Path>,
        durability: Durability,
        wrap: Wrap,
    ) -> Result<Self, StorageError> {
        if durability == Durability::Memory {
            return Ok(Storage { disk: None });
        }
        let dir = dir.ok_or(StorageError::NoDirectory { durability })?;
        let disk = Disk::open(dir, durability, wrap)?;
        Ok(Storage { disk: Some(disk) })
    }

    /// Passes every record that existed when the storage was opened to `visit`, table by table and in key order,
    /// without holding more than one in memory. Stops at the first error.
    pub(crate) fn load<E: From<StorageError>>(
        &self,
        visit: impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.disk.as_ref().map_or(Ok(()), |disk| disk.open.load(visit))
    }

    /// The error for an invalid record that [`Storage::load`] returned.
    pub(crate) fn damaged(&self, detail: impl fmt::Display) -> StorageError {
        let file = self.disk.as_ref().map(|disk| disk.open.file.as_path());
        StorageError::damaged(file.unwrap_or(Path::new("memory")), detail)
    }

    /// Applies a group commit as a whole, and returns when it is as durable as promised; returns the time of its sync,
    /// if it had one of its own.
    ///
    /// After an error, the next start may or may not find the batch, and every later commit fails with
    /// [`StorageError::Stopped`].
    pub(crate) fn commit(&mut self, batch: &mut Batch) -> Result<Option<SyncTime>, StorageError> {
        self.disk.as_mut().map_or(Ok(None), |disk| disk.commit(batch))
    }

    /// Whether the next commit may have to wait for a checkpoint.
    pub(crate) fn is_log_full(&self) -> bool {
        self.journal().is_some_and(Journal::is_full)
    }

    /// Whether a checkpoint or similar work is running, which uses the disk as well.
    pub(crate) fn has_background(&self) -> bool {
        self.journal().is_some_and(Journal::has_background)
    }

    /// Makes the logs take no space after an orderly end.
    pub(super) fn keep_no_logs(&mut self) {
        if let Some(journal) = self.disk.as_mut().and_then(|disk| disk.journal.as_mut()) {
            journal.keep_nothing();
        }
    }

    pub(super) fn journal(&self) -> Option<&Journal> {
        self.disk.as_ref()?.journal.as_ref()
    }

    /// Writes everything into the database. Dropping does so too, but does not report a failure.
    pub(crate) fn close(mut self) -> Result<(), StorageError> {
        self.disk.as_mut().map_or(Ok(()), Disk::close)
    }
}

/// An open database, the log in front of it, and whether it can be written.
pub(super) struct Disk {
    /// `None` if it is only read.
    pub(super) journal: Option<Journal>,
    pub(super) open: Arc<OpenDisk>,
    pub(super) snapshots: Snapshots,
    pub(super) failed: bool,
}

impl Disk {
    pub(super) fn new(journal: Option<Journal>, open: Arc<OpenDisk>) -> Self {
        Self { journal, snapshots: Snapshots::of(open.clone()), open, failed: false }
    }

    pub(super) fn open(
        path: &Path,
        durability: Durability,
        wrap: Wrap,
    ) -> Result<Disk, StorageError> {
        let (dir, state) = DataDir::claim(path)?;
        if state == State::Backup {
            return Err(StorageError::Backup { path: path.to_owned() });
        }
        let logs = LogDir::new(dir.files().clone(), wrap.clone());
        let file = dir.database();
        let on_disk = wrap(dir.open_database(state)?).at(&file)?;
        let (open, _) = OpenDisk::open(dir, on_disk)?;
        let tail = open.read_logs(&logs, state)?;
        let applied = match state {
            State::New => {
                logs.prepare()?;
                Applied::first().at(path)?
            }
            _ => open.applied()?.next(tail.sequence),
        };

        // Even if it changes nothing: it replaces the record of an orderly end, after which the library would trust the
        // file without a check.
        open.apply(&tail.outcome, applied)?;
        logs.acknowledge(applied.sequence)?;
        if state == State::New {
            open.dir.finish_creation()?;
        }

        let open = Arc::new(open);
        let sync = durability == Durability::Sync;
        let journal = Journal::begin(logs, open.clone(), applied, sync)?;
        Ok(Disk::new(Some(journal), open))
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<Option<SyncTime>, StorageError> {
        let stopped = StorageError::Stopped { path: self.open.dir.path().to_path_buf() };
        if self.failed {
            return Err(stopped);
        }
        if batch.is_empty() {
            return Ok(None);
        }
        self.failed = true; // Remains set after a panic.
        let sync = self.journal.as_mut().ok_or(stopped)?.commit(batch)?;
        self.failed = false;
        Ok(sync)
    }

    pub(super) fn close(&mut self) -> Result<(), StorageError> {
        match self.journal.take() {
            Some(mut journal) if !self.failed => journal.close(),
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    /// A failure loses nothing: the next start finds the commits in the logs.
    fn drop(&mut self) {
        self.snapshots.end();
        if let Err(e) = self.close() {
            tracing::warn!("{e}");
        }
    }
}
