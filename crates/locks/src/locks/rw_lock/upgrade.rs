//! The guard of an upgradeable reader, which can become a writer without another writer in between.
//!
//! At most one reader at a time has this right, so that two readers cannot wait for each other.
//! `docs/decisions/0003-upgrades.md` gives the reasons for the steps.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{ErrorCode, Stat, Transaction, TransactionError, impl_failure};

use crate::acquire::queue_handle::{QueueHandle, once_within};
use crate::attempt::retry_acquire;
use crate::contender::node::{Contender, Front};
use crate::contender::order::Place;
use crate::contender::order::upgrade::Upgrade;
use crate::contender::waiting::OwnWatch;
use crate::contender::watches::Watches;
use crate::error::{AcquireError, LossReason, ReleaseError};
use crate::guard::state::HolderState;
use crate::guard::{Guard, offers_guard};
use crate::locks::rw_lock::write_guard::RwLockWriteGuard;
use crate::profile::Kind;

/// An [`RwLock`](crate::RwLock) that is held for reading, with the right to write later. What a
/// holder may believe and do is described at [`Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockUpgradeableGuard {
    guard: Guard,
    queue_handle: QueueHandle,
}

impl RwLockUpgradeableGuard {
    pub(crate) fn new(guard: Guard, queue_handle: QueueHandle) -> Self {
        Self { guard, queue_handle }
    }

    /// Becomes a writer in the reader's place when the other readers have left. No other writer holds the lock
    /// in between, and no new readers get it. The writer overtakes waiting contenders, and has a new
    /// token. Costs two round trips, and two more and an event for each reader that it waits for.
    ///
    /// # Errors
    /// If the lock is lost, no server can be reached for a whole session timeout, or the exchange of the znodes is
    /// refused. [`UpgradeError::into_reader`] returns the reader if it still holds the lock.
    ///
    /// # Session loss
    /// The lock is lost.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the lock.
    pub async fn upgrade(self) -> Result<RwLockWriteGuard, UpgradeError> {
        let mut upgrading = Upgrading::new(self);
        let upgraded = upgrading.run().await;
        upgrading.ended(upgraded)
    }

    /// [`RwLockUpgradeableGuard::upgrade`] with a time limit: `timeout` covers the whole call. A limit of less
    /// than two round trips is never enough. Costs the same as [`RwLockUpgradeableGuard::upgrade`].
    ///
    /// # Errors
    /// Same as [`RwLockUpgradeableGuard::upgrade`], and [`AcquireError::Timeout`]. The reader keeps the lock after
    /// a timeout, unless the exchange was in flight at that moment.
    ///
    /// # Session loss
    /// The lock is lost.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = lockkeeper_engine::Engine::builder().start().await?;
    /// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
    /// use std::time::Duration;
    ///
    /// use lockkeeper::RwLock;
    ///
    /// let prices = RwLock::new(&client, "/locks/prices")?;
    /// let other = prices.read().await?;
    /// let reader = prices.upgradeable_read().await?;
    /// let failed = reader.upgrade_timeout(Duration::from_millis(20)).await.expect_err("one reads");
    /// let reader = failed.into_reader().expect("the reader still holds the lock");
    ///
    /// other.release().await?;
    /// reader.upgrade().await?.release().await?;
    /// # client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn upgrade_timeout(
        self,
        timeout: Duration,
    ) -> Result<RwLockWriteGuard, UpgradeError> {
        let (client, path) = (self.queue_handle.client.clone(), self.path().clone());
        let mut upgrading = Upgrading::new(self);
        let upgraded = once_within(&client, &path, timeout, upgrading.run()).await;
        upgrading.ended(upgraded)
    }

    /// Releases the lock; see [`Guard::release`]. Costs one round trip.
    ///
    /// # Errors
    /// Same as [`Guard::release`].
    ///
    /// # Session loss
    /// Same as [`Guard::release`].
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }
}

offers_guard!(RwLockUpgradeableGuard, self => &self.guard);

/// The error of a failed upgrade. Dropping it releases the reader, if it still holds the lock.
#[derive(Debug)]
pub struct UpgradeError {
    error: AcquireError,
    reader: Option<Box<RwLockUpgradeableGuard>>,
}

impl_failure!(
    /// `is_retryable`: whether another upgrade, or another acquire if the reader has lost the lock, may succeed.
    UpgradeError { failed => (failed.error.is_retryable(), failed.error.outcome()) }
);

impl UpgradeError {
    /// The reason.
    pub fn error(&self) -> &AcquireError {
        &self.error
    }

    /// Returns the reader if it still holds the lock, with the same node and token, and with the right to become a
    /// writer. `None` if the lock is lost, or was given up because the exchange may have happened.
    pub fn into_reader(self) -> Option<RwLockUpgradeableGuard> {
        self.reader.map(|reader| *reader)
    }
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for UpgradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Gives up the lock.
impl From<UpgradeError> for AcquireError {
    fn from(failed: UpgradeError) -> Self {
        failed.error
    }
}

/// A reader that is becoming a writer.
struct Upgrading {
    queue_handle: QueueHandle,
    /// `None` once the exchange has been sent: only its reply shows whether the reader's node still exists.
    reader: Option<Guard>,
    /// Whether jeopardy was allowed.
    rides_out: bool,
}

impl Upgrading {
    fn new(reader: RwLockUpgradeableGuard) -> Self {
        let RwLockUpgradeableGuard { guard, queue_handle } = reader;
        Self { queue_handle, reader: Some(guard), rides_out: false }
    }

