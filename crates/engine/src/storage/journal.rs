//! The commits that are not in the database yet.
//!
//! A commit to the database writes several pages all over its file. A commit to a log is one write
//! at its end, so it is acknowledged from there, and the database follows in the background
//! (`docs/decisions/0006-log-before-database.md`). Logs are numbered by generation, and have two files in
//! turn (`docs/decisions/0017-logs-that-are-used-again.md`):
//!
//! 1. Commits go to the log of the present generation `N`, from the beginning of its file.
//! 2. When that is long enough and the last checkpoint is over, they go to `N+1` in the other file, and
//!    a checkpoint begins.
//! 3. The checkpoint writes the last state of each record in log `N` into the database in one
//!    transaction, which also says that generation `N+1` is the next to be applied.
//! 4. From then on log `N` counts no more. Its file is written over by log `N+2`, as it is: `present` tells
//!    their commits apart.
//!
//! A start applies what the logs hold, in order, and begins with two others. `acknowledged` holds
//! the number of the last commit, so that a log that lost its end is not taken for one that was
//! cut short while it was written.

mod file;
mod present;
mod record;

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use redb::StorageBackend;
use wal_db::{MemStore, OpenPolicy, Wal, WalConfig, WalError, WalStore};

use self::file::{CHUNK, LogFile};
use self::present::Fault;
use self::record::Place;
use super::activity::{Activity, During, SyncTime};
use super::disk::Wrap;
use super::{Batch, Logs, OpenDisk, Outcome, StorageError};

/// From which length on, in bytes, a log gives way to the next.
const LONG: u64 = 16 * 1024 * 1024;
/// How many times as long it may get while the checkpoint before is not over.
const PATIENCE: u64 = 4;
/// How much of its first file a directory fills before the other one is made as long as a log gets: what
/// is used little stays small.
const START_OF_GROWTH: u64 = CHUNK / 2;
/// How many times as much room as a log takes must be left for a file to grow before it has to: where
/// there is less, what is left is for commits and for the database.
const ROOM: u64 = 4;
/// Commits beyond this size, in bytes, go to the database at once.
const LARGE: usize = 32 * 1024 * 1024;

/// The files of the logs: of even generations, and of odd ones.
const FILES: [&str; 2] = ["commits.a", "commits.b"];
/// What files of format 2 begin with, before the generation's number.
const PREFIX: &str = "commits.";
/// From where on generations are numbered since format 3; before, from 0.
const FIRST: u64 = 1 << 60;
const ACKNOWLEDGED: &str = "acknowledged";

/// Up to where the history is in the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// The first generation that is not.
    pub(super) generation: u64,
    /// The last commit that is.
    pub(super) sequence: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Create,
}

/// The files of a data directory that hold commits.
#[derive(Clone)]
pub(super) struct LogDir {
    path: PathBuf,
    /// The directory itself: its path may come to lead to another engine's.
    handle: Arc<File>,
    wrap: Wrap,
}

/// What the logs hold beyond the database.
#[derive(Default)]
pub(super) struct Tail {
    pub(super) outcome: Outcome,
    /// The last commit of all.
    pub(super) sequence: u64,
}

impl Applied {
    /// What follows when the database has all that the logs hold, up to this commit: two generations
    /// that no file has a commit of.
    pub(super) fn next(self, sequence: u64) -> Self {
        Self { generation: self.generation + 2, sequence }
    }

    /// What follows in a directory that had no numbers of this kind: any, as nobody is to guess them.
    pub(super) fn first(self, sequence: u64) -> io::Result<Self> {
        // A start that was cut short may have chosen one.
        let generation = match self.generation >= FIRST {
            true => self.generation,
            false => FIRST + getrandom::u64()? % FIRST,
        };
        Ok(Self { generation, sequence })
    }
}

impl LogDir {
    pub(super) fn new(path: &Path, wrap: Wrap) -> Result<Self, StorageError> {
        let handle = File::open(path).map_err(|e| StorageError::io(path, e))?;
        Ok(Self { path: path.to_path_buf(), handle: Arc::new(handle), wrap })
    }

    /// The file of a generation.
    fn log(&self, generation: u64) -> PathBuf {
        log_in(&self.path, generation)
    }

    /// The file that a generation had in format 2.
    fn numbered(&self, generation: u64) -> PathBuf {
        self.path.join(format!("{PREFIX}{generation}"))
    }

    fn acknowledged(&self) -> PathBuf {
        self.path.join(ACKNOWLEDGED)
    }

