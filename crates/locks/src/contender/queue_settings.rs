//! The settings of a queue: its path, its profile, its kinds of contenders, and the limits of its sequence numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_client::{Listing, Sequence, ZnodePath};

use crate::contender::order::WaitQueue;
use crate::error::AcquireError;
use crate::exposure::Warned;
use crate::profile::{Kind, Profile};

/// From this number on, the log warns that the sequence numbers are nearly used up. Servers count them in an
/// `i32`, and libraries disagree on the order after an overflow.
const WARN_AT: i32 = 2_000_000_000;
const REFUSE_AT: i32 = i32::MAX - 100_000;

/// The settings of a queue, shared by its contenders.
#[derive(Debug)]
pub(crate) struct QueueSettings {
    pub(crate) path: ZnodePath,
    pub(crate) profile: Profile,
    /// The kinds of contenders that may be in the queue.
    pub(crate) kinds: &'static [Kind],
    pub(crate) warned: Warned,
    /// Whether the log already warns that the numbers are nearly used up.
    warned_of_numbers: AtomicBool,
}

impl QueueSettings {
    pub(crate) fn new(path: ZnodePath, profile: Profile, kinds: &'static [Kind]) -> Arc<Self> {
        let (warned, warned_of_numbers) = (Warned::default(), AtomicBool::new(false));
        Arc::new(Self { path, profile, kinds, warned, warned_of_numbers })
    }

    /// Reads a listing of the queue.
    pub(crate) fn read(&self, (names, stat): Listing) -> Result<WaitQueue, AcquireError> {
        let (path, profile) = (&self.path, self.profile);
        let mut queue = WaitQueue::read(names, profile, self.kinds).map_err(|foreign| {
            AcquireError::Foreign { path: path.clone(), profile, names: foreign.0 }
        })?;
        queue.set_listed(&stat);
        Ok(queue)
    }

    /// Refuses a number that is too close to the overflow.
    pub(crate) fn check_number(&self, sequence: Sequence) -> Result<(), AcquireError> {
        let path = &self.path;
        if sequence.0 < 0 || sequence.0 >= REFUSE_AT {
            return Err(AcquireError::Exhausted { path: path.clone(), sequence });
        }
        if sequence.0 >= WARN_AT && !self.warned_of_numbers.swap(true, Ordering::Relaxed) {
            tracing::warn!(%path, %sequence, "the path's sequence numbers are nearly used up");
        }
        Ok(())
    }
}
