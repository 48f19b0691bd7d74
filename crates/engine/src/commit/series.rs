//! Whether commits follow each other so closely that the next is worth looking out for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the commit thread looks out after a commit has begun, and after it was released, if it
/// began so soon after the one before. For its own groups, as being woken would be a part of each;
/// and beside commits of the tree thread that take less than this, to keep a processor awake.
pub(super) const LOOKOUT: Duration = Duration::from_micros(300);

/// The commits of both threads, one after the other. Either may look; one at a time commits.
#[derive(Debug)]
pub(super) struct Series {
    base: Instant,
    /// When the last commit began, or was released, in nanoseconds after `base`.
    last: AtomicU64,
    /// Whether it began soon after the one before.
    goes_on: AtomicBool,
}

impl Series {
    pub(super) fn new(base: Instant) -> Self {
        Self { base, last: AtomicU64::new(0), goes_on: AtomicBool::new(false) }
    }

    /// A commit begins. Whether it is so close to the last one that another may follow.
    pub(super) fn begin(&self, now: Instant) -> bool {
        let goes_on = self.is_recent(now);
        self.goes_on.store(goes_on, Ordering::Relaxed);
        self.mark(now);
        goes_on
    }

    /// A commit begins, or has been released. The threads may overtake each other between the clock
    /// and this.
    pub(super) fn mark(&self, now: Instant) {
        self.last.fetch_max(self.nanos(now), Ordering::Relaxed);
    }

    /// Whether a commit is under way, or may come at any moment.
    pub(super) fn expects_more(&self, now: Instant) -> bool {
        self.goes_on.load(Ordering::Relaxed) && self.is_recent(now)
    }

    fn is_recent(&self, now: Instant) -> bool {
        let since = self.nanos(now).saturating_sub(self.last.load(Ordering::Relaxed));
        Duration::from_nanos(since) < LOOKOUT
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
        let series = Series::new(start);
        assert!(!series.expects_more(start), "the first is still to come");
        assert!(!series.begin(at(1_000)));
        series.mark(at(1_100));
        assert!(!series.expects_more(at(1_101)), "a single one");
        assert!(series.begin(at(1_200)));
        assert!(series.expects_more(at(1_350)), "it is under way");
        series.mark(at(1_400));
        assert!(series.expects_more(at(1_699)));
        assert!(!series.expects_more(at(1_700)), "nobody came");
        assert!(!series.begin(at(1_701)));
        assert!(!series.expects_more(at(1_702)));
        series.mark(at(1_800));
        assert!(series.begin(at(1_900)));
    }
}
