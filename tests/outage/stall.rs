//! For how long this machine itself stood still, which is an outage that nobody has made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often the machine is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Looks at the machine until it is dropped.
pub(crate) struct Stalls {
    longest_ns: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let (longest_ns, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (longest, over) = (Arc::clone(&longest_ns), Arc::clone(&is_over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(LOOK);
                let late = start.elapsed().saturating_sub(LOOK);
                longest.fetch_max(late.as_nanos() as u64, Ordering::Relaxed);
            }
        });
        Self { longest_ns, is_over }
    }

    /// The longest time by which a program that wanted to run was late.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
