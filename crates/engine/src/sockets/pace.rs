//! Limits the rate at which connections are admitted.
//!
//! After a restart or a network failure all clients reconnect at once. Their handshakes must not delay the clients that
//! are already connected, so beyond a burst they are admitted at a steady rate; the others wait in the operating
//! system's queue, and none is refused.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A steady rate with a burst of as many as fit into [`BURST`].
#[derive(Debug)]
pub(crate) struct Pace {
    /// The time that one connection takes up.
    interval: Duration,
    /// When all admitted connections have used up their time.
    paid_until: Mutex<Instant>,
}

/// How far ahead of the steady rate admissions may run.
const BURST: Duration = Duration::from_millis(200);

impl Pace {
    /// At most this many per second, at least 1.
    pub(crate) fn per_second(rate: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.max(1),
            paid_until: Mutex::new(Instant::now()),
        }
    }

    /// Admits one more, and returns how long to wait before the next.
    pub(crate) fn admit(&self, now: Instant) -> Duration {
        let mut paid = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
        *paid = (*paid).max(now) + self.interval;
        let ahead = paid.saturating_duration_since(now);
        // One is always admitted: a rate below one per burst must not block.
        ahead.saturating_sub(BURST.max(self.interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_burst_the_rate_is_steady() {
        let pace = Pace::per_second(1_000);
        let start = Instant::now();
        let mut now = start;
        let mut in_burst = 0;
        for _ in 0..2_000 {
            let wait = pace.admit(now);
            in_burst += u32::from(now == start);
            now += wait;
        }
        assert!((200..=202).contains(&in_burst), "{in_burst}");
        let took = (now - start).as_millis();
        assert!((1_795..=1_801).contains(&took), "{took} ms for 1,800");
    }

    #[test]
    fn a_slow_rate_is_kept_too() {
        let pace = Pace::per_second(1);
        let start = Instant::now();
        assert_eq!(pace.admit(start), Duration::ZERO);
        assert_eq!(pace.admit(start), Duration::from_secs(1));
        assert_eq!(pace.admit(start + Duration::from_secs(10)), Duration::ZERO);
    }
}
