//! What a handle knows of the time.

use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_client::Instant;

use crate::exact::shared_write::lock;
use crate::wall_clock::millis;

/// For how long it is believed how the servers' clock and this machine's differ.
const BELIEVED: Duration = Duration::from_secs(60);

/// The servers' clock, as the answers to writes have shown it. It is late by as long as such an answer took, so nothing
/// is due too early.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<(u64, Instant)>>);

impl ServerClock {
    /// Something was written at `unix_ms`, in milliseconds since 1970, and answered by `now`.
    pub(super) fn learn(&self, unix_ms: u64, now: Instant) {
        *lock(&self.0) = Some((unix_ms, now));
    }

    /// What it shows, in milliseconds since 1970; `None` if that is not known well enough.
    pub(super) fn at(&self, now: Instant) -> Option<u64> {
        let (unix_ms, then) = (*lock(&self.0))?;
        let since = now - then;
        (since < BELIEVED).then(|| unix_ms.saturating_add(millis(since)))
    }
}

/// When something was done last that is done now and then.
#[derive(Debug, Default)]
pub(super) struct LastTime(Mutex<Option<Instant>>);

impl LastTime {
    /// Whether it is to be done again: not more often than that. Then that is noted.
    pub(super) fn is_due(&self, every: Duration, now: Instant) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|last| now - last >= every);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
