//! Where the engine's state survives.
//!
//! The tree lives in memory; here is its copy on disk: a `redb` database, and in front of it a log
//! of the commits that it does not have yet (see `docs/decisions/0001-storage.md` and
//! `docs/decisions/0006-log-before-database.md`). One call of [`Storage::commit`] is one group
//! commit: all of a batch is there after a crash, or none of it. Once anything has failed, nothing
//! more is written: after a failed sync nobody knows what the disk holds until it is read back.

mod activity;
mod batch;
mod dir;
mod disk;
mod error;
mod journal;
mod mark;
mod overlay;
mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend,
    TableDefinition, TableError, WriteTransaction,
};

pub(crate) use self::activity::{During, SyncTime};
use self::batch::Outcome;
pub(crate) use self::batch::{Batch, Table};
use self::dir::{DataDir, State};
pub(crate) use self::dir::{OwnedDirectory, create_private, is_data, sync_parent};
use self::disk::{DiskFile, Pace, Wrap};
pub use self::error::StorageError;
use self::journal::{Applied, Journal, Live, LogDir, Tail};
pub(crate) use self::mark::{QuietTime, mark_restored, remove_mark, restored_mark};
pub(crate) use self::snapshot::{Draft, Snapshots};

/// How much a reply promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// On the disk: survives a power cut.
    #[default]
    Sync,
    /// With the operating system: survives the end of the process, even by `kill -9`. After a
    /// power cut the engine most often finds the directory damaged, and says so, rather than an
    /// earlier state: for use where starting empty is then acceptable.
    Os,
    /// In this process only: gone when it ends. Needs no directory.
    Memory,
}

impl Durability {
    fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Os => "os",
            Durability::Memory => "memory",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no [`Durability`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("durability `{0}` is unknown: choose sync, os or memory")]
pub struct UnknownDurability(String);

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(word: &str) -> Result<Durability, UnknownDurability> {
        [Durability::Sync, Durability::Os, Durability::Memory]
            .into_iter()
            .find(|durability| durability.name() == word)
            .ok_or_else(|| UnknownDurability(word.to_owned()))
    }
}

/// The memory that the database library may use for pages. Small, as the tree holds every record
/// anyway and pages are read back only while they are being changed.
const CACHE_BYTES: usize = 1024 * 1024;

/// The durable copy of the engine's state.
pub(crate) struct Storage {
    /// `None` for [`Durability::Memory`].
    disk: Option<Disk>,
}

impl Storage {
    /// Opens the database in `dir`, or creates both, and checks every page of what is there.
    ///
    /// `dir` is ignored for [`Durability::Memory`] and needed for the others.
    pub(crate) fn open(dir: Option<&Path>, durability: Durability) -> Result<Self, StorageError> {
        Storage::open_with(dir, durability, disk::plain())
    }

