//! The journal: commits that are not in the database yet.
//!
//! A commit to the database writes several pages all over its file. A commit to a log is one write at its end, so it is
//! acknowledged from there, and the database follows in the background (`docs/decisions/0006-log-before-database.md`).
//! Logs are numbered by generation and alternate between two files (`docs/decisions/0017-logs-that-are-used-again.md`):
//!
//! 1. Commits go to the log of the present generation `N`, from the beginning of its file.
//! 2. When that is long enough and the last checkpoint is complete, they go to `N+1` in the other file, and a
//!    checkpoint begins.
//! 3. The checkpoint writes the last state of each record in log `N` into the database in one transaction, which also
//!    records that generation `N+1` is the next to be applied.
//! 4. From then on log `N` no longer counts. Log `N+2` overwrites its file without clearing it: `log::present`
//!    distinguishes their commits.
//!
//! A start applies the commits in the logs, in order, and begins with two new generations. `acknowledged` contains the
//! number of the last commit, so that a log that lost its end is not taken for one whose last write was cut short.

use std::mem;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use redb::StorageBackend;
use wal_db::{Wal, WalStore as _};

use super::activity::{CurrentActivity, DiskActivity, SyncTime};
use super::batch::Batch;
use super::checkpoint::Checkpoint;
use super::database::{Logs, OpenDisk};
use super::error::{IoResultExt, StorageError};
use super::log::file::{CHUNK, LogFile};
use super::log::record::{self, CommitPosition};
use super::log::{Applied, LogDir, acknowledged, strict};
use crate::files::Access;
use crate::thread;

/// The longest log while the previous checkpoint is not complete, as a multiple of its usual length.
const MAX_LENGTH_FACTOR: u64 = 4;
/// How much of the first file a new directory fills before the other file is grown to the length of a log: rarely used
/// directories stay small.
const START_OF_GROWTH: u64 = CHUNK / 2;
/// Larger commits, in bytes, go to the database at once.
const DIRECT_COMMIT_BYTES: usize = 32 * 1024 * 1024;

/// The logs of an open directory, and their background work.
pub(super) struct Journal {
    dir: LogDir,
    disk: Arc<OpenDisk>,
    log: Wal<LogFile>,
    file: LogFile,
    generation: u64,
    sequence: u64,
    /// The file of the next generation, unless the background work still needs it.
    next: Option<LogFile>,
    /// A checkpoint, or the growth of the next file.
    background: Option<JoinHandle<Result<LogFile, StorageError>>>,
    acknowledged: Box<dyn StorageBackend>,
    /// Whether each commit is synced.
    sync: bool,
    /// The present background activity.
    activity: CurrentActivity,
    /// The length, in bytes, at which a log is replaced by the next one.
    long: u64,
    /// The length to which files are cut when they are not in use.
    kept: u64,
}

impl Journal {
    /// Begins with the two generations after `applied`.
    pub(super) fn begin(
        dir: LogDir,
        disk: Arc<OpenDisk>,
        applied: Applied,
        sync: bool,
    ) -> Result<Self, StorageError> {
        let generation = applied.generation;
        let open = |generation| {
            let file = dir.open_log(generation, Access::Write)?;
            LogFile::unused(file).at(&dir.log(generation))
        };
        let (file, next) = (open(generation)?, open(generation + 1)?);

        let log = start(&dir, generation, &file)?;
        let acknowledged = dir.open_acknowledged(Access::Write)?;
        *disk.lock_live() = vec![(generation, file.clone())];
        let long = dir.long();

        Ok(Self {
            dir,
            disk,
            log,
            file,
            generation,
            sequence: applied.sequence,
            next: Some(next),
            background: None,
            acknowledged,
            sync,
            activity: CurrentActivity::default(),
            long,
            kept: long,
        })
    }

    /// Makes the files take no space at the end: the directory is written once and then stored.
    pub(super) fn keep_nothing(&mut self) {
        self.kept = 0;
    }

