//! The time of the last run of a job that a handle repeats.

use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_client::Instant;

use crate::exact::shared_write::lock;

/// The time of the last run of a repeated job.
#[derive(Debug, Default)]
pub(crate) struct LastTime(Mutex<Option<Instant>>);

impl LastTime {
    /// Whether the job is due: at most once in this time. If so, records this run.
    pub(crate) fn is_due(&self, every: Duration, now: Instant) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|last| now - last >= every);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
