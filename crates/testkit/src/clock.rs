//! The clock that all programs of a machine share: `CLOCK_MONOTONIC`, which Java's
//! `System.nanoTime` and Python's `time.monotonic_ns` read too.

use std::time::Duration;

use lockkeeper_client::Instant;
use rustix::time::{ClockId, clock_gettime};

/// The time since a start that is the same for all processes of the machine.
pub fn now() -> Duration {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// How far the clock of leases is ahead of the shared one. Both run at the same rate; only suspending the machine
/// changes the difference.
#[derive(Clone, Copy, Debug)]
pub struct LeaseClock {
    ahead: Duration,
}

impl LeaseClock {
    /// Compares the two clocks.
    pub fn compare() -> Self {
        let ahead = || {
            let before = now();
            let lease = read(ClockId::Boottime);
            (now() - before, lease.saturating_sub(before))
        };
        // The least interrupted measurement.
        let (_, ahead) = (0..100).map(|_| ahead()).min().expect("a hundred measurements");
        Self { ahead }
    }

    /// The same instant by the shared clock.
    pub fn shared(self, instant: Instant) -> Duration {
        instant.since_start().saturating_sub(self.ahead)
    }
}
