//! The log files, and the commits in them that are not in the database.

pub(super) mod acknowledged;
pub(super) mod file;
mod present;
pub(super) mod record;

use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use rustix::fs::{StatVfs, fstatvfs};
use wal_db::{MemStore, OpenPolicy, Wal, WalConfig, WalError, WalStore};

use self::file::{CHUNK, LogFile};
use self::present::Fault;
use self::record::CommitPosition;
use super::batch::Outcome;
use super::disk::Wrap;
use super::error::{IoResultExt, StorageError};
use super::files::{ACKNOWLEDGED, LOGS};
use crate::files::{Access, Directory};

/// The lowest number of a generation: far from the zeros of a file that was never written.
const FIRST_GENERATION: u64 = 1 << 60;

/// How many times the space of a log must be free for a file to grow in advance: with less, the rest is left for
/// commits and for the database.
const SPACE_FACTOR: u64 = 4;

/// The length, in bytes, at which a log is replaced by the next one, and its largest share of the file system: one part
/// in this many.
const LOG_LENGTH: u64 = 16 * 1024 * 1024;
const LOG_SHARE: u64 = 64;

/// The longest file that is read as a log, in bytes: several times the length of a log, with the largest commit and the
/// space allocated in advance.
const MAX_FILE_LENGTH: u64 = 512 * 1024 * 1024;

/// How far the history is in the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// The first generation that is not in the database.
    pub(super) generation: u64,
    /// The last commit that is in the database.
    pub(super) sequence: u64,
}

/// The files of a data directory that contain commits.
#[derive(Clone)]
pub(super) struct LogDir {
    files: Directory,
    wrap: Wrap,
}

/// The commits in the logs that are not in the database.
#[derive(Default)]
pub(super) struct Tail {
    pub(super) outcome: Outcome,
    /// The last commit of all.
    pub(super) sequence: u64,
}

impl Applied {
    /// The position after the database has all commits in the logs up to this one: the next two generations, of which
    /// no file contains a commit.
    pub(super) fn next(self, sequence: u64) -> Self {
        Self { generation: self.generation + 2, sequence }
    }

    /// The position in a new directory: a random generation, so that it cannot be guessed.
    pub(super) fn first() -> io::Result<Self> {
        Ok(Self {
            generation: FIRST_GENERATION + getrandom::u64()? % FIRST_GENERATION,
            sequence: 0,
        })
    }
}

impl LogDir {
    pub(super) fn new(files: Directory, wrap: Wrap) -> Self {
        Self { files, wrap }
    }

    pub(super) fn path(&self) -> &Path {
        self.files.path()
    }

    /// The path of the file of a generation.
    pub(super) fn log(&self, generation: u64) -> PathBuf {
        log_in(self.path(), generation)
    }

    pub(super) fn acknowledged(&self) -> PathBuf {
        self.files.path_of(ACKNOWLEDGED)
    }

    /// Opens the file of a generation.
    pub(super) fn open_log(
        &self,
        generation: u64,
        access: Access,
    ) -> Result<Box<dyn StorageBackend>, StorageError> {
        self.open(name_of(generation), access)
    }

    /// Opens the file for the numbers of commits.
    pub(super) fn open_acknowledged(
        &self,
        access: Access,
    ) -> Result<Box<dyn StorageBackend>, StorageError> {
        self.open(ACKNOWLEDGED, access)
    }

    fn open(&self, name: &str, access: Access) -> Result<Box<dyn StorageBackend>, StorageError> {
        let file = self.files.open_file(name, access);
        file.and_then(|file| (self.wrap)(file)).must_exist(&self.files.path_of(name))
    }

    /// Creates the log files and the file for the numbers of commits, in a directory without them.
    ///
    /// Before `FORMAT` records that they exist: afterwards, a missing one is damage.
    pub(super) fn prepare(&self) -> Result<(), StorageError> {
        for name in LOGS.into_iter().chain([ACKNOWLEDGED]) {
            self.open(name, Access::Create)?;
        }
        self.files.sync().at(self.path())
    }

    /// Records the number of the last commit of all, durably.
    ///
    /// After the database contains it durably: a commit that was read from a log may never have been synced. If a power
    /// cut lost it but kept the number, it would be reported as missing.
    pub(super) fn acknowledge(&self, number: u64) -> Result<(), StorageError> {
        let file = self.open_acknowledged(Access::Write)?;
        acknowledged::write_twice(&*file, number).at(&self.acknowledged())
    }

    /// Reads the commits in the logs that are not in the database, without changing anything.
    pub(super) fn read(&self, applied: Applied) -> Result<Tail, StorageError> {
        let mut history = History::after(applied);
        let mut end = self.log(applied.generation);
        for generation in [applied.generation, applied.generation + 1] {
            let path = self.log(generation);
            let mut bytes = self.contents(generation)?;
            let present = present::length(&bytes, generation).map_err(|fault| match fault {
                Fault::Library(e) => sort_error(&path, e),
                Fault::Damage(detail) => StorageError::damaged(&path, detail),
            })?;

            // The history does not end in an empty file.
            if present > 0 {
                bytes.truncate(present);
                history.add(&path, generation, MemStore::from_bytes(bytes))?;
                end = path;
            }
        }
        self.end_of(history, &end)
    }

    /// The same after an orderly end: the logs contain no commits.
    pub(super) fn read_nothing(&self, applied: Applied) -> Result<Tail, StorageError> {
        for name in LOGS {
            self.open(name, Access::Read)?;
        }
        self.end_of(History::after(applied), &self.log(applied.generation))
    }

