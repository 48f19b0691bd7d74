//! Detects whether groups of commits follow each other so closely that polling for the next is worthwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The groups of the commit thread, one after the other.
#[derive(Debug)]
pub(crate) struct CommitSeries {
    base: Instant,
    /// The largest gap in a series; zero disables series.
    window: Duration,
    /// When the last group began or was released, in nanoseconds after `base`.
    last: AtomicU64,
    /// Whether it began soon after the previous one.
    goes_on: AtomicBool,
}

impl CommitSeries {
    pub(crate) fn new(base: Instant, window: Duration) -> Self {
        Self { base, window, last: AtomicU64::new(0), goes_on: AtomicBool::new(false) }
    }

    /// Records that a group begins to be committed.
    pub(crate) fn begin(&self, now: Instant) {
        self.goes_on.store(self.is_recent(now), Ordering::Relaxed);
        self.mark(now);
    }

    /// Records that a group begins or has been released.
    pub(crate) fn mark(&self, now: Instant) {
        self.last.store(self.nanos(now), Ordering::Relaxed);
    }

    /// Whether another group may come at any moment.
    pub(crate) fn expects_more(&self, now: Instant) -> bool {
        self.goes_on.load(Ordering::Relaxed) && self.is_recent(now)
    }

    fn is_recent(&self, now: Instant) -> bool {
        let since = self.nanos(now).saturating_sub(self.last.load(Ordering::Relaxed));
        Duration::from_nanos(since) < self.window
    }

    fn nanos(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.base).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_two_commits_in_close_succession_until_nothing_follows() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let series = CommitSeries::new(start, Duration::from_micros(300));
        assert!(!series.expects_more(start), "the first is still to come");
        series.begin(at(1_000));
        series.mark(at(1_100));
        assert!(!series.expects_more(at(1_101)), "a single one");
        series.begin(at(1_200));
        assert!(series.expects_more(at(1_350)), "it is under way");
        series.mark(at(1_400));
        assert!(series.expects_more(at(1_699)));
        assert!(!series.expects_more(at(1_700)), "nobody came");
        series.begin(at(1_701));
        assert!(!series.expects_more(at(1_702)));
        series.mark(at(1_800));
        series.begin(at(1_900));
        assert!(series.expects_more(at(1_901)));
    }

    #[test]
    fn nothing_is_worth_polling_for_when_spinning_is_off() {
        let start = Instant::now();
        let series = CommitSeries::new(start, Duration::ZERO);
        series.begin(start);
        series.begin(start);
        assert!(!series.expects_more(start));
    }
}