    /// The generations that have a file of format 2, in order.
    fn generations(&self) -> Result<Vec<u64>, StorageError> {
        let failed = |e| StorageError::io(&self.path, e);
        let mut found = Vec::new();
        for entry in self.path.read_dir().map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            found.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn StorageBackend>, StorageError> {
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read).create(access == Access::Create);
        options.truncate(false).mode(0o600);
        let opened = options.open(path).and_then(|file| (self.wrap)(file));
        opened.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => StorageError::damaged(path, "the file is missing"),
            _ => StorageError::io(path, e),
        })
    }

    /// Makes the files of the logs and the one for the numbers of commits, in a directory that has
    /// none.
    ///
    /// Before `FORMAT` says that they are there: a missing one is damage.
    pub(super) fn prepare(&self) -> Result<(), StorageError> {
        for name in FILES.into_iter().chain([ACKNOWLEDGED]) {
            self.open(&self.path.join(name), Access::Create)?;
        }
        self.sync_names()
    }

    /// Writes down the number of the last commit of all, durably.
    ///
    /// After the database has it for good: one that was read from a log may never have been synced,
    /// and would be missed if a power cut took it away but left the number.
    pub(super) fn acknowledge(&self, number: u64) -> Result<(), StorageError> {
        let path = self.acknowledged();
        let file = self.open(&path, Access::Write)?;
        // One after the other, so that at any time one is whole.
        let written = write_number(&*file, number)
            .and_then(|()| file.write(number_offset(number + 1), &number_bytes(number)))
            .and_then(|()| file.sync_data());
        written.map_err(|e| StorageError::io(&path, e))
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        self.handle.sync_all().map_err(|e| StorageError::io(&self.path, e))
    }

    /// Reads what the logs hold beyond the database, and changes nothing.
    pub(super) fn read(&self, applied: Applied) -> Result<Tail, StorageError> {
        let mut history = History::after(applied);
        let mut end = self.log(applied.generation);
        for generation in [applied.generation, applied.generation + 1] {
            let path = self.log(generation);
            let mut bytes = self.contents(&path)?;
            let present = present::length(&bytes, generation).map_err(|fault| match fault {
                Fault::Library(e) => sort_error(&path, e),
                Fault::Damage(detail) => StorageError::damaged(&path, detail),
            })?;
            if present > 0 {
                bytes.truncate(present);
                history.add(&path, generation, MemStore::from_bytes(bytes))?;
                end = path;
            }
        }
        self.end_of(history, &end)
    }

    /// The same after an orderly end: the logs hold nothing.
    pub(super) fn read_nothing(&self, applied: Applied) -> Result<Tail, StorageError> {
        for name in FILES {
            self.open(&self.path.join(name), Access::Read)?;
        }
        self.end_of(History::after(applied), &self.log(applied.generation))
    }

    /// The same for a directory of format 2, where each generation has a file of its own.
    pub(super) fn read_numbered(&self, applied: Applied) -> Result<Tail, StorageError> {
        let generations = self.generations()?;
        let last = generations.last().copied().unwrap_or_default().max(applied.generation);
        // A start that was cut short may have brought everything into the database already.
        let has_any = applied.generation < FIRST && last < FIRST;
        let mut history = History::after(applied);
        let mut end = self.numbered(applied.generation);
        for generation in (applied.generation..=last).take_while(|_| has_any) {
            let path = self.numbered(generation);
            let bytes = self.contents(&path)?;
            if !bytes.is_empty() {
                history.add(&path, generation, MemStore::from_bytes(bytes))?;
                end = path;
            }
        }
        self.end_of(history, &end)
    }

    fn contents(&self, path: &Path) -> Result<Vec<u8>, StorageError> {
        let file = self.open(path, Access::Read)?;
        file::read(&*file).map_err(|e| StorageError::io(path, e))
    }

    /// What was read, if it goes as far as it should.
    fn end_of(&self, history: History, end: &Path) -> Result<Tail, StorageError> {
        history.reaches(self.last_acknowledged()?, end)?;
        Ok(Tail { outcome: history.outcome, sequence: history.sequence })
    }

    /// The number of the last commit that was acknowledged, as far as the disk knows.
    fn last_acknowledged(&self) -> Result<u64, StorageError> {
        let path = self.acknowledged();
        let file = self.open(&path, Access::Read)?;
        let mut newest = None;
        for offset in [0, NUMBER_DISTANCE] {
            let mut bytes = [0; 16];
            match file.read(offset, &mut bytes) {
                Ok(()) => newest = newest.max(parse_number(bytes)),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(e) => return Err(StorageError::io(&path, e)),
            }
        }
        newest.ok_or_else(|| StorageError::damaged(&path, "it holds no number"))
    }

    /// Whether the disk has so much room that files may grow before they have to.
    fn has_room(&self, length: u64) -> bool {
        let free = |found: rustix::fs::StatVfs| found.f_bavail.saturating_mul(found.f_frsize);
        rustix::fs::fstatvfs(&*self.handle).is_ok_and(|found| free(found) >= ROOM * length)
    }

    /// Removes what format 2 has left.
    fn remove_numbered(&self) -> Result<(), StorageError> {
        for old in self.generations()? {
            let path = self.numbered(old);
            std::fs::remove_file(&path).map_err(|e| StorageError::io(&path, e))?;
        }
        Ok(())
    }

    /// Sorts an error of the log library.
    fn failure(&self, generation: u64, error: WalError) -> StorageError {
        sort_error(&self.log(generation), error)
    }
}

