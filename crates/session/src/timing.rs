//! How a session timeout is divided: the one place that decides it.
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
//! A committed write proves that its leader has heard of the session not much more than a relay
//! before. While a lock is held, the next proof is sent one renewal later, so that much is always
//! left when an outage begins; slow answers take their share, and after an outage the client must
//! come back and prove itself before the deadline.
//!
//! All code that needs a share of the timeout asks here: the session for its pings and heartbeats, the
//! driver for its patience, a grant for what it needs, and `lockkeeper run` for the time in which it
//! can end a command. The reasons and the table are in `docs/decisions/0013-timing.md`.

use std::time::Duration;

use crate::config::{Config, LeaseMode};

/// The shortest time between two heartbeats, unless the session timeout is very short.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(500);

/// A server that makes no session within this is passed over for the next one.
const LONGEST_NEW_SESSION: Duration = Duration::from_secs(4);

/// The longest time between two attempts to connect.
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
    /// The parts of a session timeout that the servers granted, with the default clock drift.
    /// `server_tick`: the servers' `tickTime`.
    pub fn new(mode: LeaseMode, timeout: Duration, server_tick: Duration) -> Self {
        let clock_drift_divisor = Config::default().clock_drift_divisor;
        Self { mode, timeout, server_tick, clock_drift_divisor }
    }

    pub(crate) fn of(config: &Config, timeout: Duration) -> Self {
        let Config { lease: mode, server_tick, clock_drift_divisor, .. } = *config;
        Self { mode, timeout, server_tick, clock_drift_divisor }
    }

    /// The same for another session timeout.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The session timeout that is divided.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    // ----- what is certain --------------------------------------------------------------------

    /// For how long a session certainly lives after a moment at which its leader had it touched:
    /// the timeout less the drift of the clocks.
    pub fn life_after_touch(&self) -> Duration {
        self.timeout - self.timeout / self.clock_drift_divisor.max(1)
    }

    /// How long a follower may take to tell its leader that it has heard of a session: half a tick.
    pub fn relay(&self) -> Duration {
        self.server_tick / 2
    }

    /// For how long a proof of life makes a lease last on servers that answer promptly.
    ///
    /// Under [`LeaseMode::Direct`], the timeout less the drift of the clocks. Under
    /// [`LeaseMode::Quorum`] less by the relay, and by the age of what was answered last: a
    /// committed write proves that the leader had heard of that. Slower answers make it shorter by
    /// what they take; see [`Timing::always_left`].
    pub fn lease(&self) -> Duration {
        match self.mode {
            LeaseMode::Direct => self.life_after_touch(),
            LeaseMode::Quorum => {
                self.life_after_touch().saturating_sub(self.relay() + self.newest_answer())
            }
        }
    }

    /// After what time a session is over, on servers that were there and did not hear of it. They round
    /// its end up to a tick, may hear of the client a relay late, and each clock may be off.
    pub fn certainly_over(&self) -> Duration {
        let drift = self.timeout / self.clock_drift_divisor.max(1);
        self.timeout + 2 * drift + 2 * self.server_tick
    }

    // ----- what the client does ---------------------------------------------------------------

    /// How long a client is silent before it sends a ping.
    pub fn ping_interval(&self) -> Duration {
        self.timeout / 16
    }

    /// How long ago the newest message with a prompt answer was sent, at most: a ping interval, and
    /// what timers and answers take.
    pub fn newest_answer(&self) -> Duration {
        self.timeout / 10
    }

    /// The longest time between two proofs of life while something is held: heartbeats under
    /// [`LeaseMode::Quorum`], pings under [`LeaseMode::Direct`].
    pub fn renewal_interval(&self) -> Duration {
        match self.mode {
            LeaseMode::Direct => self.ping_interval(),
            LeaseMode::Quorum => (self.timeout / 8).max(SHORTEST_HEARTBEAT.min(self.timeout / 6)),
        }
    }

    /// For how long a server may leave something unanswered and be silent, before another one is
    /// tried; a server that is tried has as long for the handshake of a session that is there. An
    /// answer that takes longer, while others come, casts doubt on the lease.
    pub fn silence_limit(&self) -> Duration {
        self.timeout / 4
    }

    /// How long a server has for the handshake of a new session. Its timeout is only wished for yet,
    /// and may be hours: another server may well be ready meanwhile.
    pub fn new_session_limit(&self) -> Duration {
        self.silence_limit().min(LONGEST_NEW_SESSION)
    }

    /// How long one attempt to open a connection may take.
    pub fn connect_limit(&self) -> Duration {
        self.timeout / 3
    }

    /// How long one attempt to open a connection stays the only one, and how long the pause is
    /// before servers that were all tried are tried again.
    pub fn retry_interval(&self) -> Duration {
        (self.timeout / 32).min(LONGEST_RETRY)
    }

    // ----- what follows for a holder ----------------------------------------------------------

    /// The slowest answers with which a lock is never lost, if every answer takes as long: an eighth
    /// of the timeout.
    pub fn slowest_answer(&self) -> Duration {
        self.timeout / 8
    }

    /// What must be left of a lease for a grant without a fresh proof: as much as a holder has left
    /// when the next proof is due.
    pub fn left_at_grant(&self) -> Duration {
        self.lease().saturating_sub(self.renewal_interval())
    }

    /// What a holder always has left on servers that answer within [`Timing::slowest_answer`]. Also
    /// what a grant with a fresh proof needs. Slow answers cost twice: what was answered last is
    /// older, and the proof comes later.
    pub fn always_left(&self) -> Duration {
        self.left_at_grant().saturating_sub(self.slowest_answer() * 2)
    }

    /// How soon after an outage the session is proven again: what is left of the pause before the
    /// next attempt, the attempt, the handshake and one committed write.
    pub fn reconnect(&self) -> Duration {
        self.timeout / 8
    }

    /// The longest outage that takes no lock away: no server can be reached for so long, or none
    /// answers, and the session lives on. A holder that needs some of its lease to end its work
    /// (`lockkeeper run` does) survives outages that are shorter by that.
    ///
    /// It begins a silence limit, a relay and a renewal after the last one at the earliest: until then the
    /// lease may not be as long as it was.
    pub fn outage(&self) -> Duration {
        self.left_at_grant().saturating_sub(self.reconnect())
    }

    /// Whether the timeout is long enough for locks: a healthy service leaves a holder with at
    /// least an eighth of it.
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

    /// Each session timeout that a server with this tick grants.
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

    /// The page that explains the defaults quotes these.
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
