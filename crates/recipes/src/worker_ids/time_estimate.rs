//! An estimate of the servers' time, from the answers to writes. No I/O.

use lockkeeper_client::Instant;

use crate::wall_clock::millis;

/// The servers' time, in milliseconds since 1970. Between two answers it follows this machine's monotonic clock, so
/// that only the wall clock of the servers counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeEstimate {
    unix_ms: u64,
    at: Instant,
}

impl TimeEstimate {
    /// The servers' time was at least `unix_ms` at `at`.
    pub(super) fn new(unix_ms: u64, at: Instant) -> Self {
        Self { unix_ms, at }
    }

    pub(super) fn at(&self, now: Instant) -> u64 {
        self.unix_ms.saturating_add(millis(now.since(self.at)))
    }

    /// A write that was first sent at `asked`, and confirmed at `answered`, has this time. So the servers' time is
    /// now at least `unix_ms`, and at most that plus the time since `asked`.
    pub(super) fn learn(&mut self, unix_ms: u64, asked: Instant, answered: Instant) {
        let most = unix_ms.saturating_add(millis(answered.since(asked)) + 1);
        *self = Self { unix_ms: self.at(answered).clamp(unix_ms, most), at: answered };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_late_answer_says_little_and_a_quick_one_much() {
        let at = |ms| Instant::from_start(Duration::from_millis(ms));
        let mut time = TimeEstimate::new(1_000_000, at(500));
        assert_eq!(time.at(at(800)), 1_000_300);
        // It took 15 seconds.
        time.learn(1_001_000, at(1_000), at(16_000));
        assert_eq!(time.at(at(16_000)), 1_015_500);
        // The servers' clock was set forward, and back.
        time.learn(4_000_000, at(17_000), at(17_010));
        assert_eq!(time.at(at(17_010)), 4_000_000);
        time.learn(1_000_000, at(18_000), at(18_010));
        assert_eq!(time.at(at(18_010)), 1_000_011);
    }
}