fn log_in(directory: &Path, generation: u64) -> PathBuf {
    directory.join(FILES[(generation % 2) as usize])
}

fn sort_error(path: &Path, error: WalError) -> StorageError {
    match error {
        WalError::Io { source, .. } => StorageError::io(path, source),
        other => StorageError::damaged(path, other),
    }
}

/// The number has two places that are written in turn, each in a sector of its own: while one is
/// written, the other is whole.
const NUMBER_DISTANCE: u64 = 4096;

fn number_offset(number: u64) -> u64 {
    number % 2 * NUMBER_DISTANCE
}

fn write_number(file: &dyn StorageBackend, number: u64) -> io::Result<()> {
    file.write(number_offset(number), &number_bytes(number))
}

/// A number and its complement: neither an empty sector nor half a write passes for one.
fn number_bytes(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&(!number).to_le_bytes());
    bytes
}

fn parse_number(bytes: [u8; 16]) -> Option<u64> {
    let [number, complement] = [&bytes[..8], &bytes[8..]]
        .map(|half| half.try_into().map(u64::from_le_bytes).unwrap_or_default());
    (number == !complement).then_some(number)
}

/// Damage is refused: only a commit at the very end may be missing in part, and is then dropped.
fn strict() -> WalConfig {
    WalConfig::new().with_open_policy(OpenPolicy::Strict)
}

/// Commits, one after the other.
struct History {
    outcome: Outcome,
    sequence: u64,
}

/// How much of the outcome of a log goes into the database at a time, in bytes: memory that a thread
/// has had it does not give back.
const PORTION: usize = if cfg!(test) { 2 * 1024 } else { 1024 * 1024 };

impl History {
    fn after(applied: Applied) -> Self {
        Self { outcome: Outcome::default(), sequence: applied.sequence }
    }

    /// Adds what the copy of a log holds; a commit that was cut short at its end is left out.
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
    fn reaches(&self, acknowledged: u64, path: &Path) -> Result<(), StorageError> {
        if acknowledged <= self.sequence {
            return Ok(());
        }
        let detail = format!(
            "it ends with commit {}, but commit {acknowledged} was acknowledged",
            self.sequence
        );
        Err(StorageError::damaged(path, detail))
    }

    /// Adds what a log holds, and shows the outcome after each commit.
    fn add_in_portions(
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
            let expected = Place { generation, sequence: self.sequence + 1 };
            if place != Some(expected) {
                let detail = format!("commit {} is not where it should be", expected.sequence);
                return Err(StorageError::damaged(path, detail));
            }
            self.sequence += 1;
            each(&mut self.outcome)?;
        }
        Ok(())
    }
}

