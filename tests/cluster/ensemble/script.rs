//! What goes wrong, when, and for how long: all of it follows from the seed.
//!
//! A new fault is one more variant here, and what it does in `field.rs`.

use std::fmt;
use std::time::Duration;

use super::field::{SERVERS, SITES};
use super::programs::PARTICIPANTS;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Something is wrong with the leader, or with a follower.
    Server(Seat, Harm),
    /// The leader and a follower are killed: commits are impossible.
    KillMajority,
    /// Each server is killed and started again, the leader last.
    RollingRestart,
    /// A follower stops for this long, and is isolated when it continues.
    PauseAndIsolateFollower(Duration),
    /// A program stops in the middle of whatever it does.
    PauseParticipant(usize),
    /// A program is killed, and started again at the end.
    KillParticipant(usize),
    /// The links between a site and all servers are cut.
    CutSite(usize, FaultWay),
    /// The links between all sites and all servers are cut, for long enough that every session
    /// expires.
    ExpireEverybody,
    /// The wall clocks of some hosts jump, and stay there: for each server and each site, by how many
    /// seconds it is then ahead.
    Jump([i64; SERVERS + SITES]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    Leader,
    Follower,
}

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// It is killed, and started again at the end.
    Kill,
    /// Nothing passes between it and the other servers; of a leader, these notice at once. It does not
    /// know, and serves its clients on.
    Isolate,
    /// What it sends to the other servers is lost.
    Mute,
    /// It stops in the middle of whatever it does.
    Pause,
}

/// Which way of a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultWay {
    Both,
    Requests,
    Replies,
}

/// A fault, how long it lasts, and how long everything is well afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
    pub(super) rest: Duration,
}

/// The faults of a seed, until they take this long together. All kinds come before one comes
/// again.
pub(super) fn script(seed: u64, length: Duration) -> Vec<Step> {
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
    use Harm::{Isolate, Kill, Mute, Pause};
    use Seat::{Follower, Leader};

    let mut between = |from: u64, to: u64| Duration::from_millis(random.u64(from..to));
    let rest = between(500, 3_000);
    let pause = between(500, 4_000);
    let (brief, any) = (between(500, 5_000), between(500, 12_000));
    // Sessions expire during this time, and other programs get the locks.
    let long = between(11_000, 15_000);
    // What does not end by itself ends after this.
    let moment = Duration::from_millis(100);
    let (fault, lasts) = match kind {
        0 => (Fault::Server(Leader, Kill), brief),
        1 => (Fault::Server(Follower, Kill), brief),
        2 => (Fault::KillMajority, brief),
        3 => (Fault::RollingRestart, moment),
        4 => (Fault::Server(Leader, Isolate), long),
        5 => (Fault::Server(Follower, Isolate), long),
        6 => (Fault::Server(Leader, Mute), any),
        7 => (Fault::Server(Follower, Mute), any),
        8 => (Fault::Server(Leader, Pause), any),
        9 => (Fault::Server(Follower, Pause), any),
        10 => (Fault::PauseAndIsolateFollower(pause), long),
        11 => (Fault::PauseParticipant(random.usize(0..PARTICIPANTS.len())), any),
        12 => (Fault::KillParticipant(random.usize(0..PARTICIPANTS.len())), moment),
        13 => {
            let way = [FaultWay::Both, FaultWay::Requests, FaultWay::Replies][random.usize(0..3)];
            (Fault::CutSite(random.usize(0..SITES), way), any)
        }
        14 => (Fault::ExpireEverybody, Duration::from_secs(10)),
        _ => (Fault::Jump([(); SERVERS + SITES].map(|()| jump(random))), moment),
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
            Self::Server(seat, harm) => {
                let seat = if *seat == Seat::Leader { "the leader" } else { "a follower" };
                write!(f, "{seat} is {harm}")
            }
            Self::KillMajority => write!(f, "the leader and a follower are dead"),
            Self::RollingRestart => write!(f, "one server after the other is started again"),
            Self::PauseAndIsolateFollower(pause) => {
                let pause = pause.as_secs_f64();
                write!(f, "a follower is paused for {pause:.1} s, and then isolated")
            }
            Self::PauseParticipant(index) => write!(f, "{} is paused", PARTICIPANTS[*index].name),
            Self::KillParticipant(index) => write!(f, "{} is dead", PARTICIPANTS[*index].name),
            Self::CutSite(site, FaultWay::Both) => write!(f, "site {site} is cut off"),
            Self::CutSite(site, FaultWay::Requests) => write!(f, "site {site} is not heard"),
            Self::CutSite(site, FaultWay::Replies) => write!(f, "site {site} hears nothing"),
            Self::ExpireEverybody => write!(f, "all sites are cut off"),
            Self::Jump(clocks) => write!(f, "the wall clocks are off by {clocks:?} s"),
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "dead",
            Self::Isolate => "isolated",
            Self::Mute => "not heard by the others",
            Self::Pause => "paused",
        })
    }
}
