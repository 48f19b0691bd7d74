//! The time and the randomness that the server is given.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper_tree::{Entropy, Now};
use lockkeeper_wire::Zxid;
use rustix::time::{ClockId, clock_gettime};

/// Counts the time for which the machine slept: a session whose client was not heard of for that
/// long is as expired as any other.
#[cfg(target_os = "linux")]
const STEADY: ClockId = ClockId::Boottime;
/// Elsewhere the plain monotonic clock is the nearest there is (on macOS it counts sleep too).
#[cfg(not(target_os = "linux"))]
const STEADY: ClockId = ClockId::Monotonic;

/// What time it is, on both clocks.
pub(crate) fn now() -> Now {
    Now { monotonic: steady(), unix_ms: wall(Duration::as_millis) }
}

/// How long it is until a moment of the monotonic clock; `None` when it has come.
pub(crate) fn left_until(moment: Duration) -> Option<Duration> {
    moment.checked_sub(steady()).filter(|left| !left.is_zero())
}

/// The number at which a server begins that knows of no other: the microseconds since the beginning
/// of 2026. One that begins later begins above all that this one will have given, unless that were a
/// million transactions a second on average, or the clock was set back. It stays below 2^53, which
/// programs that read numbers as floating point need, until the year 2311.
pub(crate) fn zxid() -> Zxid {
    // Not by whole milliseconds: one engine may be over, and the next one begin, within one of them.
    zxid_at(wall(Duration::as_micros))
}

/// The same for a directory that is restored. Two epochs ahead, as a directory that began at the clock
/// may be anywhere in its epoch: the first number of the next one would be the same for all who restore
/// its backup within an hour, wherever they are.
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

/// The time since 1970 in some unit. A wall clock before that, or so late that an `i64` cannot say it,
/// counts as the nearest that can be said.
fn wall(unit: fn(&Duration) -> u128) -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(unit(&since_1970)).unwrap_or(i64::MAX)
}

/// The operating system's cryptographic random source.
pub(crate) struct SystemEntropy {
    /// Only this module makes one, after a trial.
    _tried: (),
}

impl SystemEntropy {
    /// Takes a few bytes for a trial, so that a system without randomness is found at the start.
    pub(crate) fn open() -> Result<Self, getrandom::Error> {
        getrandom::fill(&mut [0; 16])?;
        Ok(Self { _tried: () })
    }
}

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        // A password that is not random would hand the session to whoever guesses it: better none.
        getrandom::fill(bytes).expect("the system's random source has failed");
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

    /// Symptom: of two engines in memory without a directory, one after the other within a
    /// millisecond, the second one gave the tokens of the first one again.
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
