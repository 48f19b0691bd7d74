//! A fair lock that readers share and writers hold alone. The guards are in files of their own, and
//! `upgrade.rs` turns a reader into a writer.

mod read_guard;
mod upgrade;
mod write_guard;

use std::time::Duration;

use lockkeeper_client::{Client, ZnodePath};

use crate::acquire::lock_options::{LockOptions, lock_options};
use crate::acquire::queue_handle::{QueueHandle, within};
use crate::error::{AcquireError, BuildError};
use crate::guard::Guard;
use crate::profile::Kind;

pub use crate::locks::rw_lock::read_guard::RwLockReadGuard;
pub use crate::locks::rw_lock::upgrade::{RwLockUpgradeableGuard, UpgradeError};
pub use crate::locks::rw_lock::write_guard::RwLockWriteGuard;

const KINDS: &[Kind] = &[Kind::Upgradeable, Kind::Read, Kind::Write];

/// A lock that readers share and writers hold alone, among all programs that use the same path.
///
/// Use a [`Mutex`](crate::Mutex) if most of the work is writing: it costs less. Cheap to clone;
/// clones are the same lock.
///
/// # Guarantees
///
/// - The order of arrival is strict: a reader waits for every writer ahead of it, and a writer
///   waits for every contender ahead of it.
/// - A release wakes one contender, except that all readers behind a writer wake when it leaves.
/// - A writer can become a reader, and an upgradeable reader can become a writer, without another holder in
///   between.
/// - No contender leaves a znode behind.
///
/// # Not guaranteed
///
/// - Readers do not overtake waiting writers.
/// - The lock is not reentrant.
/// - Not every reader can become a writer: two that tried would wait for each other. At most one
///   upgradeable reader at a time holds the lock.
///
/// # Znodes
///
/// - A writer is `<path>/_c_<uuid>-__WRIT__N`, and a reader is `<path>/_c_<uuid>-__READ__N`,
///   ephemeral and sequential, as in Curator's `InterProcessReadWriteLock`.
/// - An upgradeable reader is `<path>/_c_<uuid>-upgr-__READ__N`.
/// - After a downgrade or an upgrade, the znode has the name of the other kind and the same number.
///
/// A [profile](RwLockBuilder::profile) other than the default one has other names.
///
/// # Cost
///
/// - An acquire costs 1 round trip; behind others, 1 more and 1 event. A writer behind a writer
///   costs 1 round trip more.
/// - A downgrade costs 1 round trip.
/// - An upgrade costs 2 round trips, and the wait for the other readers.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::RwLock;
///
/// let prices = RwLock::new(&client, "/locks/prices")?;
/// let (one, two) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none(), "there are readers");
/// one.release().await?;
/// two.release().await?;
///
/// let writing = prices.write().await?;
/// let reading = writing.downgrade().await?; // no other writer in between
/// reading.release().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    queue_handle: QueueHandle,
}

lockkeeper_client::shown_by_path!(RwLock);

/// The options of an [`RwLock`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct RwLockBuilder {
    options: LockOptions,
    path: String,
}

lock_options!(RwLockBuilder: profile, acl, label, user, why);

impl RwLockBuilder {
    /// Builds the lock. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn build(self) -> Result<RwLock, BuildError> {
        Ok(RwLock { queue_handle: self.options.queue_handle(&self.path, KINDS)? })
    }
}

impl RwLock {
    /// The lock at a path such as `/locks/prices`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of a lock.
    pub fn builder(client: &Client, path: &str) -> RwLockBuilder {
        RwLockBuilder { options: LockOptions::new(client), path: path.to_owned() }
    }

    /// The lock's path.
    pub fn path(&self) -> &ZnodePath {
        self.queue_handle.path()
    }

    /// Waits in the queue to read, until no writer is ahead. Costs one round trip; behind a writer, one
    /// more and an event.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire), and [`AcquireError::Lost`] if the lock is lost while its
    /// token is minted.
    ///
    /// # Session loss
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue; the node is deleted in the background.
    pub async fn read(&self) -> Result<RwLockReadGuard, AcquireError> {
        self.queue_handle.acquire(Kind::Read).await.map(RwLockReadGuard::new)
    }

