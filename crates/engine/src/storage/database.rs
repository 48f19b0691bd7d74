//! The open database of a data directory.

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

/// The memory that the database library may use for pages. Small, because the tree holds every record anyway, and pages
/// are only read back while they are changed.
const CACHE_BYTES: usize = 1024 * 1024;

/// An open database with its directory; a running backup or checkpoint shares it.
pub(super) struct OpenDisk {
    // Dropped in this order: the directory is released after the database has been closed.
    pub(super) database: Database,
    pub(super) file: PathBuf,
    pub(super) dir: DataDir,
    /// The logs that are not in the database yet.
    live: Mutex<Live>,
    /// Held while a log or a large commit is written into the database, while a log is reused, and by readers that need
    /// a consistent view of both.
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

    /// The commits in the logs that are not in the database.
    pub(super) fn read_logs(&self, logs: &LogDir, state: State) -> Result<Tail, StorageError> {
        match state {
            State::New => Ok(Tail::default()),
            _ if self.has_empty_logs()? => logs.read_nothing(self.applied()?),
            _ => logs.read(self.applied()?),
        }
    }

    /// Whether the last engine wrote everything into the database, in an orderly end.
    fn has_empty_logs(&self) -> Result<bool, StorageError> {
        let read = || -> Result<bool, redb::Error> {
            match self.database.begin_read()?.open_table(LOGS_ARE_EMPTY) {
                Err(TableError::TableDoesNotExist(_)) => Ok(false),
                table => Ok(table?.get(())?.is_some()),
            }
        };
        read().map_err(|e| self.failure(e))
    }

    /// Up to which commit the logs are in the database.
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

    /// Writes changes from the logs, and their position, in one synced transaction.
    pub(super) fn apply(&self, outcome: &Outcome, applied: Applied) -> Result<(), StorageError> {
        let changing = self.begin()?;
        self.change(&changing, outcome)?;
        self.end(changing, applied, Logs::InUse)
    }

    /// Begins such a transaction: dropping it leaves the database unchanged.
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

    /// Reads in one transaction: no table contains later changes.
    pub(super) fn load_from<E: From<StorageError>>(
        &self,
        transaction: &ReadTransaction,
        mut visit: impl FnMut(Table, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for table in TABLES {
            let records = match transaction.open_table(definition(table)) {
                // The table was never written.
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

    /// The database at one point in time, and the commits beyond it.
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

/// Contains an entry after an orderly end: the logs need not be read.
const LOGS_ARE_EMPTY: TableDefinition<'static, (), ()> = TableDefinition::new("logs_are_empty");

/// Whether the logs may contain commits beyond the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logs {
    /// Commits may follow.
    InUse,
    /// They contain none until the next start.
    Empty,
}

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(name(table))
}

/// Opens the database; a panic in the library is damage too. About one in a hundred damaged files causes one: the
/// library trusts a file that was closed in order before it is checked.
fn open_database(
    path: &Path,
    file: impl StorageBackend,
) -> Result<(Database, Repairs), StorageError> {
    panics::caught(|| open_checked(file))
        .ok_or_else(|| StorageError::damaged(path, "reading it caused a panic"))?
        .map_err(|e| StorageError::database(path, e))
}

/// Repairs made when the database was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repairs {
    /// It was not closed in order: an incomplete commit was dropped.
    pub(crate) after_crash: bool,
    /// The list of free pages was wrong.
    pub(crate) free_pages: bool,
}

/// Opens the database and checks all of it: by itself the library does so only after a crash.
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
