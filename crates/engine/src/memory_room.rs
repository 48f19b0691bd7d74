//! The memory that the process uses, and the limits on growth when that is nearly all.
//!
//! The budgets count the memory that the engine requests from its allocator. The allocator may hold several times as
//! much: a page with a single node left is not returned to the system, and nodes of another size do not fit into its
//! gaps. The system kills a process that uses all memory, and then every client loses the engine. So the data stops
//! growing earlier, as with a disk that fills up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_tree::Growth;
use tokio::time::sleep;

use crate::files::read_kernel_file;

/// The number of parts into which the limit is divided, and how many of them must be in use for memory to be returned
/// to the system, for only locks to grow, and for all growth to stop.
const PARTS: u64 = 16;
const RECYCLE_PARTS: u64 = 13;
const LOCKS_ONLY_PARTS: u64 = 14;
const FULL_PARTS: u64 = 15;

/// The shortest interval between two returns of memory. Clients wait for some milliseconds during each.
const RECYCLE_INTERVAL: Duration = Duration::from_secs(5);

/// The fastest growth of a process, in bytes per second: faster than requests arrive. The memory is checked again
/// before growth at this rate can pass the next threshold.
const MAX_GROWTH_RATE: u64 = 2 * 1024 * 1024 * 1024;
/// The bounds on the interval between two checks.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// The interval between two checks while growth is stopped.
const FULL_INTERVAL: Duration = Duration::from_millis(100);

/// The memory in use by the process, readable by all threads.
#[derive(Debug, Default)]
pub(crate) struct MemoryRoom {
    used: AtomicU64,
    limit: AtomicU64,
    /// Whether there is too little memory even for locks.
    is_full: AtomicBool,
}

impl MemoryRoom {
    /// The bytes in use by the process; 0 before the first check.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes that the process can use before the system kills it.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether all growth is stopped, that of locks included.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// A measure against a shortage of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryAction {
    /// Only this growth is allowed from now on.
    Grow(Growth),
    /// Return free memory to the system.
    Recycle,
}

/// Monitors the memory of the process.
pub(crate) struct MemoryGauge {
    room: Arc<MemoryRoom>,
    limit: u64,
    growth: Growth,
    recycled_at: Option<Instant>,
}

impl MemoryGauge {
    pub(crate) fn new(limit: u64, room: Arc<MemoryRoom>) -> Self {
        room.limit.store(limit, Ordering::Relaxed);
        Self { room, limit, growth: Growth::All, recycled_at: None }
    }

    /// Passes on each measure when it changes. Ends if `used`, the bytes in use by the process, is unknown.
    pub(crate) async fn watch(
        mut self,
        used: impl Fn() -> Option<u64>,
        tell: impl Fn(MemoryAction),
    ) {
        while let Some(used) = used() {
            self.room.used.store(used, Ordering::Relaxed);
            if self.is_recycling_due(used, Instant::now()) {
                tell(MemoryAction::Recycle);
            }

            let growth = next(self.growth, used, self.limit);
            if growth != self.growth {
                self.log(growth, used);
                self.growth = growth;
                self.room.is_full.store(growth == Growth::Nothing, Ordering::Relaxed);
                tell(MemoryAction::Grow(growth));
            }
            sleep(interval(growth, used, self.limit)).await;
        }
    }

    /// Whether memory is to be returned now: before any request is refused, and again while memory is short, as more
    /// may have become free.
    fn is_recycling_due(&mut self, used: u64, now: Instant) -> bool {
        let is_recent = self.recycled_at.is_some_and(|at| now - at < RECYCLE_INTERVAL);
        let is_due = used >= parts(self.limit, RECYCLE_PARTS) && !is_recent;
        if is_due {
            self.recycled_at = Some(now);
        }
        is_due
    }

    fn log(&self, growth: Growth, used: u64) {
        let limit = self.limit;
        match growth {
            Growth::All => tracing::info!(used, limit, "enough memory is available again"),
            Growth::Locks => tracing::warn!(
                used,
                limit,
                "the process uses nearly all memory that the machine and its limits allow: until it uses \
                 less, only small ephemeral nodes and containers are created"
            ),
            Growth::Nothing => tracing::error!(
                used,
                limit,
                "the process is about to use all memory that the machine and its limits allow: until it uses \
                 less, no nodes are created; reads, sessions and deletes continue"
            ),
        }
    }
}