    /// Waits in the queue to write, until no contender is ahead. Costs one round trip, and one or two more and an event
    /// for each contender that it has to wait for.
    ///
    /// # Errors
    /// Same as [`RwLock::read`].
    ///
    /// # Session loss
    /// Same as [`RwLock::read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn write(&self) -> Result<RwLockWriteGuard, AcquireError> {
        self.queue_handle.acquire(Kind::Write).await.map(|guard| self.writing(guard))
    }

    /// Waits in the queue to read, with the right to become a writer later, until neither a writer
    /// nor another upgradeable reader is ahead. Costs the same as [`RwLock::read`].
    ///
    /// # Errors
    /// Same as [`RwLock::read`].
    ///
    /// # Session loss
    /// Same as [`RwLock::read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn upgradeable_read(&self) -> Result<RwLockUpgradeableGuard, AcquireError> {
        self.queue_handle.acquire(Kind::Upgradeable).await.map(|guard| self.upgradeable(guard))
    }

    /// [`RwLock::read`] with a time limit: `timeout` covers the whole call. A limit below 10 ms makes a single
    /// try, like [`Mutex::acquire_timeout`](crate::Mutex::acquire_timeout). Costs the same as
    /// [`RwLock::read`].
    ///
    /// # Errors
    /// Same as [`RwLock::read`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`RwLock::read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn read_timeout(&self, timeout: Duration) -> Result<RwLockReadGuard, AcquireError> {
        let try_once = self.try_read();
        within(&self.queue_handle.client, self.path(), timeout, || self.read(), try_once).await
    }

    /// [`RwLock::write`] with a time limit: `timeout` covers the whole call. A limit below 10 ms makes a single
    /// try, like [`Mutex::acquire_timeout`](crate::Mutex::acquire_timeout). Costs the same as
    /// [`RwLock::write`].
    ///
    /// # Errors
    /// Same as [`RwLock::read_timeout`].
    ///
    /// # Session loss
    /// Same as [`RwLock::read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn write_timeout(&self, timeout: Duration) -> Result<RwLockWriteGuard, AcquireError> {
        let try_once = self.try_write();
        within(&self.queue_handle.client, self.path(), timeout, || self.write(), try_once).await
    }

    /// [`RwLock::upgradeable_read`] with a time limit: `timeout` covers the whole call. A limit below 10 ms makes a
    /// single try, like [`Mutex::acquire_timeout`](crate::Mutex::acquire_timeout). Costs the same as
    /// [`RwLock::upgradeable_read`].
    ///
    /// # Errors
    /// Same as [`RwLock::read_timeout`].
    ///
    /// # Session loss
    /// Same as [`RwLock::read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn upgradeable_read_timeout(
        &self,
        timeout: Duration,
    ) -> Result<RwLockUpgradeableGuard, AcquireError> {
        let (client, try_once) = (&self.queue_handle.client, self.try_upgradeable_read());
        within(client, self.path(), timeout, || self.upgradeable_read(), try_once).await
    }

    /// Acquires the lock for reading only if no writer holds it or waits for it; `None` otherwise. Costs one round
    /// trip.
    ///
    /// # Errors
    /// Same as [`RwLock::read`], except the errors of waiting.
    ///
    /// # Session loss
    /// Same as [`RwLock::read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn try_read(&self) -> Result<Option<RwLockReadGuard>, AcquireError> {
        let guard = self.queue_handle.try_acquire(Kind::Read).await?;
        Ok(guard.map(RwLockReadGuard::new))
    }

    /// Acquires the lock for writing only if no contender holds it or waits for it; `None` otherwise. Costs one round
    /// trip.
    ///
    /// # Errors
    /// Same as [`RwLock::try_read`].
    ///
    /// # Session loss
    /// Same as [`RwLock::try_read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn try_write(&self) -> Result<Option<RwLockWriteGuard>, AcquireError> {
        let guard = self.queue_handle.try_acquire(Kind::Write).await?;
        Ok(guard.map(|guard| self.writing(guard)))
    }

    /// [`RwLock::upgradeable_read`] without waiting; `None` if it would have to wait. Costs one
    /// round trip.
    ///
    /// # Errors
    /// Same as [`RwLock::try_read`].
    ///
    /// # Session loss
    /// Same as [`RwLock::try_read`].
    ///
    /// # Cancel safety
    /// Same as [`RwLock::read`].
    pub async fn try_upgradeable_read(
        &self,
    ) -> Result<Option<RwLockUpgradeableGuard>, AcquireError> {
        let guard = self.queue_handle.try_acquire(Kind::Upgradeable).await?;
        Ok(guard.map(|guard| self.upgradeable(guard)))
    }

    fn writing(&self, guard: Guard) -> RwLockWriteGuard {
        RwLockWriteGuard::new(guard, self.queue_handle.clone())
    }

    fn upgradeable(&self, guard: Guard) -> RwLockUpgradeableGuard {
        RwLockUpgradeableGuard::new(guard, self.queue_handle.clone())
    }
}
