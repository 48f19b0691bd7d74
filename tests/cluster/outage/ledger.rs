//! A table that both holders of a lock write to, and that refuses those who were overtaken.
//!
//! It is a SQLite file: whatever the writers believe, and whenever their writes arrive, the order of
//! the transactions is the order of the writes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper_testkit::clock;
use rusqlite::{Connection, params};

/// How long a write waits for the other one, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The table of one lock.
pub(crate) struct Ledger(Connection);

/// A write that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When it was made, by `clock::now`.
    pub(crate) at: Duration,
    pub(crate) token: String,
    /// Whether a later holder had written before.
    pub(crate) is_stale: bool,
}

impl Ledger {
    /// Makes one.
    pub(crate) fn create(path: &Path) -> Result<()> {
        Self::open(path)?.0.execute_batch(
            "CREATE TABLE fence (resource TEXT PRIMARY KEY, token TEXT NOT NULL);
             CREATE TABLE entry (at INTEGER NOT NULL, token TEXT NOT NULL, stale INTEGER NOT NULL);",
        )?;
        Ok(())
    }

    pub(crate) fn open(path: &Path) -> Result<Self> {
        let database = Connection::open(path).with_context(|| format!("{}", path.display()))?;
        database.busy_timeout(PATIENCE)?;
        // What a crash of the machine would take is no matter here.
        database.pragma_update(None, "synchronous", "off")?;
        Ok(Self(database))
    }

    /// Makes one write under a lock. One that comes too late is noted as such.
    pub(crate) fn write(&mut self, token: &str) -> Result<()> {
        let transaction =
            self.0.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // As text of one length, which sorts as the number does.
        let token = format!("{token:0>40}");
        let admitted = transaction.execute(
            "INSERT INTO fence VALUES ('it', ?1)
             ON CONFLICT (resource) DO UPDATE SET token = ?1 WHERE token <= ?1",
            params![token],
        )?;
        let at = i64::try_from(clock::now().as_nanos())?;
        transaction
            .execute("INSERT INTO entry VALUES (?1, ?2, ?3)", params![at, token, admitted == 0])?;
        Ok(transaction.commit()?)
    }

    /// All writes, in their order.
    pub(crate) fn entries(path: &Path) -> Result<Vec<Entry>> {
        let Self(database) = Self::open(path)?;
        let mut statement =
            database.prepare("SELECT at, token, stale FROM entry ORDER BY rowid")?;
        let entries = statement.query_map([], |row| {
            let (at, token, is_stale): (i64, String, bool) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            let at = Duration::from_nanos(at.unsigned_abs());
            let token = token.trim_start_matches('0').to_owned();
            Ok(Entry { at, token, is_stale })
        })?;
        Ok(entries.collect::<rusqlite::Result<_>>()?)
    }
}

/// Where the ledger of a lock is.
pub(crate) fn of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sqlite"))
}
