//! [`Once`]: work is done once for each key, by the first program that starts it.
//!
//! `key` has the keys, `record` the records and the decisions that follow from them (both pure). `store` reads
//! and writes, `run` is work that has started, and `log` reads the records from a tree in memory.

mod error;
mod key;
mod log;
mod record;
mod run;
mod store;

use std::time::Duration;

use lockkeeper_client::retry::{Backoff, retry_anywhere};
use lockkeeper_client::{Client, CreateMode, TransactionError, ZnodePath, present};

use crate::error::BuildError;
use crate::guard::Guard;
use crate::owner_info::OwnerInfo;
use crate::siblings::{ONCE, sibling};

use record::{Floor, Verdict, Written, judge};
use run::RecordPlace;
use store::{MAX_REQUESTS_IN_FLIGHT, Options, Store, still_held};

pub use error::OnceError;
pub use key::{OnceKey, Tick};
pub use log::OnceLog;
pub use record::{IfUnfinished, OnceEnd, OnceRecord};
pub use run::OnceRun;

/// How many records of ticks, and how many of other keys, a lock keeps by default.
const DEFAULT_KEEP: u32 = 1_000;

/// How far ahead of the servers' clock a tick may be by default.
const DEFAULT_AHEAD: Duration = Duration::from_secs(60);

/// Does work once for each key, under a lock, in the first program that starts it. Examples are a job that
/// is due on several machines, a release, and a migration.
///
/// A lock alone is not enough: a lock that was held for two seconds is free again when the job becomes due on a machine
/// with a slower clock. So the start and the end are recorded, each in one transaction with a check that
/// the holder's node exists.
///
/// Exactly once is impossible: a machine may die when the work is done and the end is not yet recorded.
/// [`OnceBuilder::if_unfinished`] chooses what happens then. Cheap to clone.
///
/// # Guarantees
///
/// - Work with a recorded end is never started again, as long as its record is
///   [kept](OnceBuilder::keep).
/// - Work without a recorded end is started again at most once by each holder of the lock
///   ([`IfUnfinished::Rerun`]), or never ([`IfUnfinished::Skip`]).
/// - After a [`Tick`] has started, no earlier tick starts, however late a program is. This state is kept forever.
/// - A lost reply does not affect these guarantees.
///
/// # Not guaranteed
///
/// - A program that has lost the lock may still be at work when the next one starts the same work; see
///   `docs/guarantees.md`.
/// - A tick does not start by itself: a program has to start it.
/// - Deleting records, or restoring an older state of the servers, causes work to be repeated. After a restore, ticks
///   that ran later than the restored state may run again.
///
/// # Znodes
///
/// - `<lock>-__once__`, persistent: the last tick that was started, as JSON with a format version.
/// - `<lock>-__once__/tick-<milliseconds since 1970>ms` and `<lock>-__once__/key-<key>`, persistent: a record,
///   as JSON with a format version.
///
/// # Cost
///
/// - Starting costs 2 round trips (1 write), and 1 more for the first key of a lock.
/// - Ending costs 1 round trip (1 write). Each time the records have grown by an eighth of the kept number, it costs 3
///   more.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Begun, Mutex, Once};
///
/// let lock = Mutex::new(&client, "/migrations")?;
/// let once = Once::new(&client, lock.path().as_str())?;
///
/// let guard = lock.acquire().await?;
/// match once.begin(&guard, "add-index").await? {
///     Begun::Run(run) => run.end(0).await?, // after the work
///     other => panic!("{other:?}"),
/// }
/// match once.begin(&guard, "add-index").await? {
///     Begun::Done(record) => assert_eq!(record.attempt, 1),
///     other => panic!("{other:?}"),
/// }
/// guard.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Once {
    store: Store,
}

/// The options of a [`Once`].
#[must_use = "nothing is made before `build`"]
#[derive(Clone, Debug)]
pub struct OnceBuilder {
    client: Client,
    lock: String,
    options: Options,
}

impl OnceBuilder {
    lockkeeper_client::setters! {
        /// What happens if work was started and no end is recorded. Default: [`IfUnfinished::Rerun`].
        pub fn if_unfinished(self, if_unfinished: IfUnfinished) =>
            self.options.if_unfinished = if_unfinished;

        /// How many records of ticks are kept, and how many of other keys: the newest of each, and up to an
        /// eighth more. The work of a key without a record is done again; that of a tick is not. Default: 1,000.
        /// At least 1; 0 counts as 1.
        pub fn keep(self, records: u32) => self.options.keep = records.max(1);

        /// How far ahead of the servers' clock a tick may be. A later tick is refused. Default: one
        /// minute.
        pub fn ahead(self, most: Duration) => self.options.ahead = most;

        /// A label for the program, stored in the records.
        pub fn label(self, label: impl Into<String>) => self.options.label = Some(label.into());
    }

