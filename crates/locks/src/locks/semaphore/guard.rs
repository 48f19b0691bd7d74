//! The guard of held permits.

use crate::error::ReleaseError;
use crate::guard::{Guard, offers_guard};

/// One or more permits of a [`Semaphore`](crate::Semaphore). What a holder may believe and do is described at
/// [`Guard`].
#[must_use = "the permits are released when the guard is dropped"]
pub struct SemaphoreGuard {
    guard: Guard,
    permits: u32,
}

impl SemaphoreGuard {
    pub(crate) fn new(guard: Guard, permits: u32) -> Self {
        Self { guard, permits }
    }

    /// The number of held permits.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Releases the permits; see [`Guard::release`]. Costs one round trip.
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

offers_guard!(SemaphoreGuard, self => &self.guard);