    fn reader(&self) -> &Guard {
        self.reader.as_ref().expect("it is there until the exchange")
    }

    fn lost(&self, reason: LossReason) -> AcquireError {
        AcquireError::Lost { path: self.queue_handle.path().clone(), reason }
    }

    /// Replaces the reader with a writer as soon as it is the only holder.
    async fn run(&mut self) -> Result<Guard, AcquireError> {
        let settled = self.reader().settle().await;
        self.rides_out = settled.map_err(|reason| self.lost(reason))?;

        let (client, path) = (self.queue_handle.client.clone(), self.queue_handle.path().clone());
        // For the exchange below, whose write to the lock's own node names the version that was read.
        let asked = client.data(&path);
        // The barrier at the end of the queue keeps new readers out.
        let (mut barrier, mut queue) = self.queue_handle.enter(Kind::Write).await?;

        let mut parent = asked.await;
        let mut watches = Watches::default();
        loop {
            let own = |place: &&Place| Some(&*place.name) == barrier.name();
            let Some(end) = queue.places().iter().find(own) else { return Err(barrier.deleted()) };

            match queue.upgrade(self.reader().node().name()) {
                Upgrade::WaitOn(other) => {
                    let waiting = barrier.outwait(vec![other], OwnWatch::AtOnce, &mut watches);
                    self.reader().run(waiting).await.map_err(|reason| self.lost(reason))??;
                }
                Upgrade::Clear(first) => {
                    match parent {
                        Ok(parent) => {
                            if let Some(writer) = self.trade([&first, &end.name], parent).await? {
                                barrier.disarm();
                                return Guard::grant(writer, Front { own: None }).await;
                            }
                        }
                        Err(error) => retry_acquire(&path, error).await?,
                    }
                    parent = client.data(&path).await;
                }
                Upgrade::Gone => return Err(self.gone()),
            }
            queue = barrier.list().await?;
        }
    }

    /// The error if the listing does not show the reader's node.
    fn gone(&mut self) -> AcquireError {
        let node = self.reader().node().clone();
        match self.reader().found_missing() {
            LossReason::NodeDeleted => AcquireError::NodeDeleted { node },
            reason => self.lost(reason),
        }
    }

    /// Performs the exchange; `None` if it may succeed after the queue has been listed again.
    async fn trade(
        &mut self,
        between: [&String; 2],
        parent: (Bytes, Stat),
    ) -> Result<Option<Contender>, AcquireError> {
        let reader = self.reader.take().expect("it is there until the exchange");
        match trade(&self.queue_handle, &reader, between, parent).await {
            Ok(writer) => {
                reader.dissolve();
                Ok(Some(writer))
            }
            Err(error) => {
                let is_answered = matches!(error, TransactionError::Failed { .. });
                let may_succeed_later = may_succeed_later(&error);
                let why = self.queue_handle.not_replaced(&reader, error);
                self.reader = is_answered.then_some(reader);
                if may_succeed_later { Ok(None) } else { Err(why) }
            }
        }
    }

    /// Returns the writer, or an error with the reader if it still holds the lock.
    fn ended(
        self,
        upgraded: Result<Guard, AcquireError>,
    ) -> Result<RwLockWriteGuard, UpgradeError> {
        let Self { queue_handle, reader, rides_out } = self;
        match upgraded {
            Ok(guard) => Ok(RwLockWriteGuard::new(guard.allowed(rides_out), queue_handle)),
            Err(error) => {
                let held = reader.filter(|reader| !matches!(reader.state(), HolderState::Lost(_)));
                let held = held.map(|reader| reader.allowed(rides_out));
                let reader =
                    held.map(|guard| Box::new(RwLockUpgradeableGuard { guard, queue_handle }));
                Err(UpgradeError { error, reader })
            }
        }
    }
}

/// Whether a failed exchange may succeed after the queue has been listed again.
fn may_succeed_later(error: &TransactionError) -> bool {
    // The first writer has left, so that readers behind it hold the lock, or the lock's own node was written.
    let later = |code: &ErrorCode| matches!(code, ErrorCode::NoNode | ErrorCode::BadVersion);
    matches!(error, TransactionError::Failed { code, .. } if later(code))
}

/// Replaces the reader and the barrier with the writer, provided that the first writer in the queue
/// still exists and keeps all others waiting. The write to the lock's own node shows earlier contenders
/// that a later transaction has minted a token.
async fn trade(
    queue_handle: &QueueHandle,
    reader: &Guard,
    [first, barrier]: [&String; 2],
    (data, stat): (Bytes, Stat),
) -> Result<Contender, TransactionError> {
    let path = queue_handle.path();
    let sibling = |name: &String| path.child(name).unwrap_or_else(|_| path.clone());
    let more = |steps: Transaction| {
        let steps = steps.check(&sibling(first), None).delete(&sibling(barrier), None);
        steps.set_data(path, data.clone(), Some(stat.version))
    };
    queue_handle.replace(reader, Kind::Write, more).await
}