    fn contents(&self, generation: u64) -> Result<Vec<u8>, StorageError> {
        let path = self.log(generation);
        let file = self.open_log(generation, Access::Read)?;
        if file.len().at(&path)? > MAX_FILE_LENGTH {
            return Err(StorageError::damaged(&path, "it is longer than a log can be"));
        }
        file::read(&*file).at(&path)
    }

    /// The commits that were read, if none is missing.
    fn end_of(&self, history: History, end: &Path) -> Result<Tail, StorageError> {
        history.reaches(self.last_acknowledged()?, end)?;
        Ok(Tail { outcome: history.outcome, sequence: history.sequence })
    }

    /// The number of the last acknowledged commit, as far as the disk knows.
    fn last_acknowledged(&self) -> Result<u64, StorageError> {
        let path = self.acknowledged();
        let file = self.open_acknowledged(Access::Read)?;
        let newest = acknowledged::read(&*file).at(&path)?;
        newest.ok_or_else(|| StorageError::damaged(&path, "it contains no number"))
    }

    /// Whether the disk has enough free space for files to grow in advance.
    pub(super) fn has_room(&self, length: u64) -> bool {
        let free = |found: StatVfs| found.f_bavail.saturating_mul(found.f_frsize);
        fstatvfs(self.files.handle()).is_ok_and(|found| free(found) >= SPACE_FACTOR * length)
    }

    /// The length at which a log is replaced by the next one: less on a small file system, so that both logs and the
    /// checkpoint for which they wait leave most of it to the database.
    pub(super) fn long(&self) -> u64 {
        let whole = |found: StatVfs| found.f_blocks.saturating_mul(found.f_frsize);
        let whole = fstatvfs(self.files.handle()).map_or(u64::MAX, whole);
        LOG_LENGTH.min(whole / LOG_SHARE).max(CHUNK)
    }

    /// Maps an error of the log library.
    pub(super) fn failure(&self, generation: u64, error: WalError) -> StorageError {
        sort_error(&self.log(generation), error)
    }
}

fn log_in(directory: &Path, generation: u64) -> PathBuf {
    directory.join(name_of(generation))
}

fn name_of(generation: u64) -> &'static str {
    LOGS[(generation % 2) as usize]
}

fn sort_error(path: &Path, error: WalError) -> StorageError {
    match error {
        WalError::Io { source, .. } => StorageError::io(path, source),
        other => StorageError::damaged(path, other),
    }
}

/// Damage is an error: only a commit at the very end may be incomplete, and is then dropped.
pub(super) fn strict() -> WalConfig {
    WalConfig::new().with_open_policy(OpenPolicy::Strict)
}

/// A series of commits.
pub(super) struct History {
    pub(super) outcome: Outcome,
    pub(super) sequence: u64,
}

impl History {
    pub(super) fn after(applied: Applied) -> Self {
        Self { outcome: Outcome::default(), sequence: applied.sequence }
    }

    /// Adds the commits in a copy of a log; an incomplete commit at its end is left out.
    fn add(
        &mut self,
        path: &Path,
        generation: u64,
        log: impl WalStore,
    ) -> Result<(), StorageError> {
        let log = Wal::with_store_and_config(log, strict()).map_err(|e| sort_error(path, e))?;
        self.add_in_portions(path, generation, &log, |_| Ok(()))
    }

    /// Refuses a log that ends before the last commit that was acknowledged from it.
    pub(super) fn reaches(&self, acknowledged: u64, path: &Path) -> Result<(), StorageError> {
        if acknowledged <= self.sequence {
            return Ok(());
        }
        let detail = format!(
            "it ends with commit {}, but commit {acknowledged} was acknowledged",
            self.sequence
        );
        Err(StorageError::damaged(path, detail))
    }

    /// Adds the commits of a log, and calls back with the outcome after each.
    pub(super) fn add_in_portions(
        &mut self,
        path: &Path,
        generation: u64,
        log: &Wal<impl WalStore>,
        mut each: impl FnMut(&mut Outcome) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let failed = |e| sort_error(path, e);
        for record in log.iter().map_err(failed)? {
            let record = record.map_err(failed)?;
            let place = record::decode(record.data(), |change| self.outcome.add(change));
            let expected = CommitPosition { generation, sequence: self.sequence + 1 };
            if place != Some(expected) {
                let detail = format!("commit {} is missing at its place", expected.sequence);
                return Err(StorageError::damaged(path, detail));
            }
            self.sequence += 1;
            each(&mut self.outcome)?;
        }
        Ok(())
    }
}

/// The commits that are not in the database, while commits continue: everything that was acknowledged before the call.
/// No checkpoint may be running.
pub(super) fn read_live(
    dir: &Path,
    logs: &[(u64, LogFile)],
    applied: Applied,
) -> Result<Outcome, StorageError> {
    let mut history = History::after(applied);
    for (generation, log) in logs {
        let path = log_in(dir, *generation);
        // Read before the contents, which then include it.
        let acknowledged = log.last_commit();
        let contents = log.contents().at(&path)?;
        history.add(&path, *generation, MemStore::from_bytes(contents))?;
        history.reaches(acknowledged, &path)?;
    }
    Ok(history.outcome)
}

/// The logs that are not in the database yet, oldest first.
pub(super) type Live = Vec<(u64, LogFile)>;
