//! The effects of jobs, in SQLite: each is had once, by fence and by key, in one transaction.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::FencingToken;
use rusqlite::{Connection, TransactionBehavior, params};

/// A worker that is paused in the middle of a transaction keeps the others out.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &str = "
    CREATE TABLE effect (job INTEGER PRIMARY KEY, item TEXT NOT NULL);
    CREATE TABLE fence (item TEXT PRIMARY KEY, token TEXT NOT NULL);
    CREATE TABLE suppressed (job INTEGER NOT NULL, item TEXT NOT NULL, why TEXT NOT NULL);
    CREATE TABLE term (worker INTEGER NOT NULL);";

/// What came of the wish to have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Had,
    /// The job has had it before.
    Repeat,
    /// A later holder of the item was here.
    Stale,
}

/// The database, as one program uses it.
pub(super) struct Effects(Connection);

impl Effects {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let effects = Self::open(folder)?;
        effects.0.pragma_update(None, "journal_mode", "wal")?;
        effects.0.execute_batch(TABLES)?;
        Ok(effects)
    }

    pub(super) fn open(folder: &Path) -> Result<Self> {
        let database = Connection::open(folder.join("effects.db"))?;
        database.busy_timeout(PATIENCE)?;
        // What a killed program has written is there without it.
        database.pragma_update(None, "synchronous", "off")?;
        Ok(Self(database))
    }

    /// Has the effect of a job, unless it was had, or a later holder of its item was here.
    pub(super) fn have(&mut self, job: u32, item: &str, token: FencingToken) -> Result<Effect> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // As text of one length, which sorts as the number does.
        let token = format!("{:039}", token.to_u128());
        let admitted = transaction.execute(
            "INSERT INTO fence VALUES (?1, ?2)
             ON CONFLICT (item) DO UPDATE SET token = ?2 WHERE token <= ?2",
            params![item, token],
        )?;
        let effect = match admitted {
            0 => Effect::Stale,
            _ => match transaction.execute(
                "INSERT INTO effect VALUES (?1, ?2) ON CONFLICT (job) DO NOTHING",
                params![job, item],
            )? {
                0 => Effect::Repeat,
                _ => Effect::Had,
            },
        };
        if effect != Effect::Had {
            let why = format!("{effect:?}");
            transaction
                .execute("INSERT INTO suppressed VALUES (?1, ?2, ?3)", params![job, item, why])?;
        }
        transaction.commit()?;
        Ok(effect)
    }

    /// A worker begins to schedule, or does so again after it could not put.
    pub(super) fn begin_term(&self, worker: u32) -> Result<()> {
        self.0.execute("INSERT INTO term VALUES (?1)", [worker])?;
        Ok(())
    }

    /// The worker that was the last to begin.
    pub(super) fn scheduler(&self) -> Result<usize> {
        self.number("SELECT worker FROM term ORDER BY rowid DESC LIMIT 1")
    }

    pub(super) fn count(&self) -> Result<usize> {
        self.number("SELECT count(*) FROM effect")
    }

    pub(super) fn suppressed(&self) -> Result<usize> {
        self.number("SELECT count(*) FROM suppressed")
    }

    pub(super) fn stale(&self) -> Result<usize> {
        self.number("SELECT count(*) FROM suppressed WHERE why = 'Stale'")
    }

    /// The number of items, over all jobs, that a job had in addition to the one that had its effect.
    pub(super) fn put_again(&self) -> Result<usize> {
        self.number(
            "SELECT count(DISTINCT suppressed.item) FROM suppressed JOIN effect USING (job)
             WHERE suppressed.item <> effect.item",
        )
    }

    pub(super) fn terms(&self) -> Result<usize> {
        self.number("SELECT count(*) FROM term")
    }

    pub(super) fn has(&self, job: u32) -> Result<bool> {
        Ok(self
            .0
            .query_row("SELECT count(*) FROM effect WHERE job = ?1", [job], |row| row.get(0))?)
    }

    pub(super) fn jobs(&self) -> Result<Vec<u32>> {
        let mut statement = self.0.prepare("SELECT job FROM effect ORDER BY job")?;
        let jobs = statement.query_map([], |row| row.get(0))?;
        Ok(jobs.collect::<rusqlite::Result<_>>()?)
    }

    fn number(&self, query: &str) -> Result<usize> {
        let number: u32 = self.0.query_row(query, [], |row| row.get(0))?;
        Ok(usize::try_from(number)?)
    }
}