    /// Builds the handle. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn build(self) -> Result<Once, BuildError> {
        let lock = BuildError::check(&self.client, &self.lock)?;
        let path = sibling(&lock, ONCE);
        let (client, options) = (self.client, self.options);
        Ok(Once { store: Store { client, lock, path, options } })
    }
}

/// The result of an attempt to start work.
#[derive(Debug)]
#[must_use = "the work may be done only if this is `Run`"]
pub enum Begun<'a> {
    /// The work is started, and has to be done now.
    Run(OnceRun<'a>),
    /// The work is already done.
    Done(OnceRecord),
    /// The work was started, its end is not recorded, and it must not be done again.
    Unfinished(OnceRecord),
    /// This later tick has already started.
    Passed(Tick),
}

impl Once {
    /// The records of the lock at this path. No I/O.
    ///
    /// # Errors
    /// Same as [`OnceBuilder::build`].
    pub fn new(client: &Client, lock: &str) -> Result<Self, BuildError> {
        Self::builder(client, lock).build()
    }

    /// The options of the records of a lock.
    pub fn builder(client: &Client, lock: &str) -> OnceBuilder {
        let if_unfinished = IfUnfinished::default();
        let options =
            Options { if_unfinished, keep: DEFAULT_KEEP, ahead: DEFAULT_AHEAD, label: None };
        OnceBuilder { client: client.clone(), lock: lock.to_owned(), options }
    }

    /// The lock.
    pub fn lock(&self) -> &ZnodePath {
        &self.store.lock
    }