/// The logs of an open directory, and what is done about them in the background.
pub(super) struct Journal {
    dir: LogDir,
    disk: Arc<OpenDisk>,
    log: Wal<LogFile>,
    file: LogFile,
    generation: u64,
    sequence: u64,
    /// The file of the next generation, unless it is still needed in the background.
    next: Option<LogFile>,
    /// A checkpoint, or the growth of the next file.
    background: Option<JoinHandle<Result<LogFile, StorageError>>>,
    acknowledged: Box<dyn StorageBackend>,
    /// Whether each commit is synced.
    sync: bool,
    /// What the background is at.
    activity: Activity,
    /// From which length on, in bytes, a log gives way to the next.
    long: u64,
    /// How long the files are to be when they are not written to.
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
        dir.remove_numbered()?;
        let open = |generation| {
            let path = dir.log(generation);
            LogFile::unused(dir.open(&path, Access::Write)?).map_err(|e| StorageError::io(&path, e))
        };
        let (file, next) = (open(generation)?, open(generation + 1)?);
        let log = start(&dir, generation, &file)?;
        let acknowledged = dir.open(&dir.acknowledged(), Access::Write)?;
        *disk.lock_live() = vec![(generation, file.clone())];
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
            activity: Activity::default(),
            long: LONG,
            kept: LONG,
        })
    }

    /// From which length on, in bytes, a log gives way to the next.
    #[cfg(test)]
    pub(super) fn set_long(&mut self, long: u64) {
        (self.long, self.kept) = (long, long);
    }

    /// Has the files take no room in the end: the directory is written once, and put away.
    pub(super) fn keep_nothing(&mut self) {
        self.kept = 0;
    }

    /// Writes a commit, and returns when it is as durable as promised.
    pub(super) fn commit(&mut self, batch: &mut Batch) -> Result<Option<SyncTime>, StorageError> {
        self.take_turns(batch.encoded().len() as u64)?;
        let mut sync = None;
        let place = Place { generation: self.generation, sequence: self.sequence + 1 };
        if batch.encoded().len() > LARGE {
            self.apply_all()?;
            let applied = Applied { generation: self.generation, sequence: place.sequence };
            // Otherwise a snapshot could lack it and have the next one, which goes to the log.
            let _no_snapshot = self.disk.lock_recycling();
            self.disk.apply(&(&*batch).into(), applied)?;
        } else {
            let failed = |e| self.dir.failure(self.generation, e);
            let append = |record: &[u8]| self.log.append(record).map_err(failed);
            let allocated = self.file.allocated();
            let _ = record::encode(place, batch, append)?;
            if self.sync {
                let (before, start) = (self.activity.now(), Instant::now());
                self.log.sync().map_err(failed)?;
                let during = match self.file.allocated() == allocated {
                    true => before.max(self.activity.now()),
                    false => During::Preparation,
                };
                sync = Some(SyncTime { during, took: start.elapsed() });
            }
            self.file.commit(place.sequence);
        }
        self.sequence = place.sequence;
        let written = write_number(&*self.acknowledged, self.sequence);
        written.map_err(|e| StorageError::io(&self.dir.acknowledged(), e))?;
        Ok(sync)
    }

    /// Whether the log is to give way to the next, which may have to wait for a checkpoint.
    pub(super) fn is_full(&self) -> bool {
        self.file.end() >= self.long
    }

    /// Whether something is done in the background, as far as is known: its end is noticed by a commit.
    pub(super) fn has_background(&self) -> bool {
        self.background.is_some()
    }

    /// Goes on to the next log if it is time, before a commit of so many bytes.
    fn take_turns(&mut self, bytes: u64) -> Result<(), StorageError> {
        // Not only when its log is needed: if it failed, nothing more is acknowledged.
        if self.background.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join()?;
        }
        let (end, long) = (self.file.end(), self.long);
        let is_due = end > 0 && self.would_grow(bytes);
        if end >= PATIENCE * long || (is_due && self.background.is_none()) {
            self.join()?;
            return self.turn();
        }
        // On a full disk the other file may have room, once its log is in the database.
        if end > 0 && bytes <= LARGE as u64 && !self.has_room_for(bytes)? {
            self.join()?;
            return self.turn();
        }
        let next = self.next.as_ref().filter(|_| end >= START_OF_GROWTH);
        match next.is_some_and(|next| next.can_grow(self.kept)) {
            true => self.grow_next(),
            false => Ok(()),
        }
    }

    /// Up to where a commit of so many bytes goes, or a little less.
    fn end_after(&self, bytes: u64) -> u64 {
        // What the library and the journal put around it is far less.
        self.file.end() + bytes + 1024
    }

    fn has_room_for(&self, bytes: u64) -> Result<bool, StorageError> {
        let room = self.file.has_room_for(self.end_after(bytes));
        room.map_err(|e| StorageError::io(&self.dir.log(self.generation), e))
    }

    /// Whether this commit would make the file longer than a log gets, or longer than it is while the
    /// other file has room.
    fn would_grow(&self, bytes: u64) -> bool {
        let needed = self.end_after(bytes);
        let allocated = self.file.allocated();
        let has_room = |next: &LogFile| next.allocated() > allocated;
        needed > self.long || (needed > allocated && self.next.as_ref().is_some_and(has_room))
    }

    /// Waits for what is under way in the background, if anything is.
    pub(super) fn join(&mut self) -> Result<(), StorageError> {
        let Some(background) = self.background.take() else {
            return Ok(());
        };
        self.disk.pace.hurry(true);
        let ended = background.join();
        self.disk.pace.hurry(false);
        let file = ended.unwrap_or_else(|_| {
            let file = self.dir.log(self.generation.saturating_sub(1));
            Err(StorageError::damaged(&file, "writing it into the database ended in a panic"))
        })?;
        self.next = Some(file);
        Ok(())
    }

    /// Goes on to the next log, and begins the checkpoint of this one. There must be none.
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

    /// Makes the next file as long as a log gets.
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
            activity.begin(During::Preparation);
            next.grow(kept, &disk.pace).map_err(|e| StorageError::io(&path, e))?;
            activity.begin(During::Nothing);
            Ok(next)
        })
    }

    /// Does something in the background that ends with the file of the next log.
    fn run(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<LogFile, StorageError> + Send + 'static,
    ) -> Result<(), StorageError> {
        let thread = thread::Builder::new().name(name.to_owned());
        let running = thread.spawn(move || work().inspect_err(|e| tracing::error!("{e}")));
        self.background = Some(running.map_err(|e| StorageError::io(&self.dir.path, e))?);
        Ok(())
    }

    /// Brings everything into the database.
    fn apply_all(&mut self) -> Result<(), StorageError> {
        self.join()?;
        if self.file.end() > 0 {
            self.turn()?;
            self.join()?;
        }
        Ok(())
    }

    /// An orderly end: the database has everything, and knows that.
    pub(super) fn close(&mut self) -> Result<(), StorageError> {
        self.apply_all()?;
        let applied = Applied { generation: self.generation, sequence: self.sequence };
        self.disk.end(self.disk.begin()?, applied, Logs::Empty)?;
        for file in [Some(&self.file), self.next.as_ref()].into_iter().flatten() {
            file.shorten(self.kept).map_err(|e| StorageError::io(&self.dir.path, e))?;
        }
        Ok(())
    }
}

