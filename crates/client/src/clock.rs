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

    /// A reading of this clock as one of the standard library's, which does not count suspended time
    /// (`CLOCK_MONOTONIC`): it is as far from now, and never later. So it holds as of now, and comes too
    /// late by as much as the machine is suspended until then. Convert a deadline when it is used, do
    /// not keep what it was converted to, and look at the guard again when that time has come.
    #[expect(clippy::disallowed_types, reason = "what comes of it decides nothing here")]
    pub fn to_std(self, instant: Instant) -> std::time::Instant {
        self.seen_from(std::time::Instant::now(), instant)
    }

    /// As [`Clock::to_std`], for the timers of tokio, such as `tokio::time::sleep_until`.
    pub fn to_tokio(self, instant: Instant) -> tokio::time::Instant {
        self.seen_from(tokio::time::Instant::now().into_std(), instant).into()
    }

    /// What is as far from `now` as `instant` is from this clock's time. That is read later than
    /// `now`, so that the result errs on the early side, as it does where there is no such time.
    #[expect(clippy::disallowed_types, reason = "what comes of it decides nothing here")]
    fn seen_from(self, now: std::time::Instant, instant: Instant) -> std::time::Instant {
        let own = self.now();
        let seen = match instant >= own {
            true => now.checked_add(instant.since(own)),
            false => now.checked_sub(own.since(instant)),
        };
        seen.unwrap_or(now)
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
    #[expect(clippy::disallowed_types, reason = "what it is converted to")]
    fn a_deadline_is_as_far_away_on_other_clocks_and_never_later() {
        let left = Duration::from_secs(3600);
        let (before, deadline) = (std::time::Instant::now(), Clock.now() + left);
        let (std, tokio) = (Clock.to_std(deadline), Clock.to_tokio(deadline).into_std());
        let after = std::time::Instant::now();
        for seen in [std, tokio] {
            let (earliest, latest) = (before, after + left);
            assert!(earliest + left <= seen + (after - before) && seen <= latest, "{seen:?}");
        }
        // What has passed has passed there too.
        let past = Clock.now().saturating_sub(Duration::from_millis(1));
        assert!(Clock.to_std(past) < std::time::Instant::now());
        let never = Instant::from_start(Duration::MAX);
        assert!(Clock.to_std(never) <= std::time::Instant::now(), "none, so at once");
    }

    #[test]
    fn time_does_not_run_backwards() {
        let first = Clock.now();
        assert!(Clock.now() >= first);
    }
}
