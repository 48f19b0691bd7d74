//! How bad a run is: as bad as it gets, which safety survives, or no worse than locks survive.

use std::time::Duration;

use lockkeeper::Timing;

use crate::followers::Link;
use crate::network::Lag;
use crate::participants::Pace;
use crate::run::Usual;

/// How bad a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Anything fails, for longer than a session lives: no client gets what it must not get.
    Unbounded,
    /// Programs run, and the servers are slow or unreachable for less time than locks are kept: no client
    /// loses what it holds.
    Bounded,
}

impl Severity {
    pub(crate) fn of(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Self::Bounded } else { Self::Unbounded }
    }

    /// For how long things go wrong.
    pub(crate) fn lasts(self, timing: Timing) -> Duration {
        match self {
            Self::Unbounded => Duration::from_secs(25),
            Self::Bounded => timing.timeout() * 10,
        }
    }

    /// How many tasks of a client take locks. One alone leaves its session idle while it waits.
    pub(crate) fn tasks(self, random: &mut fastrand::Rng) -> u32 {
        match self {
            Self::Unbounded => 2,
            Self::Bounded => random.u32(1..3),
        }
    }

    /// Holds, waits and pauses: short, so that much happens; or of every share of a lease, as what
    /// is left of it at a grant depends on them.
    pub(crate) fn pace(self, timing: Timing) -> Pace {
        let lease = timing.lease();
        match self {
            Self::Unbounded => Pace {
                look: Duration::from_millis(600),
                pause: Duration::from_millis(800),
                patience: Duration::from_secs(3),
                register: Duration::from_millis(1_500),
            },
            Self::Bounded => Pace {
                look: lease.mul_f64(0.3),
                pause: lease.mul_f64(1.2),
                patience: lease.mul_f64(1.5),
                register: lease * 3,
            },
        }
    }

    /// How slow a server and the way to it are while nothing is wrong.
    pub(crate) fn usual(self, timing: Timing, random: &mut fastrand::Rng) -> Usual {
        let sync = Duration::from_millis(random.u64(0..20));
        let usual = Duration::from_millis(random.u64(1..60));
        match self {
            Self::Unbounded => {
                let lag = Lag { usual, longest: usual * 20 };
                Usual { sync, lag, link: Link::default() }
            }
            Self::Bounded => {
                let longest = prompt(timing);
                slow(longest, [usual, longest][random.usize(0..2)], random)
            }
        }
    }
}

/// The same where requests go on from a follower to its leader. Where locks are to survive, an answer
/// takes no longer for it: a fourth of the time is spent on that way.
pub(crate) fn over_followers(
    usual: Usual,
    severity: Severity,
    random: &mut fastrand::Rng,
) -> Usual {
    let Usual { sync, lag, .. } = usual;
    match severity {
        Severity::Unbounded => {
            let down = Duration::from_millis([20, 200, 2_000][random.usize(0..3)]);
            Usual { link: Link { up: Duration::from_millis(20), down }, ..usual }
        }
        Severity::Bounded => {
            let link = (sync + lag.longest) / 4;
            let (sync, longest) = (sync * 3 / 4, lag.longest * 3 / 4);
            let lag = Lag { usual: lag.usual.min(longest), longest };
            Usual { sync, lag, link: Link { up: link, down: link } }
        }
    }
}

/// What an answer takes at most on servers that are well: after an outage, four of them are part of
/// [`Timing::reconnect`].
pub(crate) fn prompt(timing: Timing) -> Duration {
    timing.reconnect() / 4
}

/// A server that answers within `longest`: two ways, and two syncs, of which one is under way when a
/// request comes. `usual`: what most messages take, if that is less.
pub(crate) fn slow(longest: Duration, usual: Duration, random: &mut fastrand::Rng) -> Usual {
    let share = random.f64();
    let sync = longest.mul_f64(share / 2.0);
    let way = longest.mul_f64((1.0 - share) / 2.0);
    Usual { sync, lag: Lag { usual, longest: way }, link: Link::default() }
}
