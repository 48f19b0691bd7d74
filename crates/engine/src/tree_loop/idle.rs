//! Notices that the engine is idle after a load, when memory is returned to the system
//! (`docs/decisions/0008-allocator.md`).

use std::time::Duration;

/// How often it is asked whether the engine is idle. Longer than an allocator like mimalloc keeps
/// free memory for the next who wants some (a second).
const INTERVAL: Duration = Duration::from_secs(2);
/// How often an idle interval counts after a load: what was freed the first time, an allocator gives
/// back when it is asked again later.
const TIMES: u8 = 2;
/// Up to how many requests and changes an interval counts as idle: some sessions' pings.
const FEW: usize = 200;

/// Whether a load is over.
#[derive(Debug)]
pub(crate) struct IdleDetector {
    /// When the present interval began.
    since: Duration,
    /// The requests and ends of connections of the present interval, and what they and the time have
    /// changed.
    load: usize,
    /// How many idle intervals are still to count, as there was more to do lately.
    to_come: u8,
}

impl IdleDetector {
    pub(crate) fn new(now: Duration) -> Self {
        Self { since: now, load: 0, to_come: 0 }
    }

    pub(crate) fn count(&mut self, load: usize) {
        self.load += load;
    }

    /// Whether the last whole interval was idle. True [`TIMES`] times after each load.
    /// To be asked at least once an interval.
    pub(crate) fn has_begun(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.since) < INTERVAL {
            return false;
        }
        let few = self.load <= FEW;
        let come = few && self.to_come > 0;
        let to_come = if few { self.to_come.saturating_sub(1) } else { TIMES };
        *self = Self { since: now, load: 0, to_come };
        come
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_comes_twice_after_each_load() {
        let start = Duration::from_secs(1_000);
        let mut rest = IdleDetector::new(start);
        let mut seconds = 0;
        let mut after = |rest: &mut IdleDetector, requests| {
            rest.count(requests);
            seconds += 2;
            let come = rest.has_begun(start + Duration::from_secs(seconds));
            assert!(!rest.has_begun(start + Duration::from_secs(seconds + 1)), "too soon");
            come
        };
        let loads = [0, FEW, FEW + 1, 100_000, FEW, 3, 0, 1_000, 0, 1_000, 0, 0, 0];
        let come: Vec<bool> = loads.iter().map(|&load| after(&mut rest, load)).collect();
        let expected: Vec<bool> = "....RR..R.RR.".chars().map(|mark| mark == 'R').collect();
        assert_eq!(come, expected);
    }
}
