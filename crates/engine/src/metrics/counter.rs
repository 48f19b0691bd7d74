//! Counters, and times of which only the extremes and the mean are kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A count that only rises; any thread may add to it and read it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The shortest, the longest and the mean of some times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    count: u32,
    pub(crate) min: Duration,
    pub(crate) max: Duration,
    total: Duration,
}

impl Latency {
    pub(crate) fn add(&mut self, took: Duration) {
        self.min = if self.count == 0 { took } else { self.min.min(took) };
        self.max = self.max.max(took);
        self.total += took;
        self.count = self.count.saturating_add(1);
    }

    pub(crate) fn mean(&self) -> Duration {
        self.total.checked_div(self.count).unwrap_or_default()
    }
}