    /// Writes a commit, and returns when it is as durable as promised.
    pub(super) fn commit(&mut self, batch: &mut Batch) -> Result<Option<SyncTime>, StorageError> {
        self.take_turns(batch.encoded().len() as u64)?;
        let mut sync = None;
        let place = CommitPosition { generation: self.generation, sequence: self.sequence + 1 };

        if batch.encoded().len() > DIRECT_COMMIT_BYTES {
            self.apply_all()?;
            let applied = Applied { generation: self.generation, sequence: place.sequence };
            // Otherwise a snapshot could lack it and contain the next one, which goes to the log.
            let _no_snapshot = self.disk.lock_recycling();
            self.disk.apply(&(&*batch).into(), applied)?;
        } else {
            let failed = |e| self.dir.failure(self.generation, e);
            let append = |record: &[u8]| self.log.append(record).map_err(failed);
            let allocated = self.file.allocated();
            let _ = record::encode(place, batch, append)?;
            if self.sync {
                let (before, start) = (self.activity.now(), Instant::now());
                // The appended data is already written. The log's own sync would make a system call to wake waiters,
                // and there are none.
                self.file.sync().map_err(failed)?;
                let during = match self.file.allocated() == allocated {
                    true => before.max(self.activity.now()),
                    false => DiskActivity::Preparation,
                };
                sync = Some(SyncTime { during, took: start.elapsed() });
            }
            self.file.commit(place.sequence);
        }

        self.sequence = place.sequence;
        let written = acknowledged::write(&*self.acknowledged, self.sequence);
        written.map_err(|e| StorageError::io(&self.dir.acknowledged(), e))?;
        Ok(sync)
    }

    /// Whether the log is to be replaced by the next one, which may have to wait for a checkpoint.
    pub(super) fn is_full(&self) -> bool {
        self.file.end() >= self.long
    }

    /// Whether background work is running, as far as it is known: a commit notices its end.
    pub(super) fn has_background(&self) -> bool {
        self.background.is_some()
    }

    /// Switches to the next log if it is time, before a commit of this size.
    fn take_turns(&mut self, bytes: u64) -> Result<(), StorageError> {
        // Not only when its log is needed: if it failed, nothing more is acknowledged.
        if self.background.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join()?;
        }

        let end = self.file.end();
        let is_overdue = end > 0 && self.end_after(bytes) > MAX_LENGTH_FACTOR * self.long;
        let is_due = end > 0 && self.would_grow(bytes);
        if is_overdue || (is_due && self.background.is_none()) {
            self.join()?;
            return self.turn();
        }

        // On a full disk the other file may have space, once its log is in the database.
        if end > 0 && bytes <= DIRECT_COMMIT_BYTES as u64 && !self.has_room_for(bytes)? {
            self.join()?;
            return self.turn();
        }