/// The growth allowed when the process uses `used` of `limit` bytes. It must fall slightly below the threshold before
/// growth resumes, so that single pages do not fill the log.
fn next(now: Growth, used: u64, limit: u64) -> Growth {
    let margin = limit / (2 * PARTS);
    let (locks, nothing) = (parts(limit, LOCKS_ONLY_PARTS), parts(limit, FULL_PARTS));
    let (locks, nothing) = match now {
        Growth::All => (locks, nothing),
        Growth::Locks => (locks - margin, nothing),
        Growth::Nothing => (locks - margin, nothing - margin),
    };
    match used {
        used if used >= nothing => Growth::Nothing,
        used if used >= locks => Growth::Locks,
        _ => Growth::All,
    }
}

/// The time until the next check.
fn interval(growth: Growth, used: u64, limit: u64) -> Duration {
    let threshold = match growth {
        Growth::All if used < parts(limit, RECYCLE_PARTS) => parts(limit, RECYCLE_PARTS),
        Growth::All => parts(limit, LOCKS_ONLY_PARTS),
        Growth::Locks => parts(limit, FULL_PARTS),
        Growth::Nothing => return FULL_INTERVAL,
    };
    let left = threshold.saturating_sub(used);
    let micros = left.saturating_mul(1_000_000) / MAX_GROWTH_RATE;
    Duration::from_micros(micros).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

fn parts(limit: u64, count: u64) -> u64 {
    limit / PARTS * count
}

/// The bytes of memory that this process uses, without pages of files, which the system reclaims when it needs memory;
/// `None` if the system does not report it.
pub(crate) fn resident() -> Option<u64> {
    anonymous_of(&read_kernel_file("/proc/self/status").ok()?)
}

/// The line `RssAnon:   13484 kB` of `/proc/self/status`, in bytes.
fn anonymous_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_stops_in_two_steps_and_comes_back_a_little_later() {
        use Growth::{All, Locks, Nothing};
        let mut growth = All;
        let used = [0, 279, 280, 299, 300, 290, 289, 270, 269, 280, 270, 320, 1_000, 280, 300, 0];
        let seen = used.map(|used| {
            growth = next(growth, used, 320);
            growth
        });
        let expected = [
            All, All, Locks, Locks, Nothing, Nothing, Locks, Locks, All, Locks, Locks, Nothing,
            Nothing, Locks, Nothing, All,
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn memory_is_given_back_before_anything_is_refused_and_not_all_the_time() {
        let mut gauge = MemoryGauge::new(320, Arc::default());
        let start = Instant::now();
        let mut due =
            |used, seconds| gauge.is_recycling_due(used, start + Duration::from_secs(seconds));
        assert!(!due(259, 0));
        assert!(due(260, 0) && next(Growth::All, 260, 320) == Growth::All);
        assert!(!due(320, 4));
        assert!(due(320, 5) && !due(320, 9) && due(320, 10));
    }

    /// At any rate of requests, the memory is checked soon after a threshold is passed.
    #[test]
    fn the_memory_is_looked_at_more_often_the_less_is_left() {
        const GB: u64 = 1 << 30;
        let of = |growth, used, limit| interval(growth, used, limit).as_millis();
        assert_eq!(of(Growth::All, 0, 24 * GB), 1_000);
        assert_eq!(of(Growth::All, 0, GB), 406, "13 parts of 16, at 2 GiB a second");
        assert_eq!(of(Growth::All, GB / 16 * 13, GB), 31);
        assert_eq!(of(Growth::All, GB / 16 * 13 - 1, GB), 10);
        assert_eq!(of(Growth::Locks, GB / 16 * 14, GB), 31);
        assert_eq!(of(Growth::Locks, GB / 16 * 15 - 1, GB), 10);
        assert_eq!(of(Growth::Nothing, GB, GB), 100);
    }

    #[test]
    fn the_system_tells_what_the_process_has() {
        let text = "VmRSS:\t   20000 kB\nRssAnon:\t   13484 kB\nRssFile:\t    6516 kB\n";
        assert_eq!(anonymous_of(text), Some(13_484 * 1024));
        assert_eq!(anonymous_of("VmRSS:\t   20000 kB\n"), None);
        if cfg!(target_os = "linux") {
            let memory = vec![1_u8; 64 << 20];
            let used = resident().unwrap();
            assert!(used > memory.len() as u64, "{used}");
        }
    }
}
