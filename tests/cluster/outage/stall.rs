//! For how long this machine itself stood still, which is an outage that nobody has made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often the machine is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A machine where programs are late for more than this share of the time has other work to do:
/// a lease passes through several of them, and each adds to what it loses.
const BUSY: f64 = 0.2;

/// Looks at the machine until it is dropped.
pub(crate) struct Stalls {
    start: Instant,
    longest_ns: Arc<AtomicU64>,
    total_ns: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let (longest_ns, total_ns) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let is_over = Arc::<AtomicBool>::default();
        let (longest, total) = (Arc::clone(&longest_ns), Arc::clone(&total_ns));
        let over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(LOOK);
                let late = start.elapsed().saturating_sub(LOOK).as_nanos() as u64;
                longest.fetch_max(late, Ordering::Relaxed);
                total.fetch_add(late, Ordering::Relaxed);
            }
        });
        Self { start: Instant::now(), longest_ns, total_ns, is_over }
    }

    /// The longest time by which a program that wanted to run was late.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    /// Whether programs were late for so much of the time that no holder could be judged by it.
    pub(crate) fn is_busy(&self) -> bool {
        let late = Duration::from_nanos(self.total_ns.load(Ordering::Relaxed));
        late > self.start.elapsed().mul_f64(BUSY)
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
