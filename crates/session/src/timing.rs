//! How a session timeout is divided. All shares are defined here.
//!
//! ```text
//!   <---------------------------- session timeout T ---------------------------->
//!   <- relay -><- newest answer -><-------------------- lease -----------><-drift->
//!                                 <- renewal -><--- left at grant ------->
//!                                 <- renewal -><- slow -><- always left ->
//!                                 <- renewal -><--- outage ---><-reconnect>
//!   |                             |                                      |        |
//!   the leader touches it         a proof is sent                 deadline   expiry
//! ```
//!
//! A committed write proves that its leader has heard of the session not much more than a relay delay
//! earlier. While a lock is held, the next proof is sent one renewal interval later. So what remains after
//! that interval is available when an outage begins; slow replies use a part of it, and after an outage the
//! client must reconnect and prove itself before the deadline.
//!
//! All code that needs a share of the timeout asks here: the session for its pings and heartbeats, the driver
//! for its time limits, a grant for what it needs, and `lockkeeper run` for the time in which it can end a
//! command. For the reasons and the table see `docs/decisions/0013-timing.md`.

use std::time::Duration;

use crate::config::{Config, LeaseMode};

/// The minimum time between two heartbeats, unless the session timeout is very short.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(500);

/// The maximum time for the handshake of a new session before the next server is tried.
const LONGEST_NEW_SESSION: Duration = Duration::from_secs(4);

/// The maximum time between two connection attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// The parts of a session timeout.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper_session::{LeaseMode, Timing};
///
/// let timing = Timing::new(LeaseMode::Quorum, Duration::from_secs(15), Duration::from_secs(2));
/// assert!(timing.lease() > Duration::from_secs(12));
/// assert!(timing.outage() > Duration::from_secs(8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    mode: LeaseMode,
    timeout: Duration,
    server_tick: Duration,
    clock_drift_divisor: u32,
}

impl Timing {
    /// Divides a session timeout that the servers granted, with the default clock drift. `server_tick`: the
    /// servers' `tickTime`.
    pub fn new(mode: LeaseMode, timeout: Duration, server_tick: Duration) -> Self {
        let clock_drift_divisor = Config::default().clock_drift_divisor;
        Self { mode, timeout, server_tick, clock_drift_divisor }
    }

    pub(crate) fn of(config: &Config, timeout: Duration) -> Self {
        let Config { lease: mode, server_tick, clock_drift_divisor, .. } = *config;
        Self { mode, timeout, server_tick, clock_drift_divisor }
    }

    /// Divides another session timeout with the same parameters.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The session timeout.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    // ----- guarantees -------------------------------------------------------------------------

    /// How long a session certainly lives after its leader has touched it: the timeout minus the clock drift.
    pub fn life_after_touch(&self) -> Duration {
        self.timeout - self.timeout / self.clock_drift_divisor.max(1)
    }

    /// The relay delay: how long a follower may take to report a session to its leader. Half a tick.
    pub fn relay(&self) -> Duration {
        self.server_tick / 2
    }

    /// How long a proof extends the lease on servers that reply promptly.
    ///
    /// Under [`LeaseMode::Direct`], the timeout minus the clock drift. Under [`LeaseMode::Quorum`] it is
    /// shorter by the relay delay and by the age of the latest reply, which a committed write proves to have
    /// reached the leader. Slow replies shorten it by the time that they take; see [`Timing::always_left`].
    pub fn lease(&self) -> Duration {
        match self.mode {
            LeaseMode::Direct => self.life_after_touch(),
            LeaseMode::Quorum => {
                self.life_after_touch().saturating_sub(self.relay() + self.newest_answer())
            }
        }
    }

    /// The time after which a session has certainly expired on servers that were running and did not hear of
    /// it. They round its end up to a tick, may hear of the client a relay delay late, and each clock may
    /// drift.
    pub fn certainly_over(&self) -> Duration {
        let drift = self.timeout / self.clock_drift_divisor.max(1);
        self.timeout + 2 * drift + 2 * self.server_tick
    }

    // ----- limits of the client ---------------------------------------------------------------

    /// How long a client is silent before it sends a ping.
    pub fn ping_interval(&self) -> Duration {
        self.timeout / 16
    }

    /// The maximum age of the latest message with a prompt reply: a ping interval, plus an allowance for
    /// timers and replies.
    pub fn newest_answer(&self) -> Duration {
        self.timeout / 10
    }

    /// The maximum time between two proofs while nodes are held: heartbeats under [`LeaseMode::Quorum`],
    /// pings under [`LeaseMode::Direct`].
    pub fn renewal_interval(&self) -> Duration {
        match self.mode {
            LeaseMode::Direct => self.ping_interval(),
            LeaseMode::Quorum => (self.timeout / 8).max(SHORTEST_HEARTBEAT.min(self.timeout / 6)),
        }
    }

