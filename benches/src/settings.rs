//! How long, how often, how many.

use std::time::Duration;

use crate::measure::Plan;
use crate::system::System;

/// The size of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether it is the small one, whose figures are good for a look and no more.
    pub quick: bool,
    /// Only turns whose description has this in it, such as `(engine, os), 256 tasks`.
    pub only: Option<String>,
    /// How often a system has its turn.
    pub rounds: usize,
    /// How long a turn is.
    pub plan: Plan,
    /// How often the systems of P5 to P7 have theirs with the loads of these targets. Apache
    /// ZooKeeper takes a snapshot and collects its garbage every few seconds: what a turn of a
    /// second meets of that is chance, and longer turns still differ by a factor of two on some
    /// disks.
    pub zookeeper_rounds: usize,
    /// How long these turns are.
    pub zookeeper_plan: Plan,
    /// Tasks with a lock each.
    pub tasks: Vec<usize>,
    /// Clients of one lock.
    pub clients: Vec<usize>,
    /// Waiters of the herd.
    pub herd: usize,
    /// Waiters of one lock, for the curve of what one more costs.
    pub waiters: Vec<usize>,
    /// Contenders in all, for the memory that each takes.
    pub contenders: usize,
    /// Sessions, likewise.
    pub sessions: usize,
    /// Nodes, likewise.
    pub nodes: usize,
    /// Nodes of a cache.
    pub cached: Vec<usize>,
    /// Nodes of a cache whose memory is measured.
    pub cached_most: usize,
    /// How often a holder is killed.
    pub kills: usize,
}

impl Settings {
    /// The small one, or the one that is published.
    pub fn of(quick: bool) -> Self {
        if quick { Self::quick() } else { Self::full() }
    }

    /// Under three minutes.
    fn quick() -> Self {
        Self {
            quick: true,
            only: None,
            rounds: 3,
            plan: plan(80, 250),
            zookeeper_rounds: 3,
            zookeeper_plan: plan(80, 250),
            tasks: vec![1, 64, 256],
            clients: vec![8, 64],
            herd: 1_000,
            waiters: vec![10, 100, 1_000],
            contenders: 20_000,
            sessions: 1_000,
            nodes: 20_000,
            cached: vec![10_000],
            cached_most: 100_000,
            kills: 1,
        }
    }

    fn full() -> Self {
        Self {
            quick: false,
            only: None,
            rounds: 3,
            plan: plan(300, 1_000),
            zookeeper_rounds: 5,
            zookeeper_plan: plan(300, 3_000),
            tasks: vec![1, 16, 64, 256, 1_024],
            clients: vec![2, 8, 64],
            herd: 1_000,
            waiters: vec![10, 100, 1_000, 10_000],
            contenders: 100_000,
            sessions: 5_000,
            nodes: 100_000,
            cached: vec![50_000, 100_000],
            cached_most: 1_000_000,
            kills: 3,
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
