//! What any lock must be able to do to be measured.

use std::future::Future;

use anyhow::Result;
use lockkeeper::{Election, Leadership, Mutex, MutexGuard};

/// A lock as one of its users sees it.
pub(crate) trait Lock: Send + 'static {
    /// The proof of holding it.
    type Guard: Send;
    /// What can go wrong.
    type Error: Send + 'static;

    /// Waits for the lock.
    fn acquire(&mut self) -> impl Future<Output = Result<Self::Guard, Self::Error>> + Send;

    /// Gives it back, and waits until that is certain.
    fn release(
        &mut self,
        guard: Self::Guard,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Gives it back without waiting. The next [`Lock::acquire`] must not overtake it.
    fn let_go(&mut self, guard: Self::Guard);
}

impl Lock for Mutex {
    type Guard = MutexGuard;
    type Error = anyhow::Error;

    async fn acquire(&mut self) -> Result<MutexGuard> {
        Ok(Mutex::acquire(self).await?)
    }

    async fn release(&mut self, guard: MutexGuard) -> Result<()> {
        Ok(guard.release().await?)
    }

    fn let_go(&mut self, guard: MutexGuard) {
        drop(guard);
    }
}

/// Whoever leads has it.
impl Lock for Election {
    type Guard = Leadership;
    type Error = anyhow::Error;

    async fn acquire(&mut self) -> Result<Leadership> {
        Ok(Election::campaign(self).await?)
    }

    async fn release(&mut self, leadership: Leadership) -> Result<()> {
        Ok(leadership.resign().await?)
    }

    fn let_go(&mut self, leadership: Leadership) {
        drop(leadership);
    }
}
