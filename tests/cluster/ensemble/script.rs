//! What goes wrong, when, and for how long: all of it follows from the seed.
//!
//! A new fault is one more variant here, and what it does in `field.rs`.

use std::fmt;
use std::time::Duration;

use crate::ensemble::field::{SERVERS, SITES};
use crate::ensemble::programs::PARTICIPANTS;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The leader is killed, and started again at the end.
    KillLeader,
    /// A follower is killed, and started again at the end.
    KillFollower,
    /// The leader and a follower are killed: nobody can commit anything.
    KillMajority,
    /// Each server is killed and started again, the leader last.
    RollingRestart,
    /// Nothing passes between the leader and the other servers, and these notice at once. It does not
    /// know, and serves its clients on.
    IsolateLeader,
    /// Nothing passes between a follower and the other servers. It serves its clients on.
    IsolateFollower,
    /// What the leader sends to the other servers is lost.
    MuteLeader,
    /// What a follower sends to the other servers is lost.
    MuteFollower,
    /// The leader stops in the middle of whatever it does.
    PauseLeader,
    /// A follower stops in the middle of whatever it does.
    PauseFollower,
    /// A follower stops for some seconds, and is isolated as it goes on.
    PauseAndIsolateFollower {
        /// How long it stops.
        pause: Duration,
    },
    /// A program stops in the middle of whatever it does.
    PauseParticipant(usize),
    /// A program is killed, and started again at the end.
    KillParticipant(usize),
    /// The links between a site and all servers are cut.
    CutSite(usize, Way),
    /// The links between all sites and all servers are cut, for long enough that every session
    /// expires.
    ExpireEverybody,
    /// The wall clocks of some hosts jump, and stay there.
    Jump {
        /// For each server and each site, by how many seconds it is then ahead.
        clocks: [i64; SERVERS + SITES],
    },
}

/// Which way of a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    Requests,
    Replies,
}

/// A fault, how long it lasts, and how long everything is well afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
    pub(crate) rest: Duration,
}

/// The faults of a seed, until they take this long together. All kinds come before one comes
/// again.
pub(crate) fn script(seed: u64, length: Duration) -> Vec<Step> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut steps, mut deck, mut total) = (Vec::new(), Vec::new(), Duration::ZERO);
    while total < length {
        if deck.is_empty() {
            deck = (0..KINDS).collect();
            random.shuffle(&mut deck);
        }
        let step = step(deck.pop().expect("just filled"), &mut random);
        total += step.lasts + step.rest;
        steps.push(step);
    }
    steps
}

/// How many kinds of faults [`step`] knows.
const KINDS: u8 = 16;

fn step(kind: u8, random: &mut fastrand::Rng) -> Step {
    let mut between = |from: u64, to: u64| Duration::from_millis(random.u64(from..to));
    let rest = between(500, 3_000);
    let pause = between(500, 4_000);
    let (brief, any) = (between(500, 5_000), between(500, 12_000));
    // Sessions expire meanwhile, and others get the locks.
    let long = between(11_000, 15_000);
    // What does not end by itself ends after this.
    let moment = Duration::from_millis(100);
    let (fault, lasts) = match kind {
        0 => (Fault::KillLeader, brief),
        1 => (Fault::KillFollower, brief),
        2 => (Fault::KillMajority, brief),
        3 => (Fault::RollingRestart, moment),
        4 => (Fault::IsolateLeader, long),
        5 => (Fault::IsolateFollower, long),
        6 => (Fault::MuteLeader, any),
        7 => (Fault::MuteFollower, any),
        8 => (Fault::PauseLeader, any),
        9 => (Fault::PauseFollower, any),
        10 => (Fault::PauseAndIsolateFollower { pause }, long),
        11 => (Fault::PauseParticipant(random.usize(0..PARTICIPANTS.len())), any),
        12 => (Fault::KillParticipant(random.usize(0..PARTICIPANTS.len())), moment),
        13 => {
            let way = [Way::Both, Way::Requests, Way::Replies][random.usize(0..3)];
            (Fault::CutSite(random.usize(0..SITES), way), any)
        }
        14 => (Fault::ExpireEverybody, Duration::from_secs(10)),
        _ => (Fault::Jump { clocks: [(); SERVERS + SITES].map(|()| jump(random)) }, moment),
    };
    Step { fault, lasts, rest }
}

/// A minute, an hour, a day or ten years, forth or back; or none.
fn jump(random: &mut fastrand::Rng) -> i64 {
    let far = [0, 60, 3_600, 86_400, 315_360_000][random.usize(0..5)];
    if random.bool() { far } else { -far }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, lasts, rest } = self;
        let (lasts, rest) = (lasts.as_secs_f64(), rest.as_secs_f64());
        write!(f, "{fault} for {lasts:.1} s; {rest:.1} s without")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillLeader => write!(f, "the leader is dead"),
            Self::KillFollower => write!(f, "a follower is dead"),
            Self::KillMajority => write!(f, "the leader and a follower are dead"),
            Self::RollingRestart => write!(f, "one server after the other is started again"),
            Self::IsolateLeader => write!(f, "the leader is isolated, and replaced"),
            Self::IsolateFollower => write!(f, "a follower is isolated"),
            Self::MuteLeader => write!(f, "the leader is not heard by the others"),
            Self::MuteFollower => write!(f, "a follower is not heard by the others"),
            Self::PauseLeader => write!(f, "the leader is paused"),
            Self::PauseFollower => write!(f, "a follower is paused"),
            Self::PauseAndIsolateFollower { pause } => {
                let pause = pause.as_secs_f64();
                write!(f, "a follower is paused for {pause:.1} s, and then isolated")
            }
            Self::PauseParticipant(index) => write!(f, "{} is paused", PARTICIPANTS[*index].name),
            Self::KillParticipant(index) => write!(f, "{} is dead", PARTICIPANTS[*index].name),
            Self::CutSite(site, Way::Both) => write!(f, "site {site} is cut off"),
            Self::CutSite(site, Way::Requests) => write!(f, "site {site} is not heard"),
            Self::CutSite(site, Way::Replies) => write!(f, "site {site} hears nothing"),
            Self::ExpireEverybody => write!(f, "all sites are cut off"),
            Self::Jump { clocks } => write!(f, "the wall clocks are off by {clocks:?} s"),
        }
    }
}
