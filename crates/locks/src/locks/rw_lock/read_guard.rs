//! The guard of a reader.

use crate::error::ReleaseError;
use crate::guard::{Guard, offers_guard};

/// An [`RwLock`](crate::RwLock) that is held for reading. What a holder may believe and do is
/// described at [`Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard {
    guard: Guard,
}

impl RwLockReadGuard {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard }
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

offers_guard!(RwLockReadGuard, self => &self.guard);
