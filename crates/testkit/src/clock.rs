//! The clock that all programs of one machine share: `CLOCK_MONOTONIC`, which Java's
//! `System.nanoTime` and Python's `time.monotonic_ns` read too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since some start that is the same for all processes of the machine.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
