//! Estimates of the servers' time.

use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_client::Instant;

use crate::exact::shared_write::lock;
use crate::wall_clock::millis;

/// How long the difference between the servers' clock and this machine's is trusted.
const TRUST_TIME: Duration = Duration::from_secs(60);

/// The assumed drift of this machine's clock against the servers', as a divisor.
pub(super) const DRIFT_DIVISOR: u32 = 100;

/// The servers' clock, from the answers to writes.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<ClockReading>>);

/// A reading of the servers' clock, in milliseconds since 1970, taken between two local times.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    unix_ms: u64,
    asked: Instant,
    answered: Instant,
}

/// The time by the servers' clock, in milliseconds since 1970: a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerTime {
    /// The earliest time: items are due if they are due by this one.
    pub(super) least: u64,
    /// The latest time: waits computed from it are not too short.
    pub(super) most: u64,
}

impl ServerClock {
    /// Records that a write was applied at `unix_ms`, in milliseconds since 1970, between these times.
    pub(super) fn learn(&self, unix_ms: u64, asked: Instant, answered: Instant) {
        *lock(&self.0) = Some(ClockReading { unix_ms, asked, answered });
    }

    /// The servers' time; `None` if it is not known well enough.
    pub(super) fn at(&self, now: Instant) -> Option<ServerTime> {
        let ClockReading { unix_ms, asked, answered } = (*lock(&self.0))?;
        let (since_asked, since) = (now - asked, now - answered);
        (since < TRUST_TIME).then(|| ServerTime {
            least: unix_ms.saturating_add(millis(since - since / DRIFT_DIVISOR)),
            // The reading was rounded down, as this is.
            most: unix_ms.saturating_add(millis(since_asked + since_asked / DRIFT_DIVISOR) + 2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_clock_is_known_no_better_than_it_was_shown() {
        let clock = ServerClock::default();
        let now = Instant::from_start(Duration::from_secs(100));
        assert_eq!(clock.at(now), None);
        // The answer took 5 seconds, and came 10 seconds ago.
        let ago = |seconds: u64| Instant::from_start(Duration::from_secs(100 - seconds));
        clock.learn(70_000, ago(15), ago(10));
        let ServerTime { least, most } = clock.at(now).unwrap();
        assert!((79_800..80_000).contains(&least), "{least}");
        assert!((85_000..85_200).contains(&most), "{most}");
        clock.learn(70_000, ago(61), ago(60));
        assert_eq!(clock.at(now), None);
    }
}
