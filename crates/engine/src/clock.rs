//! The sources of time and randomness of the server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper_tree::{Entropy, Now};
use lockkeeper_wire::Zxid;
use rustix::time::{ClockId, clock_gettime};

/// Includes the time for which the machine was suspended: a session whose client was silent for that long has expired
/// like any other.
#[cfg(target_os = "linux")]
const STEADY: ClockId = ClockId::Boottime;
/// Elsewhere the plain monotonic clock is the closest one (on macOS it includes suspended time too).
#[cfg(not(target_os = "linux"))]
const STEADY: ClockId = ClockId::Monotonic;

/// The present time on both clocks.
pub(crate) fn now() -> Now {
    Now { monotonic: steady(), unix_ms: wall(Duration::as_millis) }
}

/// The time until an instant of the monotonic clock; `None` if that has passed.
pub(crate) fn left_until(moment: Duration) -> Option<Duration> {
    moment.checked_sub(steady()).filter(|left| !left.is_zero())
}

/// The first zxid of a server that knows of no earlier one: the microseconds since the beginning of 2026. A server that
/// starts later starts above all zxids of this one, unless this one runs more than a million transactions a second on
/// average or the clock is set back. The value stays below 2^53, which programs that read numbers as floating point
/// need, until the year 2311.
pub(crate) fn zxid() -> Zxid {
    // Not in whole milliseconds: one engine may end and the next one start within one millisecond.
    zxid_at(wall(Duration::as_micros))
}

/// The same for a directory that is restored. It is two epochs ahead, because a directory that started from the clock
/// may be anywhere in its epoch: the first zxid of the next epoch would be the same for all restores of its backup
/// within an hour.
pub(crate) fn zxid_of_restore() -> Zxid {
    Zxid(zxid().0.saturating_add(2 << 32))
}

fn zxid_at(unix_us: i64) -> Zxid {
    const YEAR_2026_US: i64 = 1_767_225_600_000_000;
    const LAST: i64 = (1 << 53) - 1;
    Zxid(unix_us.saturating_sub(YEAR_2026_US).clamp(0, LAST))
}

fn steady() -> Duration {
    Duration::try_from(clock_gettime(STEADY)).unwrap_or_default()
}

/// The time since 1970 in some unit. Times outside the range of an `i64`, or before 1970, are replaced by the nearest
/// value in range.
fn wall(unit: fn(&Duration) -> u128) -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(unit(&since_1970)).unwrap_or(i64::MAX)
}

/// The operating system's cryptographic random source.
pub(crate) struct SystemEntropy {
    /// Only this module creates one, after a test of the source.
    _tried: (),
}

impl SystemEntropy {
    /// Reads a few bytes as a test, so that a system without randomness is detected at the start.
    pub(crate) fn open() -> Result<Self, getrandom::Error> {
        getrandom::fill(&mut [0; 16])?;
        Ok(Self { _tried: () })
    }
}

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        // A password that is not random would let an attacker take over the session, so no session starts.
        getrandom::fill(bytes).expect("the system's random source failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_gives_numbers_that_grow_and_fit_everywhere() {
        let day_us = 86_400_000_000;
        assert_eq!(zxid_at(1_767_225_600_000_000 + day_us), Zxid(day_us));
        assert_eq!(zxid_at(0), Zxid(0), "a clock that was never set");
        assert_eq!(zxid_at(i64::MAX), Zxid((1 << 53) - 1));
        assert!(zxid() > Zxid(20_000_000_000_000), "later than August 2026");
    }

    /// Symptom: of two engines in memory without a directory, started within a millisecond, the second one issued the
    /// tokens of the first one again.
    #[test]
    fn it_grows_within_a_millisecond() {
        let parts: Vec<i64> = (0..1_000).map(|_| zxid().0 % 1_000).collect();
        assert!(parts.iter().any(|part| *part != parts[0]), "{}", parts[0]);
    }

    #[test]
    fn time_passes_and_randomness_differs() {
        let before = now();
        assert!(before.monotonic > Duration::ZERO && before.unix_ms > 0);
        assert!(now().monotonic >= before.monotonic);

        let mut entropy = SystemEntropy::open().unwrap();
        let (mut one, mut other) = ([0; 16], [0; 16]);
        entropy.fill(&mut one);
        entropy.fill(&mut other);
        assert_ne!(one, other);
    }
}
