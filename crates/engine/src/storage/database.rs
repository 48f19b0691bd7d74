//! The database of a data directory, as it is open.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_tree::Table;
use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend,
    TableDefinition, TableError, WriteTransaction,
};

use super::batch::{Outcome, TABLES, name};
use super::dir::{DataDir, State};
use super::disk::{DiskFile, WritePace};
use super::error::StorageError;
use super::log::{Applied, Live, LogDir, Tail, read_live};
use super::panics;

/// The memory that the database library may use for pages. Small, as the tree holds every record
/// anyway and pages are read back only while they are being changed.
const CACHE_BYTES: usize = 1024 * 1024;

/// An open database with its directory; a backup or a checkpoint that is under way shares it.
pub(super) struct OpenDisk {
    // Dropped in this order: the directory is given up when the database has been closed.
    pub(super) database: Database,
    pub(super) file: PathBuf,
    pub(super) dir: DataDir,
    /// The logs that are not in the database yet.
    live: Mutex<Live>,
    /// Held while a log or a large commit goes into the database and while a log is used again,
    /// and by those who must see both as they are.
    pub(super) recycling: Mutex<()>,
    pub(super) pace: Arc<WritePace>,
}

impl OpenDisk {
    pub(super) fn open(
        dir: DataDir,
        file: Box<dyn StorageBackend>,
    ) -> Result<(Self, Repairs), StorageError> {
        let path = dir.database();
        let pace = Arc::new(WritePace::default());
        let (database, repairs) = open_database(&path, DiskFile { file, pace: pace.clone() })?;
        let (live, recycling) = Default::default();
        Ok((Self { database, file: path, dir, live, recycling, pace }, repairs))
    }

    pub(super) fn lock_live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_recycling(&self) -> MutexGuard<'_, ()> {
        self.recycling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the logs hold beyond the database.
    pub(super) fn read_logs(&self, logs: &LogDir, state: State) -> Result<Tail, StorageError> {
        match state {
            State::New => Ok(Tail::default()),
            _ if self.has_empty_logs()? => logs.read_nothing(self.applied()?),
            _ => logs.read(self.applied()?),
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
    pub(super) fn applied(&self) -> Result<Applied, StorageError> {
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
    pub(super) fn apply(&self, outcome: &Outcome, applied: Applied) -> Result<(), StorageError> {
        let changing = self.begin()?;
        self.change(&changing, outcome)?;
        self.end(changing, applied, Logs::InUse)
    }

    /// Begins such a transaction: dropping it leaves the database as it was.
    pub(super) fn begin(&self) -> Result<WriteTransaction, StorageError> {
        self.database.begin_write().map_err(|e| self.failure(e))
    }

    pub(super) fn change(
        &self,
        changing: &WriteTransaction,
        outcome: &Outcome,
    ) -> Result<(), StorageError> {
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

    pub(super) fn end(
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

    pub(super) fn load<E: From<StorageError>>(
        &self,
        visit: impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let transaction = self.database.begin_read().map_err(|e| self.failure(e))?;
        self.load_from(&transaction, visit)
    }

    /// One transaction: what is written meanwhile is in none of the tables.
    pub(super) fn load_from<E: From<StorageError>>(
        &self,
        transaction: &ReadTransaction,
        mut visit: impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for table in TABLES {
            let records = match transaction.open_table(definition(table)) {
                // Nothing was ever put into it.
                Err(TableError::TableDoesNotExist(_)) => continue,
                records => records.map_err(|e| self.failure(e))?,
            };
            for record in records.iter().map_err(|e| self.failure(e))? {
                let (key, value) = record.map_err(|e| self.failure(e))?;
                visit(table, key.value(), value.value())?;
            }
        }
        Ok(self.dir.check_undisturbed()?)
    }

    /// The database at one point in time, and what is committed beyond it.
    pub(super) fn snapshot(&self) -> Result<(ReadTransaction, Outcome), StorageError> {
        let _no_checkpoint = self.lock_recycling();
        let transaction = self.database.begin_read().map_err(|e| self.failure(e))?;
        let live = self.lock_live().clone();
        let newer = read_live(self.dir.path(), &live, self.applied()?)?;
        Ok((transaction, newer))
    }

    pub(super) fn failure(&self, error: impl Into<redb::Error>) -> StorageError {
        StorageError::database(&self.file, error)
    }
}

/// The first generation whose log is not in the database, and the last commit that is.
const APPLIED: TableDefinition<'static, (), (u64, u64)> = TableDefinition::new("applied");

/// Has an entry after an orderly end: the logs need not be read.
const LOGS_ARE_EMPTY: TableDefinition<'static, (), ()> = TableDefinition::new("logs_are_empty");

/// What may be in the logs beyond the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logs {
    /// Commits that are to come.
    InUse,
    /// Nothing, until the next start.
    Empty,
}

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(name(table))
}

/// Opens the database; a panic on the way is damage, too. About one in a hundred damaged files
/// ends so: before the check, the library trusts a file that was closed in good order.
fn open_database(
    path: &Path,
    file: impl StorageBackend,
) -> Result<(Database, Repairs), StorageError> {
    panics::caught(|| open_checked(file))
        .ok_or_else(|| StorageError::damaged(path, "reading it ended in a panic"))?
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
