//! Detects that the engine is idle after a load, so that memory can be returned to the system
//! (`docs/decisions/0008-allocator.md`).

use std::time::Duration;

/// The length of an interval. Longer than an allocator like mimalloc keeps free memory for the next user (a second).
const INTERVAL: Duration = Duration::from_secs(2);
/// How many idle intervals are reported after a load: an allocator returns memory that was freed during the first only
/// when it is called again later.
const IDLE_REPORTS: u8 = 2;
/// The number of requests and changes up to which an interval counts as idle: the pings of some sessions.
const MAX_IDLE_LOAD: usize = 200;

/// Whether a load is over.
#[derive(Debug)]
pub(crate) struct IdleDetector {
    /// When the present interval began.
    since: Duration,
    /// The requests and ended connections of the present interval, and the changes that they and the time have made.
    load: usize,
    /// How many idle intervals are still to be reported after the last load.
    to_come: u8,
}

impl IdleDetector {
    pub(crate) fn new(now: Duration) -> Self {
        Self { since: now, load: 0, to_come: 0 }
    }

    pub(crate) fn count(&mut self, load: usize) {
        self.load += load;
    }

    /// Whether the last whole interval was idle. True [`IDLE_REPORTS`] times after each load. Must be called at least once per
    /// interval.
    pub(crate) fn has_begun(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.since) < INTERVAL {
            return false;
        }
        let few = self.load <= MAX_IDLE_LOAD;
        let come = few && self.to_come > 0;
        let to_come = if few { self.to_come.saturating_sub(1) } else { IDLE_REPORTS };
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
        let loads = [
            0,
            MAX_IDLE_LOAD,
            MAX_IDLE_LOAD + 1,
            100_000,
            MAX_IDLE_LOAD,
            3,
            0,
            1_000,
            0,
            1_000,
            0,
            0,
            0,
        ];
        let come: Vec<bool> = loads.iter().map(|&load| after(&mut rest, load)).collect();
        let expected: Vec<bool> = "....RR..R.RR.".chars().map(|mark| mark == 'R').collect();
        assert_eq!(come, expected);
    }
}
