//! Checkpoints: write a full log into the database, so that its file can be reused.

use std::mem;
use std::sync::Arc;

use wal_db::Wal;

use super::activity::{CurrentActivity, DiskActivity};
use super::database::{Logs, OpenDisk};
use super::error::{IoResultExt, StorageError};
use super::log::file::LogFile;
use super::log::{Applied, History, LogDir};

/// How much of a log's outcome is written into the database at a time, in bytes. A thread does not return memory that
/// it has once used.
const PORTION: usize = if cfg!(test) { 2 * 1024 } else { 1024 * 1024 };

/// A log to be written into the database and then reused.
pub(super) struct Checkpoint {
    pub(super) dir: LogDir,
    pub(super) disk: Arc<OpenDisk>,
    /// As it was written: opening it again would read it once more.
    pub(super) log: Wal<LogFile>,
    pub(super) file: LogFile,
    pub(super) generation: u64,
    /// Its last commit.
    pub(super) sequence: u64,
    pub(super) activity: CurrentActivity,
    /// The length to which its file is to be cut.
    pub(super) kept: u64,
}

impl Checkpoint {
    /// Returns the file for the generation after the next.
    #[tracing::instrument(level = "debug", name = "checkpoint", skip_all)]
    pub(super) fn run(self) -> Result<LogFile, StorageError> {
        self.activity.begin(DiskActivity::Checkpoint);
        self.disk.pace.set_background(true);
        let applied = self.apply();
        self.disk.pace.set_background(false);
        applied?;
        self.file.reuse();

        self.activity.begin(DiskActivity::Preparation);
        let path = self.dir.log(self.generation);
        let kept = if self.dir.has_room(self.kept) { self.kept } else { 0 };
        self.file.grow(kept, &self.disk.pace).at(&path)?;
        self.activity.begin(DiskActivity::Nothing);
        Ok(self.file)
    }

    fn apply(&self) -> Result<(), StorageError> {
        let _no_snapshot = self.disk.lock_recycling();
        let path = self.dir.log(self.generation);
        let applied = self.disk.applied()?;
        let mut history = History::after(applied);
        let changing = self.disk.begin()?;
        history.add_in_portions(&path, self.generation, &self.log, |outcome| {
            if outcome.bytes() > PORTION {
                self.disk.change(&changing, &mem::take(outcome))?;
            }
            Ok(())
        })?;
        history.reaches(self.sequence, &path)?;
        self.disk.change(&changing, &history.outcome)?;

        let applied = Applied { generation: self.generation + 1, sequence: history.sequence };
        self.disk.end(changing, applied, Logs::InUse)?;
        self.disk.lock_live().retain(|(generation, _)| *generation != self.generation);
        Ok(())
    }
}
