//! The counters, gauges and histograms of an engine.

pub(crate) mod counter;
pub(crate) mod histogram;
pub(crate) mod ops;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_tree::Stats;

use crate::metrics::counter::{Counter, Latency};
use crate::metrics::histogram::{Histogram, Reading};
use crate::metrics::ops::{Effect, Op, OpCounts};
use crate::storage::{DiskActivity, SyncTime};

/// Counters and the last known state, written by the engine's threads and readable by all.
pub(crate) struct Metrics {
    inner: Mutex<Inner>,
    /// How long commits took, syncs included.
    pub(crate) commits: Histogram,
    /// How long syncs of the log took, by concurrent activity, indexed by its number.
    pub(crate) syncs: [Histogram; DiskActivity::ALL.len()],
    /// How many requests were made durable by one commit.
    pub(crate) batches: Histogram,
    /// By kind of request: the time from its arrival until its reply is sent.
    requests: Vec<Histogram>,
    pub(crate) counters: Counters,
    /// The number of open files, and when they were counted.
    pub(crate) open_files: Mutex<Option<(Instant, i64)>>,
}

/// How often events happened since the start.
#[derive(Default)]
pub(crate) struct Counters {
    /// First frames of connections.
    pub(crate) handshakes: Counter,
    /// Connections over a limit: of all, of one origin, or of those that may begin a session.
    pub(crate) rejected: Counter,
    /// Connections that ended.
    pub(crate) dropped: Counter,
    /// Connections that ended because too much memory was used.
    pub(crate) dropped_for_memory: Counter,
    /// Sessions that expired.
    pub(crate) expired: Counter,
    /// Credentials that were refused.
    pub(crate) auth_failed: Counter,
    /// Requests over the frame limit.
    pub(crate) too_large: Counter,
    /// TLS handshakes that failed.
    pub(crate) tls_failed: Counter,
    /// Bytes of requests, including the lengths before them, as in the bytes sent.
    pub(crate) bytes_received: Counter,
    /// Bytes of replies and events.
    pub(crate) bytes_sent: Counter,
}

struct Inner {
    traffic: Traffic,
    stats: Stats,
    idle_since: Option<Instant>,
}

/// Traffic since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The time from a request's arrival until its reply is sent, by rounds.
    pub(crate) latency: Latency,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                traffic: Traffic::default(),
                stats: Stats::default(),
                idle_since: Some(Instant::now()),
            }),
            commits: Histogram::of_times(),
            syncs: DiskActivity::ALL.map(|_| Histogram::of_times()),
            batches: Histogram::of_sizes(),
            requests: Op::all().map(|_| Histogram::of_times()).collect(),
            counters: Counters::default(),
            open_files: Mutex::default(),
        }
    }

    /// Records that a commit was synced.
    pub(crate) fn synced(&self, SyncTime { during, took }: SyncTime) {
        self.syncs[during as usize].add_time(took, 1);
    }

    /// Records frames that have arrived, with the number of their bytes.
    pub(crate) fn received(&self, frames: usize, bytes: usize) {
        let bytes = bytes + frames * size_of::<i32>();
        self.lock().traffic.received += frames as u64;
        self.counters.bytes_received.add(bytes as u64);
    }

    /// Records that the replies and events of one round were sent, with the time since the round began.
    pub(crate) fn answered(
        &self,
        ops: &OpCounts,
        (replies, bytes): (usize, usize),
        took: Duration,
    ) {
        for (op, count) in ops.iter() {
            self.requests[usize::from(op.number())].add_time(took, count);
        }
        if replies == 0 {
            return;
        }

        self.counters.bytes_sent.add(bytes as u64);
        let traffic = &mut self.lock().traffic;
        traffic.latency.add(took);
        traffic.sent += replies as u64;
    }

    /// Records the state of the tree after a round.
    pub(crate) fn observe(&self, stats: Stats) {
        let mut inner = self.lock();
        inner.idle_since = match stats.sessions {
            0 => inner.idle_since.or_else(|| Some(Instant::now())),
            _ => None,
        };
        inner.stats = stats;
    }

    /// The times of one kind of request.
    pub(crate) fn requests(&self, op: Op) -> Reading {
        self.requests[usize::from(op.number())].read()
    }

    /// The times of all requests with this effect.
    pub(crate) fn requests_with(&self, effect: Effect) -> Reading {
        let of_effect = Op::all().filter(|op| op.effect() == effect);
        let all = Reading::merge(of_effect.map(|op| self.requests(op)));
        all.unwrap_or_else(|| Histogram::of_times().read())
    }

    /// Resets the traffic, as ZooKeeper's `srst` does.
    pub(crate) fn reset(&self) {
        self.lock().traffic = Traffic::default();
        self.commits.reset();
        self.syncs.iter().for_each(Histogram::reset);
        self.batches.reset();
        self.requests.iter().for_each(Histogram::reset);
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
