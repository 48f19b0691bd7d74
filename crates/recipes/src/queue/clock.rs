//! What a handle knows of the time.

use std::sync::Mutex;
use std::time::Duration;

use lockkeeper_client::Instant;

use crate::exact::shared_write::lock;
use crate::wall_clock::millis;

/// For how long it is believed how the servers' clock and this machine's differ.
const BELIEVED: Duration = Duration::from_secs(60);

/// By which part this machine's clock may be faster or slower than the servers'.
pub(super) const DRIFT_DIVISOR: u32 = 100;

/// The servers' clock, as the answers to writes have shown it.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<Shown>>);

/// What the servers' clock showed, in milliseconds since 1970, at some time between the two.
#[derive(Clone, Copy, Debug)]
struct Shown {
    unix_ms: u64,
    asked: Instant,
    answered: Instant,
}

/// The time by the servers' clock, in milliseconds since 1970: no less and no more than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerTime {
    /// By which nothing is due too early.
    pub(super) least: u64,
    /// From which no wait is too short.
    pub(super) most: u64,
}

impl ServerClock {
    /// Something was written at `unix_ms`, in milliseconds since 1970, between these.
    pub(super) fn learn(&self, unix_ms: u64, asked: Instant, answered: Instant) {
        *lock(&self.0) = Some(Shown { unix_ms, asked, answered });
    }

    /// What it shows; `None` if that is not known well enough.
    pub(super) fn at(&self, now: Instant) -> Option<ServerTime> {
        let Shown { unix_ms, asked, answered } = (*lock(&self.0))?;
        let (since_asked, since) = (now - asked, now - answered);
        (since < BELIEVED).then(|| ServerTime {
            least: unix_ms.saturating_add(millis(since - since / DRIFT_DIVISOR)),
            // What it showed was rounded down, as this is.
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
