//! The clock that leases are measured by.

use std::time::Duration;

use lockkeeper_session::Instant;
use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock that also counts the time in which the machine is suspended, where the
/// system has one. It is never affected by changes of the wall time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The time now.
    pub fn now(self) -> Instant {
        let time = clock_gettime(COUNTS_SUSPEND);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Instant::from_start(Duration::new(seconds, nanos))
    }
}

#[cfg(target_os = "linux")]
const COUNTS_SUSPEND: ClockId = ClockId::Boottime;

#[cfg(not(target_os = "linux"))]
const COUNTS_SUSPEND: ClockId = ClockId::Monotonic;

/// How much of a wait is slept at a time. A timer does not count suspended time, so a long sleep
/// could end late by as much as the machine was suspended.
const SLICE: Duration = Duration::from_secs(1);

/// Sleeps for `left`, or for a while if that is long; the caller looks at the clock again.
pub(crate) async fn sleep_towards(left: Duration) {
    tokio::time::sleep(left.min(SLICE)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L26: a jump of the wall clock broke timed waits. This clock is the time since the system
    /// started, which nobody sets; `clippy.toml` keeps the others out.
    ///
    /// Seen to fail with `ClockId::Realtime`.
    #[cfg(target_os = "linux")]
    #[test]
    fn l26_the_wall_clock_plays_no_part() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").expect("Linux has it");
            let seconds = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
            Duration::from_secs_f64(seconds.expect("a number"))
        };
        // It is printed in hundredths of a second.
        let before = Instant::from_start(uptime());
        let now = Clock.now() + Duration::from_millis(10);
        assert!(
            before <= now
                && Clock.now() <= Instant::from_start(uptime() + Duration::from_millis(20))
        );
    }

    #[test]
    fn time_does_not_run_backwards() {
        let first = Clock.now();
        assert!(Clock.now() >= first);
    }
}