    /// [`Storage::open`] with something in the place of the files.
    fn open_with(
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

    /// Hands every record that was there when it was opened to `visit`, table by table and in the
    /// order of the keys, without holding more than one in memory. The first error ends it.
    pub(crate) fn load<E: From<StorageError>>(
        &self,
        visit: impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.disk.as_ref().map_or(Ok(()), |disk| disk.open.load(visit))
    }

    /// The error for a record that [`Storage::load`] handed over but that makes no sense.
    pub(crate) fn damaged(&self, detail: impl fmt::Display) -> StorageError {
        let file = self.disk.as_ref().map(|disk| disk.open.file.as_path());
        StorageError::damaged(file.unwrap_or(Path::new("memory")), detail)
    }

    /// Applies a group commit as a whole, and returns when it is as durable as promised; and what
    /// its sync took, if it had one of its own.
    ///
    /// After an error, the batch may or may not be found at the next start, and every later
    /// commit fails with [`StorageError::Stopped`].
    pub(crate) fn commit(&mut self, batch: &mut Batch) -> Result<Option<SyncTime>, StorageError> {
        self.disk.as_mut().map_or(Ok(None), |disk| disk.commit(batch))
    }

    /// Whether the next commit may have to wait for a checkpoint.
    pub(crate) fn is_log_full(&self) -> bool {
        self.journal().is_some_and(Journal::is_full)
    }

    /// Whether a checkpoint or the like is under way, which wants the disk as well.
    pub(crate) fn has_background(&self) -> bool {
        self.journal().is_some_and(Journal::has_background)
    }

    /// Has the logs take no room after an orderly end.
    fn keep_no_logs(&mut self) {
        if let Some(journal) = self.disk.as_mut().and_then(|disk| disk.journal.as_mut()) {
            journal.keep_nothing();
        }
    }

    fn journal(&self) -> Option<&Journal> {
        self.disk.as_ref()?.journal.as_ref()
    }

    /// Brings everything into the database. Dropping does so too, but tells nobody if it fails.
    pub(crate) fn close(mut self) -> Result<(), StorageError> {
        self.disk.as_mut().map_or(Ok(()), Disk::close)
    }
}

/// An open database, the log in front of it, and whether it may be written.
struct Disk {
    /// `None` if it is only looked at.
    journal: Option<Journal>,
    open: Arc<OpenDisk>,
    failed: bool,
}

/// An open database with its directory; a backup or a checkpoint that is under way shares it.
struct OpenDisk {
    // Dropped in this order: the directory is given up when the database has been closed.
    database: Database,
    file: PathBuf,
    dir: DataDir,
    /// The logs that are not in the database yet.
    live: Mutex<Live>,
    /// Held while a log or a large commit goes into the database and while a log is used again,
    /// and by those who must see both as they are.
    recycling: Mutex<()>,
    pace: Arc<Pace>,
}

impl Disk {
    fn open(path: &Path, durability: Durability, wrap: Wrap) -> Result<Disk, StorageError> {
        let (dir, state) = DataDir::claim(path)?;
        let logs = LogDir::new(path, wrap.clone())?;
        let file = dir.database();
        let on_disk = wrap(dir.open_database(state)?).map_err(|e| StorageError::io(&file, e))?;
        let (open, _) = OpenDisk::open(dir, on_disk)?;
        let tail = open.read_logs(&logs, state)?;
        let before = open.applied()?;
        let applied = match state {
            State::Existing => before.next(tail.sequence),
            _ => before.first(tail.sequence).map_err(|e| StorageError::io(path, e))?,
        };
        if state != State::Existing {
            logs.prepare()?;
        }
        // Even if it changes nothing: it replaces the record of an orderly end, after which the
        // library would trust the file unchecked.
        open.apply(&tail.outcome, applied)?;
        logs.acknowledge(applied.sequence)?;
        if state != State::Existing {
            open.dir.finish_creation()?;
        }
        let open = Arc::new(open);
        let sync = durability == Durability::Sync;
        let journal = Journal::begin(logs, open.clone(), applied, sync)?;
        Ok(Disk { journal: Some(journal), open, failed: false })
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<Option<SyncTime>, StorageError> {
        let stopped = StorageError::Stopped { path: self.open.dir.path().to_path_buf() };
        if self.failed {
            return Err(stopped);
        }
        if batch.is_empty() {
            return Ok(None);
        }
        self.failed = true; // Holds after a panic, too.
        let sync = self.journal.as_mut().ok_or(stopped)?.commit(batch)?;
        self.failed = false;
        Ok(sync)
    }

    fn close(&mut self) -> Result<(), StorageError> {
        match self.journal.take() {
            Some(mut journal) if !self.failed => journal.close(),
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    /// Nothing is lost if this fails: the next start finds it in the logs.
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            tracing::warn!("{e}");
        }
    }
}

impl OpenDisk {
    fn open(dir: DataDir, file: Box<dyn StorageBackend>) -> Result<(Self, Repairs), StorageError> {
        let path = dir.database();
        let pace = Arc::new(Pace::default());
        let (database, repairs) = open_database(&path, DiskFile { file, pace: pace.clone() })?;
        let (live, recycling) = Default::default();
        Ok((Self { database, file: path, dir, live, recycling, pace }, repairs))
    }

    fn lock_live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_recycling(&self) -> MutexGuard<'_, ()> {
        self.recycling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the logs hold beyond the database.
    fn read_logs(&self, logs: &LogDir, state: State) -> Result<Tail, StorageError> {
        match state {
            State::New | State::WithoutLogs => Ok(Tail::default()),
            State::NumberedLogs => logs.read_numbered(self.applied()?),
            State::Existing if self.has_empty_logs()? => logs.read_nothing(self.applied()?),
            State::Existing => logs.read(self.applied()?),
        }
    }

    /// Whether the last engine has written everything into the database, in an orderly end.
    fn has_empty_logs(&self) -> Result<bool, StorageError> {
        let read = || -> Result<bool, redb::Error> {
            match self.database.begin_read()?.open_table(LOGS_ARE_EMPTY) {
                Err(TableError::TableDoesNotExist(_)) => Ok(false),
                table => Ok(table?.get(())?.is_some()),
            }
        };
        read().map_err(|e| self.failure(e))
    }

    /// Up to where the logs are in the database.
    fn applied(&self) -> Result<Applied, StorageError> {
        let read = || -> Result<Applied, redb::Error> {
            let table = match self.database.begin_read()?.open_table(APPLIED) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Applied::default()),
                table => table?,
            };
            let (generation, sequence) = table.get(())?.map(|v| v.value()).unwrap_or_default();
            Ok(Applied { generation, sequence })
        };
        read().map_err(|e| self.failure(e))
    }

    /// Writes changes from the logs, and up to where they go, in one synced transaction.
    fn apply(&self, outcome: &Outcome, applied: Applied) -> Result<(), StorageError> {
        let changing = self.begin()?;
        self.change(&changing, outcome)?;
        self.end(changing, applied, Logs::InUse)
    }

