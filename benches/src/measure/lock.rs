//! What any lock must be able to do to be measured.

use std::future::Future;

use anyhow::Result;
use lockkeeper::{Election, Leadership, Mutex, MutexGuard, Semaphore, SemaphoreGuard};

/// A lock as one of its users sees it.
pub(crate) trait Lock: Send + 'static {
    /// The proof of holding it.
    type Guard: Send;

    /// Waits for the lock.
    fn acquire(&mut self) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// Gives it back, and waits until that is certain.
    fn release(&mut self, guard: Self::Guard) -> impl Future<Output = Result<()>> + Send;

    /// Gives it back without waiting. The next [`Lock::acquire`] must not overtake it.
    fn let_go(&mut self, guard: Self::Guard) {
        drop(guard);
    }
}

macro_rules! is_lock {
    ($lock:ty, $guard:ty, $acquire:ident, $release:ident) => {
        impl Lock for $lock {
            type Guard = $guard;

            async fn acquire(&mut self) -> Result<$guard> {
                Ok(<$lock>::$acquire(self).await?)
            }

            async fn release(&mut self, guard: $guard) -> Result<()> {
                Ok(guard.$release().await?)
            }
        }
    };
}

is_lock!(Mutex, MutexGuard, acquire, release);
is_lock!(Semaphore, SemaphoreGuard, acquire, release);
// Whoever leads has it.
is_lock!(Election, Leadership, campaign, resign);