        let next = self.next.as_ref().filter(|_| end >= START_OF_GROWTH);
        match next.is_some_and(|next| next.can_grow(self.kept)) {
            true => self.grow_next(),
            false => Ok(()),
        }
    }

    /// Where a commit of this size ends, or slightly less.
    fn end_after(&self, bytes: u64) -> u64 {
        // The library and the journal add far less than this.
        self.file.end() + bytes + 1024
    }

    fn has_room_for(&self, bytes: u64) -> Result<bool, StorageError> {
        let room = self.file.has_room_for(self.end_after(bytes));
        room.map_err(|e| StorageError::io(&self.dir.log(self.generation), e))
    }

    /// Whether this commit would make the file longer than a log should be, or longer than it is while the other file
    /// has space.
    fn would_grow(&self, bytes: u64) -> bool {
        let needed = self.end_after(bytes);
        let allocated = self.file.allocated();
        let has_room = |next: &LogFile| next.allocated() > allocated;
        needed > self.long || (needed > allocated && self.next.as_ref().is_some_and(has_room))
    }

    /// Waits for the background work, if any is running.
    pub(super) fn join(&mut self) -> Result<(), StorageError> {
        let Some(background) = self.background.take() else {
            return Ok(());
        };
        self.disk.pace.hurry(true);
        let ended = background.join();
        self.disk.pace.hurry(false);
        let file = ended.unwrap_or_else(|_| {
            let file = self.dir.log(self.generation.saturating_sub(1));
            Err(StorageError::damaged(&file, "writing it into the database caused a panic"))
        })?;
        self.next = Some(file);
        Ok(())
    }

    /// Switches to the next log, and begins the checkpoint of this one. No checkpoint may be running.
    fn turn(&mut self) -> Result<(), StorageError> {
        let Some(next) = self.next.take() else {
            return Ok(());
        };
        let log = start(&self.dir, self.generation + 1, &next)?;

        let checkpoint = Checkpoint {
            dir: self.dir.clone(),
            disk: self.disk.clone(),
            log: mem::replace(&mut self.log, log),
            file: mem::replace(&mut self.file, next),
            generation: self.generation,
            sequence: self.sequence,
            activity: self.activity.clone(),
            kept: self.kept,
        };

        self.generation += 1;
        self.disk.lock_live().push((self.generation, self.file.clone()));
        self.run("lockkeeper-checkpoint", move || checkpoint.run())
    }

    /// Grows the next file to the length of a log.
    fn grow_next(&mut self) -> Result<(), StorageError> {
        let Some(next) = self.next.take() else {
            return Ok(());
        };

        if !self.dir.has_room(self.kept) {
            next.stop_growing();
            self.next = Some(next);
            return Ok(());
        }

        let (kept, disk, activity) = (self.kept, self.disk.clone(), self.activity.clone());
        let path = self.dir.log(self.generation + 1);
        self.run("lockkeeper-growth", move || {
            activity.begin(DiskActivity::Preparation);
            next.grow(kept, &disk.pace).at(&path)?;
            activity.begin(DiskActivity::Nothing);
            Ok(next)
        })
    }

    /// Starts background work that returns the file of the next log.
    fn run(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<LogFile, StorageError> + Send + 'static,
    ) -> Result<(), StorageError> {
        let running = thread::spawn(name, move || work().inspect_err(|e| tracing::error!("{e}")));
        self.background = Some(running.at(self.dir.path())?);
        Ok(())
    }

    /// Writes everything into the database.
    fn apply_all(&mut self) -> Result<(), StorageError> {
        self.join()?;
        if self.file.end() > 0 {
            self.turn()?;
            self.join()?;
        }
        Ok(())
    }

    /// Ends in order: the database contains everything, and records this.
    pub(super) fn close(&mut self) -> Result<(), StorageError> {
        self.apply_all()?;
        let applied = Applied { generation: self.generation, sequence: self.sequence };
        self.disk.end(self.disk.begin()?, applied, Logs::Empty)?;
        for file in [Some(&self.file), self.next.as_ref()].into_iter().flatten() {
            file.shorten(self.kept).at(self.dir.path())?;
        }
        Ok(())
    }
}

impl Drop for Journal {
    /// No other process may use the directory while a checkpoint is running.
    fn drop(&mut self) {
        if let Err(e) = self.join() {
            tracing::error!("{e}");
        }
    }
}

fn start(dir: &LogDir, generation: u64, file: &LogFile) -> Result<Wal<LogFile>, StorageError> {
    let log = Wal::with_store_and_config(file.clone(), strict());
    log.map_err(|e| dir.failure(generation, e))
}

#[cfg(test)]
impl Journal {
    /// Waits for the background work without hurrying it.
    pub(super) fn wait(&mut self) {
        while self.background.as_ref().is_some_and(|background| !background.is_finished()) {
            std::thread::yield_now();
        }
        self.join().unwrap();
    }

    /// Sets the length, in bytes, at which a log is replaced by the next one.
    pub(super) fn set_long(&mut self, long: u64) {
        (self.long, self.kept) = (long, long);
    }

    /// The name of the file of the next generation.
    pub(super) fn next_file(&self) -> &'static str {
        super::files::LOGS[(self.generation as usize + 1) % 2]
    }
}
