//! The clock of leases and deadlines.

use std::time::Duration;

use lockkeeper_session::Instant;
use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock that also counts the time during which the machine is suspended, on systems that have
/// such a clock. Changes of the wall-clock time do not affect it.
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

    /// Converts a reading of this clock to the clock of the standard library, which does not count suspended
    /// time (`CLOCK_MONOTONIC`). The result has the same distance from now, or is slightly early. It is
    /// correct at the time of the call, and becomes too late by the time that the machine is suspended
    /// afterwards. So convert a deadline each time it is used, do not store the result, and check the guard
    /// again when the time has come.
    #[expect(clippy::disallowed_types, reason = "the result is not used for decisions here")]
    pub fn to_std(self, instant: Instant) -> std::time::Instant {
        self.seen_from(std::time::Instant::now(), instant)
    }

    /// Like [`Clock::to_std`], for the timers of tokio, such as `tokio::time::sleep_until`.
    pub fn to_tokio(self, instant: Instant) -> tokio::time::Instant {
        self.seen_from(tokio::time::Instant::now().into_std(), instant).into()
    }

    /// The time with the same distance from `now` as `instant` has from this clock's time, which is read
    /// after `now`. So the result is never late. If it cannot be represented, it is `now`.
    #[expect(clippy::disallowed_types, reason = "the result is not used for decisions here")]
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

/// The longest sleep at a time. A timer does not count suspended time, so a long sleep could end late by the
/// time that the machine was suspended.
const SLICE: Duration = Duration::from_secs(1);

/// Sleeps for `left`, or for a slice of it if it is long. The caller checks the clock again.
pub(crate) async fn sleep_towards(left: Duration) {
    tokio::time::sleep(left.min(SLICE)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L26: a jump of the wall clock broke timed waits. This clock is the time since the system started,
    /// which cannot be set; `clippy.toml` forbids the others.
    ///
    /// Fails with `ClockId::Realtime`.
    #[cfg(target_os = "linux")]
    #[test]
    fn l26_the_wall_clock_plays_no_part() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").expect("Linux has it");
            let seconds = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
            Duration::from_secs_f64(seconds.expect("a number"))
        };
        // The file has a resolution of hundredths of a second.
        let before = Instant::from_start(uptime());
        let now = Clock.now() + Duration::from_millis(10);
        assert!(
            before <= now
                && Clock.now() <= Instant::from_start(uptime() + Duration::from_millis(20))
        );
    }

    #[test]
    #[expect(clippy::disallowed_types, reason = "the target of the conversion")]
    fn a_deadline_is_as_far_away_on_other_clocks_and_never_later() {
        let left = Duration::from_secs(3600);
        let (before, deadline) = (std::time::Instant::now(), Clock.now() + left);
        let (std, tokio) = (Clock.to_std(deadline), Clock.to_tokio(deadline).into_std());
        let after = std::time::Instant::now();
        for seen in [std, tokio] {
            let (earliest, latest) = (before, after + left);
            assert!(earliest + left <= seen + (after - before) && seen <= latest, "{seen:?}");
        }
        // A past time is in the past there too.
        let past = Clock.now().saturating_sub(Duration::from_millis(1));
        assert!(Clock.to_std(past) < std::time::Instant::now());
        let never = Instant::from_start(Duration::MAX);
        assert!(Clock.to_std(never) <= std::time::Instant::now(), "not representable, so now");
    }

    #[test]
    fn time_does_not_run_backwards() {
        let first = Clock.now();
        assert!(Clock.now() >= first);
    }
}