impl Drop for Journal {
    /// Nobody else may use the directory while a checkpoint is under way.
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

/// The way of a full log into the database.
struct Checkpoint {
    dir: LogDir,
    disk: Arc<OpenDisk>,
    /// As it was written: to open it anew would be to read it once more.
    log: Wal<LogFile>,
    file: LogFile,
    generation: u64,
    /// Its last commit.
    sequence: u64,
    activity: Activity,
    /// How long its file is to be.
    kept: u64,
}

impl Checkpoint {
    /// Returns the file for the generation after the next.
    #[tracing::instrument(level = "debug", name = "checkpoint", skip_all)]
    fn run(self) -> Result<LogFile, StorageError> {
        self.activity.begin(During::Checkpoint);
        self.disk.pace.set_background(true);
        let applied = self.apply();
        self.disk.pace.set_background(false);
        applied?;
        self.file.reuse();

        self.activity.begin(During::Preparation);
        let path = self.dir.log(self.generation);
        let kept = if self.dir.has_room(self.kept) { self.kept } else { 0 };
        let grown = self.file.grow(kept, &self.disk.pace);
        grown.map_err(|e| StorageError::io(&path, e))?;
        self.activity.begin(During::Nothing);
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

/// What is committed beyond the database, while commits go on: all that was acknowledged before
/// the call. No checkpoint may be under way.
pub(super) fn read_live(
    dir: &Path,
    logs: &[(u64, LogFile)],
    applied: Applied,
) -> Result<Outcome, StorageError> {
    let mut history = History::after(applied);
    for (generation, log) in logs {
        let path = log_in(dir, *generation);
        // Before its contents, which have it then.
        let acknowledged = log.last_commit();
        let contents = log.contents().map_err(|e| StorageError::io(&path, e))?;
        history.add(&path, *generation, MemStore::from_bytes(contents))?;
        history.reaches(acknowledged, &path)?;
    }
    Ok(history.outcome)
}

/// The logs that are not in the database yet, oldest first.
pub(super) type Live = Vec<(u64, LogFile)>;

#[cfg(test)]
pub(super) mod tests {
    //! What tests of the storage have to know.

    use super::*;

    /// From where on generations are numbered.
    pub(in crate::storage) fn first_generation() -> u64 {
        FIRST
    }

    /// A commit as it stands in a log.
    pub(in crate::storage) fn encoded(generation: u64, sequence: u64, mut batch: Batch) -> Vec<u8> {
        record::encode(Place { generation, sequence }, &mut batch, <[u8]>::to_vec)
    }

    impl Journal {
        /// Waits for what is under way in the background, and does not hurry it.
        pub(in crate::storage) fn wait(&mut self) {
            while self.background.as_ref().is_some_and(|background| !background.is_finished()) {
                thread::yield_now();
            }
            self.join().unwrap();
        }

        pub(in crate::storage) fn generation(&self) -> u64 {
            self.generation
        }

        /// The name of the file of the next generation.
        pub(in crate::storage) fn next_file(&self) -> &'static str {
            FILES[(self.generation as usize + 1) % 2]
        }
    }
}