    /// How long a server may stay silent with a request unanswered before another server is tried, and how
    /// long it may take for the handshake that resumes a session. A reply that takes longer while others
    /// arrive casts doubt on the lease.
    pub fn silence_limit(&self) -> Duration {
        self.timeout / 4
    }

    /// How long a server may take for the handshake of a new session. The requested session timeout may be
    /// hours, and another server may be ready sooner.
    pub fn new_session_limit(&self) -> Duration {
        self.silence_limit().min(LONGEST_NEW_SESSION)
    }

    /// How long one connection attempt may take.
    pub fn connect_limit(&self) -> Duration {
        self.timeout / 3
    }

    /// How long a connection attempt runs before a parallel one starts, and the pause before servers that
    /// have all failed are tried again.
    pub fn retry_interval(&self) -> Duration {
        (self.timeout / 32).min(LONGEST_RETRY)
    }

    // ----- what a holder can rely on ----------------------------------------------------------

    /// The reply time up to which a lock is never lost, if every reply takes as long: an eighth of the
    /// timeout.
    pub fn slowest_answer(&self) -> Duration {
        self.timeout / 8
    }

    /// How much of a lease a grant without a fresh proof requires: as much as a holder has when the next
    /// proof is due.
    pub fn left_at_grant(&self) -> Duration {
        self.lease().saturating_sub(self.renewal_interval())
    }

    /// What a holder always has left on servers that reply within [`Timing::slowest_answer`]. A grant with a
    /// fresh proof requires the same. A slow reply costs twice its time: the latest proven message is older,
    /// and the proof arrives later.
    pub fn always_left(&self) -> Duration {
        self.left_at_grant().saturating_sub(self.slowest_answer() * 2)
    }

    /// How soon after an outage the session is proven again: the rest of the retry interval, the connection
    /// attempt, the handshake and one committed write.
    pub fn reconnect(&self) -> Duration {
        self.timeout / 8
    }

    /// The longest outage that does not cost a lock: no server is reachable, or none replies, and the session
    /// survives. A holder that needs a part of its lease to end its work, as `lockkeeper run` does, survives
    /// outages that are shorter by that part.
    ///
    /// Consecutive outages must be at least a silence limit, a relay delay and a renewal interval apart:
    /// until then, the lease may not have its full length.
    pub fn outage(&self) -> Duration {
        self.left_at_grant().saturating_sub(self.reconnect())
    }

    /// Whether the timeout is long enough for locks: a healthy service leaves a holder at least an eighth of
    /// it.
    pub fn is_enough(&self) -> bool {
        self.always_left() >= self.timeout / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(mode: LeaseMode, timeout_ms: u64, tick_ms: u64) -> Timing {
        Timing::new(mode, Duration::from_millis(timeout_ms), Duration::from_millis(tick_ms))
    }

    /// Every session timeout that a server with this tick can grant.
    fn all() -> impl Iterator<Item = Timing> {
        let modes = [LeaseMode::Quorum, LeaseMode::Direct];
        let ticks = [50, 100, 200, 500, 1_000, 2_000, 3_000];
        modes.into_iter().flat_map(move |mode| {
            ticks.into_iter().flat_map(move |tick| {
                (2 * tick..=20 * tick).step_by(50).map(move |timeout| timing(mode, timeout, tick))
            })
        })
    }

    #[test]
    fn every_timeout_that_servers_grant_is_enough() {
        assert!(all().all(|timing| timing.is_enough()));
        assert!(!timing(LeaseMode::Quorum, 2_000, 2_000).is_enough());
    }

    #[test]
    fn what_is_slow_for_a_holder_is_not_taken_for_silence() {
        assert!(all().all(|timing| timing.slowest_answer() < timing.silence_limit()));
    }

    /// The page that explains the defaults quotes these values.
    #[test]
    fn the_table_of_the_decision_record() {
        let seconds = |duration: Duration| (duration.as_secs_f64() * 100.0).round() / 100.0;
        let row = |seconds_of_timeout: u64| {
            let timing = timing(LeaseMode::Quorum, seconds_of_timeout * 1_000, 2_000);
            [timing.lease(), timing.always_left(), timing.outage()].map(seconds)
        };
        assert_eq!(row(4), [2.56, 1.06, 1.56]);
        assert_eq!(row(6), [4.34, 2.09, 2.84]);
        assert_eq!(row(10), [7.9, 4.15, 5.4]);
        assert_eq!(row(15), [12.35, 6.73, 8.6]);
        assert_eq!(row(20), [16.8, 9.3, 11.8]);
    }
}
