//! [`Once`]: something is done once for each key, whichever program comes first.
//!
//! `key` is what it is done for, `record` what is written and what follows from it (both pure), `store` reads
//! and writes, `run` is what has begun, `log` reads the records in a tree that is known already.

mod error;
mod key;
mod log;
mod record;
mod run;
mod store;

use std::time::Duration;

use lockkeeper_client::retry::{Backoff, retry_anywhere};
use lockkeeper_client::{Client, CreateMode, TransactionError, ZnodePath, present};

use crate::beside::{ONCE, beside};
use crate::error::BuildError;
use crate::guard::Guard;
use crate::owner_info::OwnerInfo;

use record::{Floor, Verdict, Written, judge};
use run::RecordPlace;
use store::{AT_ONCE, Options, Store, still_held};

pub use error::OnceError;
pub use key::{OnceKey, Tick};
pub use log::OnceLog;
pub use record::{IfUnfinished, OnceEnd, OnceRecord};
pub use run::OnceRun;

/// How many records of ticks, and how many of other keys, a lock keeps unless the builder says otherwise.
const KEEP: u32 = 1_000;

/// How far ahead of the servers' clock a tick may be, unless the builder says otherwise.
const AHEAD: Duration = Duration::from_secs(60);

/// Something is done once for each key, under a lock, whichever program comes first: the run of a job that
/// is due on several machines, a release, a migration.
///
/// A lock alone does not do that: one that was held for two seconds is free when the clock of another machine
/// says that it is time. So the beginning and the end are recorded, each in one transaction with a check that
/// the holder's node is there.
///
/// Exactly once is not to be had: a machine may die when the work is done and the end is not recorded. What
/// happens then is to be chosen, with [`OnceBuilder::if_unfinished`]. Cheap to clone.
///
/// # Guarantees
///
/// - What was begun for a key and has a recorded end is never begun again, as long as its record is
///   [kept](OnceBuilder::keep).
/// - What was begun without a recorded end is begun again at most once for each holder of the lock
///   ([`IfUnfinished::Rerun`]), or never ([`IfUnfinished::Skip`]).
/// - Once a [`Tick`] has begun, no earlier one begins, however late a program is. This is known for ever.
/// - A lost reply does not change any of this.
///
/// # Not guaranteed
///
/// - If whoever did it lost the lock, it may still be at work when the next one begins it again; see
///   `docs/guarantees.md`.
/// - Nobody makes sure that a tick is begun: a program has to come.
/// - Who deletes records, or restores an older state of the servers, has it done again. With an older state, ticks
///   that ran after it may run once more.
///
/// # Znodes
///
/// - `<lock>-__once__`, persistent: the last tick that was begun, as JSON with the number of the format.
/// - `<lock>-__once__/tick-<milliseconds since 1970>ms` and `<lock>-__once__/key-<key>`, persistent: a record,
///   as JSON with the number of the format.
///
/// # Cost
///
/// - To begin costs 2 round trips (1 write), and 1 more for the first key of a lock.
/// - To end costs 1 round trip (1 write). After each eighth of the number of records that are kept, 3 more.
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
        /// What happens if something was begun and no end is recorded. Default: [`IfUnfinished::Rerun`].
        pub fn if_unfinished(self, if_unfinished: IfUnfinished) =>
            self.options.if_unfinished = if_unfinished;

        /// How many records of ticks are kept, and how many of other keys: the newest of each, and up to an
        /// eighth more. A key whose record is gone is done again; a tick is not. Default: 1,000. At least
        /// 1; 0 counts as 1.
        pub fn keep(self, records: u32) => self.options.keep = records.max(1);

        /// How far ahead of the servers' clock a tick may be; one that is further is refused. Default: a
        /// minute.
        pub fn ahead(self, most: Duration) => self.options.ahead = most;

        /// What the program is called in the records.
        pub fn label(self, label: impl Into<String>) => self.options.label = Some(label.into());
    }

    /// Makes the handle. No I/O.
    ///
    /// # Errors
    /// If there can be no lock at the path.
    pub fn build(self) -> Result<Once, BuildError> {
        let lock = BuildError::check(&self.client, &self.lock)?;
        let path = beside(&lock, ONCE);
        let (client, options) = (self.client, self.options);
        Ok(Once { store: Store { client, lock, path, options } })
    }
}

