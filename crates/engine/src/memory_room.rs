//! The memory that the process really has, and what may grow when that is nearly all there is.
//!
//! The budgets count what the engine asks its allocator for. The allocator may keep several times as
//! much: of a page with one node left, nothing goes back to the system, and nodes of another size do not
//! fit into its gaps. A process that takes all of the memory is ended by the system, and every client
//! loses it. So the data stops growing before, as with a disk that fills up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_tree::Growth;
use tokio::time::sleep;

use crate::files::read_kernel_file;

/// Into how many parts the limit is divided, and from how many of them on memory is given back, nothing
/// but locks grows, and nothing grows at all.
const PARTS: u64 = 16;
const RECYCLE: u64 = 13;
const LOCKS: u64 = 14;
const NOTHING: u64 = 15;

/// How often memory is given back at most. Clients wait meanwhile, for some milliseconds.
const RECYCLE_INTERVAL: Duration = Duration::from_secs(5);

/// How fast the memory of a process may grow, in bytes per second: faster than requests arrive. With so
/// much to go, it is looked at again before it can have passed the next threshold.
const FASTEST: u64 = 2 * 1024 * 1024 * 1024;
/// How often the memory is looked at, whatever there is of it.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// How often it is looked at while nothing may grow.
const FULL_INTERVAL: Duration = Duration::from_millis(100);

/// How much memory the process has, for all threads to read.
#[derive(Debug, Default)]
pub(crate) struct MemoryRoom {
    used: AtomicU64,
    limit: AtomicU64,
    /// Whether there is too little for locks, too.
    is_full: AtomicBool,
}

impl MemoryRoom {
    /// Bytes that the process has; 0 if nobody has looked.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How many it may have before the system ends it.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether nothing may grow, locks included.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// What is to be done about the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// From now on, so much may grow.
    Grow(Growth),
    /// What is free is to be given back to the system.
    Recycle,
}

/// What looks at the memory of the process.
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

    /// Tells what is to be done, whenever that is something else. Ends where `used`, the bytes that the
    /// process has, is not known.
    pub(crate) async fn watch(mut self, used: impl Fn() -> Option<u64>, tell: impl Fn(Measure)) {
        while let Some(used) = used() {
            self.room.used.store(used, Ordering::Relaxed);
            if self.is_recycling_due(used, Instant::now()) {
                tell(Measure::Recycle);
            }

            let growth = next(self.growth, used, self.limit);
            if growth != self.growth {
                self.log(growth, used);
                self.growth = growth;
                self.room.is_full.store(growth == Growth::Nothing, Ordering::Relaxed);
                tell(Measure::Grow(growth));
            }
            sleep(interval(growth, used, self.limit)).await;
        }
    }

    /// Whether memory is to be given back now: before anything is refused, and again while there is
    /// little, as it may have become free since.
    fn is_recycling_due(&mut self, used: u64, now: Instant) -> bool {
        let is_recent = self.recycled_at.is_some_and(|at| now - at < RECYCLE_INTERVAL);
        let is_due = used >= parts(self.limit, RECYCLE) && !is_recent;
        if is_due {
            self.recycled_at = Some(now);
        }
        is_due
    }

    fn log(&self, growth: Growth, used: u64) {
        let limit = self.limit;
        match growth {
            Growth::All => tracing::info!(used, limit, "there is enough memory again"),
            Growth::Locks => tracing::warn!(
                used,
                limit,
                "the process has nearly all the memory that the machine and its limits give it: nothing \
                 but small ephemeral nodes and containers is created until it has less"
            ),
            Growth::Nothing => tracing::error!(
                used,
                limit,
                "the process has all but the last of the memory that the machine and its limits give it: \
                 nothing is created until it has less; reads, sessions and deletes go on"
            ),
        }
    }
}

/// What may grow when the process has `used` of `limit` bytes. It must have a little less to go back than
/// to stop, so that the log does not tell of each page.
fn next(now: Growth, used: u64, limit: u64) -> Growth {
    let margin = limit / (2 * PARTS);
    let (locks, nothing) = (parts(limit, LOCKS), parts(limit, NOTHING));
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

/// After what time to look again.
fn interval(growth: Growth, used: u64, limit: u64) -> Duration {
    let threshold = match growth {
        Growth::All if used < parts(limit, RECYCLE) => parts(limit, RECYCLE),
        Growth::All => parts(limit, LOCKS),
        Growth::Locks => parts(limit, NOTHING),
        Growth::Nothing => return FULL_INTERVAL,
    };
    let left = threshold.saturating_sub(used);
    let micros = left.saturating_mul(1_000_000) / FASTEST;
    Duration::from_micros(micros).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

fn parts(limit: u64, count: u64) -> u64 {
    limit / PARTS * count
}

/// The bytes of memory that this process has, without the pages of files, which the system takes back
/// when it needs memory; `None` where the system does not tell.
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

    /// At any speed that requests have, it is looked at before a threshold is far behind.
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