    /// Begins such a transaction: dropping it leaves the database as it was.
    fn begin(&self) -> Result<WriteTransaction, StorageError> {
        self.database.begin_write().map_err(|e| self.failure(e))
    }

    fn change(&self, changing: &WriteTransaction, outcome: &Outcome) -> Result<(), StorageError> {
        let change = || -> Result<(), redb::Error> {
            for (table, changes) in outcome.sorted() {
                let mut table = changing.open_table(definition(table))?;
                for (key, value) in changes {
                    match value {
                        Some(value) => table.insert(key, value)?,
                        None => table.remove(key)?,
                    };
                }
            }
            Ok(())
        };
        change().map_err(|e| self.failure(e))
    }

    fn end(
        &self,
        changing: WriteTransaction,
        applied: Applied,
        logs: Logs,
    ) -> Result<(), StorageError> {
        let Applied { generation, sequence } = applied;
        let end = || -> Result<(), redb::Error> {
            changing.open_table(APPLIED)?.insert((), (generation, sequence))?;
            let mut empty = changing.open_table(LOGS_ARE_EMPTY)?;
            match logs {
                Logs::Empty => drop(empty.insert((), ())?),
                Logs::InUse => drop(empty.remove(())?),
            }
            drop(empty);
            Ok(changing.commit()?)
        };
        end().map_err(|e| self.failure(e))
    }

    fn load<E: From<StorageError>>(
        &self,
        visit: impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let transaction = self.database.begin_read().map_err(|e| self.failure(e))?;
        self.load_from(&transaction, visit)
    }

    /// One transaction: what is written meanwhile is in none of the tables.
    fn load_from<E: From<StorageError>>(
        &self,
        transaction: &ReadTransaction,
        mut visit: impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for table in Table::ALL {
            self.load_table(transaction, table, &mut visit)?;
        }
        Ok(self.dir.check_undisturbed()?)
    }

    fn load_table<E: From<StorageError>>(
        &self,
        transaction: &ReadTransaction,
        table: Table,
        visit: &mut impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(records) = read(transaction, table).map_err(|e| self.failure(e))? else {
            return Ok(());
        };
        for record in records.iter().map_err(|e| self.failure(e))? {
            let (key, value) = record.map_err(|e| self.failure(e))?;
            visit(table, key.value(), value.value())?;
        }
        Ok(())
    }

    fn failure(&self, error: impl Into<redb::Error>) -> StorageError {
        StorageError::database(&self.file, error)
    }
}

/// The table, or `None` if nothing was ever put into it.
fn read(transaction: &ReadTransaction, table: Table) -> Result<Option<Records>, redb::Error> {
    match transaction.open_table(definition(table)) {
        Ok(records) => Ok(Some(records)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

type Records = redb::ReadOnlyTable<&'static [u8], &'static [u8]>;

/// The first generation whose log is not in the database, and the last commit that is.
const APPLIED: TableDefinition<'static, (), (u64, u64)> = TableDefinition::new("applied");

/// Has an entry after an orderly end: the logs need not be read.
const LOGS_ARE_EMPTY: TableDefinition<'static, (), ()> = TableDefinition::new("logs_are_empty");

/// What may be in the logs beyond the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logs {
    /// Commits that are to come.
    InUse,
    /// Nothing, until the next start.
    Empty,
}

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

/// Opens the database; a panic on the way is damage, too. About one in a hundred damaged files
/// ends so: before the check, the library trusts a file that was closed in good order.
fn open_database(
    path: &Path,
    file: impl StorageBackend,
) -> Result<(Database, Repairs), StorageError> {
    catch_unwind(AssertUnwindSafe(|| open_checked(file)))
        .map_err(|_| StorageError::damaged(path, "reading it ended in a panic"))?
        .map_err(|e| StorageError::database(path, e))
}

/// What opening a database had to put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repairs {
    /// It was not closed in good order: a commit that was under way is dropped.
    pub(crate) after_crash: bool,
    /// The list of free pages was wrong.
    pub(crate) free_pages: bool,
}

/// Opens the database and checks all of it: the library does so by itself only after a crash.
fn open_checked(file: impl StorageBackend) -> Result<(Database, Repairs), redb::Error> {
    let checked = Arc::new(AtomicBool::new(false));
    let checking = checked.clone();
    let mut database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .set_repair_callback(move |repair| {
            tracing::info!(done = repair.progress(), "checking the database after a crash");
            checking.store(true, Ordering::Relaxed);
        })
        .create_with_backend(file)?;
    let after_crash = checked.load(Ordering::Relaxed);
    let free_pages = !after_crash && !database.check_integrity()?;
    if free_pages {
        tracing::warn!("the database's list of free pages was wrong and has been rebuilt");
    }
    Ok((database, Repairs { after_crash, free_pages }))
}
