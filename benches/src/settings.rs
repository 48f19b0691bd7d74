//! How long, how often, how many.

use std::time::Duration;

use crate::measure::Plan;
use crate::system::System;

/// The size of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Whether it is the small one, whose figures are good for a look and no more.
    pub(crate) quick: bool,
    /// Only turns whose description has this in it, such as `(engine, os), 256 tasks`.
    pub(crate) only: Option<String>,
    /// Whether processors are kept from sleeping, as on a machine on which waking is fast.
    pub(crate) keep_awake: bool,
    /// How often a system has its turn.
    pub(crate) rounds: usize,
    /// How long a turn is.
    pub(crate) plan: Plan,
    /// How often the systems of P5 to P7 have theirs with the loads of these targets. Apache
    /// ZooKeeper takes a snapshot and collects its garbage every few seconds: what a turn of a
    /// second meets of that is chance, and longer turns still differ by a factor of two on some
    /// disks.
    pub(crate) zookeeper_rounds: usize,
    /// How long these turns are.
    pub(crate) zookeeper_plan: Plan,
    /// Tasks with a lock each.
    pub(crate) tasks: Vec<usize>,
    /// Clients of one lock.
    pub(crate) clients: Vec<usize>,
    /// Waiters of the herd.
    pub(crate) herd: usize,
    /// Waiters of one lock, for the curve of what one more costs.
    pub(crate) waiters: Vec<usize>,
    /// Contenders in all, for the memory that each takes.
    pub(crate) contenders: usize,
    /// Sessions, likewise.
    pub(crate) sessions: usize,
    /// Nodes, likewise.
    pub(crate) nodes: usize,
    /// Nodes of a cache.
    pub(crate) cached: Vec<usize>,
    /// Nodes of a cache whose memory is measured.
    pub(crate) cached_most: usize,
    /// Items of a queue.
    pub(crate) queued: Vec<usize>,
    /// How often a holder is killed.
    pub(crate) kills: usize,
}

impl Settings {
    /// The small one, of under three minutes, or the one that is published.
    pub(crate) fn of(quick: bool) -> Self {
        fn either<T>(quick: bool, small: T, full: T) -> T {
            if quick { small } else { full }
        }
        Self {
            quick,
            only: None,
            keep_awake: false,
            rounds: 3,
            plan: either(quick, plan(80, 250), plan(300, 1_000)),
            zookeeper_rounds: either(quick, 3, 5),
            zookeeper_plan: either(quick, plan(80, 250), plan(300, 3_000)),
            tasks: either(quick, vec![1, 64, 256], vec![1, 16, 64, 256, 1_024]),
            clients: either(quick, vec![8, 64], vec![2, 8, 64]),
            herd: 1_000,
            waiters: either(quick, vec![10, 100, 1_000], vec![10, 100, 1_000, 10_000]),
            contenders: either(quick, 20_000, 100_000),
            sessions: either(quick, 1_000, 5_000),
            nodes: either(quick, 20_000, 100_000),
            cached: either(quick, vec![10_000], vec![50_000, 100_000]),
            cached_most: either(quick, 100_000, 1_000_000),
            queued: either(quick, vec![100, 1_000, 10_000], vec![100, 1_000, 100_000]),
            kills: either(quick, 1, 3),
        }
    }

    /// How many turns this system has, and how long each is, with a load that a target is about or
    /// not.
    pub(crate) fn turns_of(&self, system: System, is_of_target: bool) -> (usize, Plan) {
        match is_of_target && system.is_held_against_curator() {
            true => (self.zookeeper_rounds, self.zookeeper_plan),
            false => (self.rounds, self.plan),
        }
    }
}

fn plan(warm_up: u64, measure: u64) -> Plan {
    Plan { warm_up: Duration::from_millis(warm_up), measure: Duration::from_millis(measure) }
}
