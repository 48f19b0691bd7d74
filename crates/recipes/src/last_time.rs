//! When something was done last that a handle does now and then.

use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_client::Instant;

use crate::exact::shared_write::lock;

/// When something was done last that is done now and then.
#[derive(Debug, Default)]
pub(crate) struct LastTime(Mutex<Option<Instant>>);

impl LastTime {
    /// Whether it is to be done again: not more often than that. Then that is noted.
    pub(crate) fn is_due(&self, every: Duration, now: Instant) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|last| now - last >= every);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
