//! What the engine counts.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_tree::Stats;

/// Counters and the last known state, written by the engine's threads and read by anyone.
pub(crate) struct Metrics {
    inner: Mutex<Inner>,
}

struct Inner {
    traffic: Traffic,
    stats: Stats,
    idle_since: Option<Instant>,
}

/// What went through since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    rounds: u32,
    shortest: Duration,
    longest: Duration,
    total: Duration,
}

impl Traffic {
    /// Shortest, mean and longest time from a request's arrival to its reply's way out.
    pub(crate) fn latency(&self) -> (Duration, Duration, Duration) {
        let mean = self.total.checked_div(self.rounds).unwrap_or_default();
        (self.shortest, mean, self.longest)
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                traffic: Traffic::default(),
                stats: Stats::default(),
                idle_since: Some(Instant::now()),
            }),
        }
    }

    pub(crate) fn received(&self, frames: usize) {
        self.lock().traffic.received += frames as u64;
    }

    /// Replies and events of one round have left, so long after the round began.
    pub(crate) fn answered(&self, replies: usize, took: Duration) {
        if replies == 0 {
            return;
        }
        let traffic = &mut self.lock().traffic;
        traffic.shortest = match traffic.sent {
            0 => took,
            _ => traffic.shortest.min(took),
        };
        traffic.longest = traffic.longest.max(took);
        traffic.total += took;
        traffic.rounds = traffic.rounds.saturating_add(1);
        traffic.sent += replies as u64;
    }

    /// The tree as it is after a round.
    pub(crate) fn observe(&self, stats: Stats) {
        let mut inner = self.lock();
        inner.idle_since = match stats.sessions {
            0 => inner.idle_since.or_else(|| Some(Instant::now())),
            _ => None,
        };
        inner.stats = stats;
    }

    pub(crate) fn stats(&self) -> Stats {
        self.lock().stats
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.lock().traffic
    }

    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.lock().idle_since
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_begins_when_the_last_session_ends_and_not_again_later() {
        let metrics = Metrics::new();
        assert!(metrics.idle_since().is_some());
        let with = |sessions| Stats { sessions, ..Stats::default() };
        metrics.observe(with(2));
        assert_eq!(metrics.idle_since(), None);
        metrics.observe(with(0));
        let since = metrics.idle_since();
        assert!(since.is_some());
        metrics.observe(with(0));
        assert_eq!(metrics.idle_since(), since);
    }
}
