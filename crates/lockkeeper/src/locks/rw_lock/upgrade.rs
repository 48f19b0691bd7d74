//! The guard of an upgradeable reader, which can become a writer without another one in between.
//!
//! At most one reader at a time has this right, so that no two can wait for each other. Why the
//! steps are what they are: `docs/decisions/0003-upgrades.md`.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Error, ErrorCode, Stat, Transaction, TransactionError};

use crate::acquire::entrance::{Entrance, once_within};
use crate::contender::node::{Contender, Front};
use crate::contender::order::upgrade::Upgrade;
use crate::contender::waiting::OwnWatch;
use crate::contender::watches::Watches;
use crate::error::{AcquireError, ReleaseError};
use crate::guard::state::State;
use crate::guard::{Guard, offers_guard};
use crate::locks::rw_lock::write_guard::RwLockWriteGuard;
use crate::profile::Kind;
use crate::retry::{is_transient, retry_acquire};

/// An [`RwLock`](crate::RwLock) that is held for reading, with the right to write later. What a
/// holder may believe and do is described at [`Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockUpgradeableGuard {
    guard: Guard,
    entrance: Entrance,
}

impl RwLockUpgradeableGuard {
    pub(crate) fn new(guard: Guard, entrance: Entrance) -> Self {
        Self { guard, entrance }
    }

    /// Becomes a writer in the reader's place when the other readers have left. No other writer gets
    /// in between, and no new readers get in. It overtakes the contenders that wait. The token is a new
    /// one. Costs two round trips, and two more and an event for each reader that it waits for.
    ///
    /// # Errors
    /// If the lock is lost, or no server can be reached for a whole session timeout. Then it is
    /// given up.
    ///
    /// # Session loss
    /// Is the loss of the lock.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the lock.
    pub async fn upgrade(self) -> Result<RwLockWriteGuard, AcquireError> {
        let Self { guard, entrance } = self;
        let lost = |reason| AcquireError::Lost { path: entrance.path().clone(), reason };
        let rides_out = guard.settle().await.map_err(lost)?;
        let writer = clear_the_way(&entrance, &guard).await?;
        guard.dissolve();
        let guard = Guard::grant(writer, Front { own: None }).await?;
        Ok(RwLockWriteGuard::new(guard.allowed(rides_out), entrance))
    }

    /// [`RwLockUpgradeableGuard::upgrade`], but not for longer than `timeout`, which covers everything. Costs
    /// what [`RwLockUpgradeableGuard::upgrade`] does.
    ///
    /// # Errors
    /// As [`RwLockUpgradeableGuard::upgrade`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Is the loss of the lock.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the lock.
    pub async fn upgrade_timeout(
        self,
        timeout: Duration,
    ) -> Result<RwLockWriteGuard, AcquireError> {
        let (client, path) = (self.entrance.client.clone(), self.path().clone());
        once_within(&client, &path, timeout, self.upgrade()).await
    }

    /// Gives the lock back; see [`Guard::release`]. Costs one round trip.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Session loss
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// The release goes on in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }
}

offers_guard!(RwLockUpgradeableGuard, self => &self.guard);

/// Puts a writer in the place of the reader as soon as it is the only holder.
async fn clear_the_way(entrance: &Entrance, reader: &Guard) -> Result<Contender, AcquireError> {
    let path = entrance.path();
    let lost = |reason| AcquireError::Lost { path: path.clone(), reason };
    // For the exchange below: its write of the lock's own node names the version that was read.
    let asked = entrance.client.data(path);
    // At the end of the queue it keeps new readers out.
    let (mut barrier, mut queue) = entrance.enter(Kind::Write).await?;

    let mut parent = asked.await;
    let mut watches = Watches::default();
    loop {
        let Some(end) = queue.places().iter().find(|place| Some(&*place.name) == barrier.name())
        else {
            return Err(barrier.deleted());
        };

        match queue.upgrade(reader.node().name()) {
            Upgrade::WaitOn(other) => {
                let waiting = barrier.outwait(vec![other], OwnWatch::AtOnce, &mut watches);
                reader.run(waiting).await.map_err(lost)??;
                queue = barrier.list().await?;
            }
            Upgrade::Clear(first) => {
                match trade(entrance, reader, [&first, &end.name], parent).await {
                    Ok(writer) => {
                        barrier.disarm();
                        return Ok(writer);
                    }
                    Err(error) if !may_succeed_later(&error) => {
                        return Err(entrance.not_replaced(reader, error));
                    }
                    Err(error) => {
                        if let TransactionError::Request(error) = error {
                            retry_acquire(path, error).await?;
                        }
                        parent = entrance.client.data(path).await;
                        queue = barrier.list().await?;
                    }
                }
            }
            Upgrade::Gone => {
                return Err(match reader.state() {
                    State::Lost(reason) => lost(reason),
                    _ => AcquireError::NodeDeleted { node: reader.node().clone() },
                });
            }
        }
    }
}

/// Whether an exchange that failed may succeed when the queue has been listed again.
fn may_succeed_later(error: &TransactionError) -> bool {
    match error {
        TransactionError::Request(error) => is_transient(error),
        // The first writer has left, and readers behind it hold now; or the lock's own node was written to.
        TransactionError::Failed { code, .. } => {
            matches!(code, ErrorCode::NoNode | ErrorCode::BadVersion)
        }
        _ => false,
    }
}

/// Replaces the reader and the barrier by the writer, provided that the first writer in the queue is
/// still there and keeps all others waiting. The write to the lock's own node tells contenders that
/// came earlier that a later transaction has made a token.
async fn trade(
    entrance: &Entrance,
    reader: &Guard,
    [first, barrier]: [&String; 2],
    parent: Result<(Bytes, Stat), Error>,
) -> Result<Contender, TransactionError> {
    let (data, stat) = parent?;
    let path = entrance.path();
    let sibling = |name: &String| path.child(name).unwrap_or_else(|_| path.clone());
    let more = |steps: Transaction| {
        let steps = steps.check(&sibling(first), None).delete(&sibling(barrier), None);
        steps.set_data(path, data.clone(), Some(stat.version))
    };
    entrance.replace(reader, Kind::Write, more).await
}