/// What has come of an attempt to begin something.
#[derive(Debug)]
#[must_use = "it is to be done only if it is `Run`"]
pub enum Begun<'a> {
    /// It is begun, and to be done now.
    Run(OnceRun<'a>),
    /// It was done.
    Done(OnceRecord),
    /// It was begun, its end is not recorded, and it is not to be done again.
    Unfinished(OnceRecord),
    /// This later tick has begun.
    Passed(Tick),
}

impl Once {
    /// The records of the lock at this path, which are written under it. No I/O.
    ///
    /// # Errors
    /// As [`OnceBuilder::build`].
    pub fn new(client: &Client, lock: &str) -> Result<Self, BuildError> {
        Self::builder(client, lock).build()
    }

    /// The options of the records of a lock.
    pub fn builder(client: &Client, lock: &str) -> OnceBuilder {
        let if_unfinished = IfUnfinished::default();
        let options = Options { if_unfinished, keep: KEEP, ahead: AHEAD, label: None };
        OnceBuilder { client: client.clone(), lock: lock.to_owned(), options }
    }

    /// The lock.
    pub fn lock(&self) -> &ZnodePath {
        &self.store.lock
    }

    /// Begins something for a key, if it is to be done. The guard is that of the lock, which nobody else holds
    /// at the same time: of a [`Mutex`](crate::Mutex), or of a lock that is held for writing. Costs 2 round
    /// trips, and 1 more for the first key of a lock.
    ///
    /// If it fails, it may be begun all the same, as far as the next one who comes can see: without an end.
    ///
    /// # Errors
    /// If the lock is lost or the guard is of another one; if a tick is ahead of the servers' clock; if there is
    /// something else where the record would be; if a request fails for good.
    ///
    /// # Session loss
    /// Fails: the lock is lost.
    ///
    /// # Cancel safety
    /// It may be begun, without an end.
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
        // What this call writes over.
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
                // The servers' clock may have gone on since it was seen last.
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
                    // The next holder may be at work by now.
                    still_held(guard)?;
                    let version = before.as_ref().map_or(0, |(_, version)| version + 1);
                    let place = RecordPlace::new(&self.store, node, version, &seen.above);
                    let before = before.map(|(record, _)| record);
                    return Ok(Begun::Run(OnceRun::new(guard, place, written, key, before)));
                }
                // Or it was applied, and the reply was lost: the next look tells.
                failed => {
                    self.store.outlast(guard, failed.map(drop), &mut backoff).await?;
                    replaced = before.map(|(record, _)| record);
                }
            }
        }
    }

    /// What was done, and what was begun: the records that are kept, by the time at which they were begun. Costs
    /// 2 round trips, and 1 more for each 256 records.
    ///
    /// # Errors
    /// If a request fails for good. What other programs have put there is left out.
    ///
    /// # Session loss
    /// Goes on in the next session.
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
        for nodes in nodes.chunks(AT_ONCE) {
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
                // Deleted meanwhile, otherwise.
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

    /// The last tick that was begun; `None` before the first one. Costs 1 round trip.
    ///
    /// # Errors
    /// If a request fails for good.
    ///
    /// # Session loss
    /// Goes on in the next session.
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

    /// Deletes the record of a key, so that it is done again; a tick is not, as a later one may have begun.
    /// Returns whether there was a record. Whoever is at work for the key cannot record its end any more.
    /// Costs 1 round trip.
    ///
    /// # Errors
    /// If a request fails for good.
    ///
    /// # Session loss
    /// Fails, as a [`Reply`](lockkeeper_client::Reply) does; it may be deleted.
    ///
    /// # Cancel safety
    /// It may be deleted.
    pub async fn forget(&self, key: impl Into<OnceKey>) -> Result<bool, OnceError> {
        let node = key.into().node(&self.store.path)?;
        let deleted = present(self.store.client.delete(&node, None).await);
        Ok(deleted.map_err(TransactionError::from)?.is_some())
    }
}

lockkeeper_client::impl_debug!(Once, self => lock: self.store.lock, options: self.store.options);
