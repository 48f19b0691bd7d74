//! The guard of a writer, which can become a reader without another writer in between.

use crate::acquire::queue_handle::QueueHandle;
use crate::contender::node::Front;
use crate::error::{AcquireError, ReleaseError};
use crate::guard::{Guard, offers_guard};
use crate::locks::rw_lock::read_guard::RwLockReadGuard;
use crate::profile::Kind;

/// An [`RwLock`](crate::RwLock) that is held for writing. What a holder may believe and do is described at
/// [`Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard {
    guard: Guard,
    queue_handle: QueueHandle,
}

impl RwLockWriteGuard {
    pub(crate) fn new(guard: Guard, queue_handle: QueueHandle) -> Self {
        Self { guard, queue_handle }
    }

    /// Becomes a reader in the writer's place: no other writer holds the lock in between, and waiting readers
    /// right behind it acquire it too. The token stays the same. Costs one round trip.
    ///
    /// # Errors
    /// If the lock is lost, or no server can be reached for a whole session timeout. In the second case it is
    /// given up.
    ///
    /// # Session loss
    /// The lock is lost.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the lock.
    pub async fn downgrade(self) -> Result<RwLockReadGuard, AcquireError> {
        let Self { guard, queue_handle } = self;
        let lost = |reason| AcquireError::Lost { path: guard.path().clone(), reason };
        let rides_out = guard.settle().await.map_err(lost)?;
        let reader = queue_handle.replace(&guard, Kind::Read, |steps| steps).await;
        let reader = reader.map_err(|error| queue_handle.not_replaced(&guard, error))?;
        let token = guard.token();
        guard.dissolve();
        let guard = Guard::grant(reader, Front { own: None }).await?.with_token(token);
        Ok(RwLockReadGuard::new(guard.allowed(rides_out)))
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

offers_guard!(RwLockWriteGuard, self => &self.guard);