    /// Starts the work for a key, if it has to be done. The guard must be an exclusive guard of the lock:
    /// of a [`Mutex`](crate::Mutex), or of a lock that is held for writing. Costs 2 round
    /// trips, and 1 more for the first key of a lock.
    ///
    /// If the call fails, the work may nevertheless be recorded as started without an end.
    ///
    /// # Errors
    /// If the lock is lost, the guard belongs to another lock, the tick is ahead of the servers' clock, the node
    /// for the record contains other data, or a request fails with a permanent error.
    ///
    /// # Session loss
    /// Fails, because the lock is lost.
    ///
    /// # Cancel safety
    /// The work may be recorded as started without an end.
    pub async fn begin<'a>(
        &self,
        guard: &'a Guard,
        key: impl Into<OnceKey>,
    ) -> Result<Begun<'a>, OnceError> {
        if *guard.path() != self.store.lock {
            let (lock, guard) = (self.store.lock.clone(), guard.path().clone());
            return Err(OnceError::OtherLock { lock, guard });
        }
        let key = key.into();
        let node = key.node(&self.store.path)?;
        let run = self.store.client.unique_id().to_string();

        let (mut backoff, mut has_measured) = (Backoff::default(), false);
        // The record that this call overwrites.
        let mut replaced = None;
        loop {
            let seen = self.store.look(guard, &node).await?;
            let found = seen.record.as_ref().map(|(written, _)| written);
            let verdict = judge(&key, seen.floor, found, &run, self.store.options.if_unfinished);
            let earlier = seen.record.as_ref().map(|(written, stat)| {
                let version = stat.version;
                (written.clone().record(key.clone(), stat), version)
            });

            let before = match (verdict, earlier) {
                (Verdict::Done, Some((record, _))) => return Ok(Begun::Done(record)),
                (Verdict::Unfinished, Some((record, _))) => return Ok(Begun::Unfinished(record)),
                (Verdict::Begun, Some((_, version))) => {
                    still_held(guard)?;
                    let written = seen.record.map(|(written, _)| written);
                    let written = written.expect("it was found");
                    let place = RecordPlace::new(&self.store, node, version, &seen.above);
                    return Ok(Begun::Run(OnceRun::new(guard, place, written, key, replaced)));
                }
                (Verdict::Passed, _) => {
                    return Ok(Begun::Passed(seen.floor.expect("it was passed by one")));
                }
                (_, before) => before,
            };

            if let OnceKey::Tick(tick) = key
                && let Some(by) = self.store.ahead(tick, &seen)
            {
                if has_measured {
                    return Err(OnceError::Ahead { by });
                }
                // The servers' clock may have advanced since it was last read.
                has_measured = true;
                self.store.measure(guard, &seen, &mut backoff).await?;
                continue;
            }

            let attempt = before.as_ref().map_or(1, |(record, _)| record.attempt.saturating_add(1));
            let owner = OwnerInfo::current(self.store.options.label.clone());
            let written = Written::begun(&run, attempt, owner, guard.token());
            let mut writes = guard.transaction();
            if let OnceKey::Tick(tick) = key
                && seen.floor != Some(tick)
            {
                let floor = Floor::of(Some(tick)).to_data();
                writes = writes.set_data(&self.store.path, floor, Some(seen.above.version));
            }
            writes = match &before {
                None => writes.create(&node, written.to_data(), CreateMode::Persistent),
                Some((_, version)) => writes.set_data(&node, written.to_data(), Some(*version)),
            };

            match writes.commit().await {
                Ok(_) => {
                    // The next holder may already be at work.
                    still_held(guard)?;
                    let version = before.as_ref().map_or(0, |(_, version)| version + 1);
                    let place = RecordPlace::new(&self.store, node, version, &seen.above);
                    let before = before.map(|(record, _)| record);
                    return Ok(Begun::Run(OnceRun::new(guard, place, written, key, before)));
                }
                // Or the write was applied, and the reply was lost. The next read shows which.
                failed => {
                    self.store.outlast(guard, failed.map(drop), &mut backoff).await?;
                    replaced = before.map(|(record, _)| record);
                }
            }
        }
    }

    /// The kept records of finished and started work, in the order in which it was started. Costs
    /// 2 round trips, and 1 more for each 256 records.
    ///
    /// # Errors
    /// If a request fails with a permanent error. Nodes of other programs are left out.
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn records(&self) -> Result<Vec<OnceRecord>, OnceError> {
        let names = loop {
            match present(self.store.client.children(&self.store.path).await) {
                Ok(listed) => break listed.map(|(names, _)| names).unwrap_or_default(),
                Err(error) => retry_anywhere(error).await?,
            }
        };
        let nodes = self.store.nodes(&names);
        let mut records = Vec::with_capacity(nodes.len());
        for nodes in nodes.chunks(MAX_REQUESTS_IN_FLIGHT) {
            let asked: Vec<_> =
                nodes.iter().map(|(_, node)| self.store.client.data(node)).collect();
            for ((key, node), mut asked) in nodes.iter().zip(asked) {
                let found = loop {
                    match present(asked.await) {
                        Ok(found) => break found,
                        Err(error) => retry_anywhere(error).await?,
                    }
                    asked = self.store.client.data(node);
                };
                // Otherwise it was deleted during the read.
                if let Some((data, stat)) = found
                    && let Some(written) = Written::read(&data)
                {
                    records.push(written.record(key.clone(), &stat));
                }
            }
        }
        OnceRecord::sort(&mut records);
        Ok(records)
    }

    /// The last tick that was started; `None` before the first one. Costs 1 round trip.
    ///
    /// # Errors
    /// If a request fails with a permanent error.
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn last_tick(&self) -> Result<Option<Tick>, OnceError> {
        loop {
            match present(self.store.client.data(&self.store.path).await) {
                Ok(None) => return Ok(None),
                Ok(Some((data, _))) => return Ok(self.store.read_floor(&data)?.tick()),
                Err(error) => retry_anywhere(error).await?,
            }
        }
    }

    /// Deletes the record of a key, so that its work is done again. The work of a tick is not, as it has been passed.
    /// Returns whether there was a record. A program that is at work for the key can no longer record its end.
    /// Costs 1 round trip.
    ///
    /// # Errors
    /// If a request fails with a permanent error.
    ///
    /// # Session loss
    /// Fails like any [`Reply`](lockkeeper_client::Reply). The record may be deleted.
    ///
    /// # Cancel safety
    /// The record may be deleted.
    pub async fn forget(&self, key: impl Into<OnceKey>) -> Result<bool, OnceError> {
        let node = key.into().node(&self.store.path)?;
        let deleted = present(self.store.client.delete(&node, None).await);
        Ok(deleted.map_err(TransactionError::from)?.is_some())
    }
}

lockkeeper_client::impl_debug!(Once, self => lock: self.store.lock, options: self.store.options);
