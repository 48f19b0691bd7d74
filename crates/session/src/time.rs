//! A reading of the caller's clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A reading of the caller's clock: the time since a start that the caller chose.
///
/// The clock must be monotonic. For exact leases it must also count the time during which the machine is
/// suspended (`CLOCK_BOOTTIME`). Wall-clock time is not suitable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The reading this long after the clock's start.
    pub const fn from_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the clock's start this is.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this reading; zero if `earlier` is the later one.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The reading `duration` before this one, or the clock's start.
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.0.as_secs_f64())
    }
}
