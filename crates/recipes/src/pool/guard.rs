//! [`PoolGuard`]: a thing that this program holds.

use std::fmt;

use lockkeeper_locks::{Guard, ReleaseError};

use crate::exact::AttemptNode;

/// A thing of a [`Pool`](crate::Pool) that this program holds. The rules of [`Guard`] apply: no other program has
/// the thing before [`Guard::deadline`], and [`Guard::lost`] returns when one may.
#[must_use = "the thing is given back when it is dropped"]
pub struct PoolGuard {
    name: String,
    // Dropped before the place.
    guard: Guard,
    /// The holder's place that it uses.
    place: Option<AttemptNode>,
}

impl PoolGuard {
    pub(super) fn new(name: String, guard: Guard, place: Option<AttemptNode>) -> Self {
        Self { name, guard, place }
    }

    /// The name of the thing.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the thing back, and waits until a server has confirmed it. Costs two round trips.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Session loss
    /// The release fails; the thing was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let Self { guard, place, .. } = self;
        // Sent first, so that it is gone when the answer comes.
        drop(place);
        guard.release().await
    }
}

/// The same as a guard.
impl std::ops::Deref for PoolGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// Displays the thing and its state.
impl fmt::Debug for PoolGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolGuard").field("name", &self.name).field("guard", &self.guard).finish()
    }
}
