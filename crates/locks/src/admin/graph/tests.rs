//! Checks the graph of random sets of locks against a literal implementation of the definitions, and against simulated
//! programs that make as much progress as they can.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockkeeper_client::{SessionId, Stat, ZnodePath, Zxid};
use uuid::Uuid;

use super::*;
use crate::admin::inspect::{Entry, KnownTree, LockQueue, LockQueues};
use crate::owner_info::OwnerInfo;
use crate::profile::{Kind, Profile};

const SEEDS: u64 = 1_000;

/// Nodes by path.
#[derive(Default)]
struct Nodes(BTreeMap<String, (Bytes, Stat)>);

impl KnownTree for Nodes {
    fn node(&self, path: &str) -> Option<(Bytes, Stat)> {
        self.0.get(path).cloned()
    }

    fn children(&self, path: &str) -> Vec<String> {
        let front = format!("{}/", path.trim_end_matches('/'));
        let below = self.0.keys().filter_map(|key| key.strip_prefix(&front));
        below.filter(|name| !name.contains('/') && !name.is_empty()).map(str::to_owned).collect()
    }
}

/// Locks with contenders of some sessions.
struct World {
    random: fastrand::Rng,
    nodes: Nodes,
    zxid: i64,
}

/// The kinds of contenders in each use of a lock.
const USES: [&[Kind]; 4] = [
    &[Kind::Exclusive],
    &[Kind::Read, Kind::Write, Kind::Upgradeable],
    &[Kind::Permits(1)],
    &[Kind::Latch],
];

impl World {
    fn new(seed: u64) -> Self {
        let (random, nodes) = (fastrand::Rng::with_seed(seed), Nodes::default());
        Self { random, nodes, zxid: 1 }
    }

    /// `alone`: each session has at most one contender for a lock.
    fn fill(&mut self, alone: bool) {
        let (locks, sessions) = (self.random.usize(1..6), self.random.i64(1..9));
        let mut all_nodes: Vec<String> = Vec::new();
        self.put("/locks", Bytes::new(), 0);
        for lock in 0..locks {
            let path = format!("/locks/{lock}");
            let uses = USES[self.random.usize(..USES.len())];
            let counts = uses[0].permits().is_some();
            let profile = match self.random.bool() && !counts && uses != USES[3] {
                true => Profile::Kazoo,
                false => Profile::Curator,
            };
            let limit = self.random.u32(1..6);
            let data = if counts { limit.to_string() } else { String::new() };
            self.put(&path, data.into(), 0);

            let mut taken = Vec::new();
            for number in 0..self.random.usize(0..7) {
                let session = self.random.i64(1..=sessions);
                if alone && taken.contains(&session) {
                    continue;
                }
                taken.push(session);
                let mut kind = uses[self.random.usize(..uses.len())];
                if counts {
                    kind = Kind::Permits(self.random.u32(1..=limit));
                }
                let id = Uuid::from_u128(u128::from(self.random.u64(..)));
                let node = format!("{path}/{}{number:010}", profile.new_prefix(kind, id));
                let mut owner = OwnerInfo::default();
                if !all_nodes.is_empty() && self.random.u8(..6) == 0 {
                    owner.under = vec![all_nodes[self.random.usize(..all_nodes.len())].clone()];
                }
                self.put(&node, owner.to_data(), session);
                all_nodes.push(node);
            }
        }
    }

    fn put(&mut self, path: &str, data: Bytes, session: i64) {
        let zxid = Zxid(self.zxid);
        self.zxid += 1;
        let length = i32::try_from(data.len()).unwrap();
        let stat = Stat {
            czxid: zxid,
            ephemeral_owner: SessionId(session),
            data_length: length,
            ..Stat::default()
        };
        self.nodes.0.insert(path.to_owned(), (data, stat));
    }

    fn queues(&self) -> Vec<LockQueue> {
        LockQueues::in_tree(&self.nodes, &ZnodePath::new("/locks").unwrap()).queues
    }
}

/// All contenders of some queues, with the contenders that block each, pair by pair.
struct Plain<'a> {
    queues: &'a [LockQueue],
    all: Vec<ContenderIndex>,
}

impl<'a> Plain<'a> {
    fn new(queues: &'a [LockQueue]) -> Self {
        let locks = queues.iter().enumerate();
        let all = locks.flat_map(|(lock, queue)| {
            (0..queue.entries.len()).map(move |entry| ContenderIndex { lock, entry })
        });
        Self { queues, all: all.collect() }
    }

    fn get(&self, at: ContenderIndex) -> &'a Entry {
        &self.queues[at.lock].entries[at.entry]
    }

    fn session(&self, at: ContenderIndex) -> SessionId {
        self.get(at).session
    }

    /// Whether `inner` works under a run of `outer`'s session, directly.
    fn is_under(&self, inner: SessionId, outer: SessionId) -> bool {
        let runs = self.all.iter().filter(|at| self.session(**at) == inner);
        let mut nodes = runs.flat_map(|at| &self.get(*at).owner.as_ref().unwrap().under);
        inner != outer
            && nodes.any(|node| {
                let mut holders = self.all.iter().map(|at| self.get(*at));
                holders.any(|entry| entry.node.as_str() == node && entry.session == outer)
            })
    }

    /// Whether a contender has its turn while the queue has the contenders for which `is_there` is true.
    fn has_its_turn(&self, at: ContenderIndex, is_there: impl Fn(ContenderIndex) -> bool) -> bool {
        let kind = self.get(at).kind;
        let ahead = (0..at.entry).map(|entry| ContenderIndex { entry, ..at });
        let ahead: Vec<Kind> =
            ahead.filter(|at| is_there(*at)).map(|at| self.get(at).kind).collect();
        match (kind, self.queues[at.lock].permits) {
            (Kind::Permits(wanted), Some(permits)) => {
                wanted + ahead.iter().filter_map(|kind| kind.permits()).sum::<u32>() <= permits
            }
            _ => !ahead.iter().any(|ahead| kind.is_blocked_by(*ahead)),
        }
    }

    /// The contenders that never get their turn: applies the definition until nothing changes.
    fn stuck(&self) -> Vec<ContenderIndex> {
        let mut acquired: Vec<ContenderIndex> = Vec::new();
        loop {
            let before = acquired.len();
            for at in &self.all {
                let is_there = |ahead: ContenderIndex| {
                    let is_own = self.session(ahead) == self.session(*at);
                    !acquired.contains(&ahead) || !is_own && self.is_kept(ahead, &acquired)
                };
                if !acquired.contains(at) && self.has_its_turn(*at, is_there) {
                    acquired.push(*at);
                }
            }
            if acquired.len() == before {
                return self.all.iter().copied().filter(|at| !acquired.contains(at)).collect();
            }
        }
    }

    /// Whether a contender stays because its session waits for another lock, or a program under its run waits.
    fn is_kept(&self, at: ContenderIndex, acquired: &[ContenderIndex]) -> bool {
        let session = self.session(at);
        self.all.iter().filter(|other| !acquired.contains(other)).any(|other| {
            let is_own = self.session(*other) == session;
            is_own && other.lock != at.lock || self.is_below(self.session(*other), session)
        })
    }

    /// Whether `inner` works under a run of `outer`'s session, at any depth.
    fn is_below(&self, inner: SessionId, outer: SessionId) -> bool {
        let mut below = vec![outer];
        loop {
            let sessions = self.all.iter().map(|at| self.session(*at));
            let mut new = sessions.filter(|session| !below.contains(session));
            match new.find(|new| below.iter().any(|outer| self.is_under(*new, *outer))) {
                Some(new) => below.push(new),
                None => return below[1..].contains(&inner),
            }
        }
    }

    /// The contenders that wait forever if each session does one thing at a time, and releases as soon as
    /// neither it nor a program under its runs waits.
    fn left_by_programs(&self) -> Vec<ContenderIndex> {
        let mut there = self.all.clone();
        loop {
            let waits = |session: SessionId| {
                let mut own = there.iter().filter(|at| self.session(**at) == session);
                own.any(|at| !self.has_its_turn(*at, |ahead| there.contains(&ahead)))
            };
            let may_go = |at: &ContenderIndex| {
                let session = self.session(*at);
                let mut inner = there.iter().map(|at| self.session(*at));
                !waits(session) && !inner.any(|inner| self.is_under(inner, session))
            };
            let Some(index) = there.iter().position(may_go) else { break };
            there.remove(index);
        }
        let waits = |at: &ContenderIndex| !self.has_its_turn(*at, |ahead| there.contains(&ahead));
        there.iter().copied().filter(waits).collect()
    }
}

fn check(seed: u64, alone: bool) -> usize {
    let mut world = World::new(seed);
    world.fill(alone);
    let queues = world.queues();
    let (graph, plain) = (WaitGraph::new(&queues), Plain::new(&queues));

    for at in &plain.all {
        let holds = plain.has_its_turn(*at, |_| true);
        assert_eq!(graph.contender(*at).holds, holds, "{at:?} of seed {seed}");
        let kind = plain.get(*at).kind;
        let ahead = (0..at.entry).map(|entry| ContenderIndex { entry, ..*at });
        let blocks = |ahead: &ContenderIndex| {
            let ahead = plain.get(*ahead).kind;
            kind.permits().is_some() || kind.is_blocked_by(ahead)
        };
        let expected: Vec<_> = ahead.filter(|ahead| !holds && blocks(ahead)).collect();
        assert_eq!(graph.blockers(*at).collect::<Vec<_>>(), expected, "{at:?} of seed {seed}");
    }

    let stuck: Vec<_> = plain.all.iter().copied().filter(|at| graph.is_stuck(*at)).collect();
    assert_eq!(stuck, plain.stuck(), "seed {seed}");
    if alone {
        assert_eq!(stuck, plain.left_by_programs(), "seed {seed}");
    }
    let cycles = graph.cycles();
    assert_eq!(cycles.is_empty(), stuck.is_empty(), "seed {seed}");
    cycles.iter().for_each(|cycle| check_cycle(seed, cycle, &graph, &plain));
    check_roots(seed, alone, &graph, &plain);
    cycles.len()
}

fn check_cycle(seed: u64, cycle: &WaitCycle, graph: &WaitGraph<'_>, plain: &Plain<'_>) {
    assert!(!cycle.steps.is_empty(), "seed {seed}");
    for (step, next) in cycle.steps.iter().zip(cycle.steps.iter().cycle().skip(1)) {
        let CycleStep { waiter, blocker, because } = *step;
        let text = || format!("{step:?} of seed {seed}");
        assert!(graph.is_stuck(waiter) && graph.is_stuck(next.waiter), "{}", text());
        assert!(graph.blockers(waiter).any(|at| at == blocker), "{}", text());
        let (outer, inner) = (plain.session(blocker), plain.session(next.waiter));
        match because {
            Because::ItWaits => assert_eq!(blocker, next.waiter, "{}", text()),
            Because::ItsSessionWaits => {
                assert!(outer == inner && plain.session(waiter) != outer, "{}", text());
            }
            Because::ItsCommandWaits => assert!(outer != inner, "{}", text()),
        }
    }
}

/// Every waiter that is not stuck is behind a root blocker, and a root blocker does not wait.
fn check_roots(seed: u64, alone: bool, graph: &WaitGraph<'_>, plain: &Plain<'_>) {
    let roots = graph.roots();
    for root in &roots {
        let session = plain.session(root.holder);
        let waits = |at: &&ContenderIndex| !plain.get(**at).holds && plain.session(**at) == session;
        // Where a session blocks itself, another of its tasks makes progress.
        let mut waits = plain.all.iter().filter(waits);
        assert!(!alone || waits.next().is_none(), "{root:?} of seed {seed}");
        let lines = root.locks.iter().map(|lock| graph.queues()[*lock].waiters().count());
        assert_eq!(lines.sum::<usize>(), root.waiters, "{root:?} of seed {seed}");
    }
    for at in graph.waiters().filter(|at| !graph.is_stuck(*at)) {
        let is_behind = roots.iter().any(|root| root.locks.contains(&at.lock));
        assert!(is_behind, "{at:?} of seed {seed}");
    }
}

#[test]
fn edges_and_cycles_are_those_of_programs_that_go_on_as_far_as_they_can() {
    let found: usize = (1..=SEEDS).map(|seed| check(seed, true)).sum();
    assert!(found > 100, "only {found} cycles in {SEEDS} worlds");
}

#[test]
fn within_a_session_nothing_is_a_cycle() {
    let found: usize = (1..=SEEDS).map(|seed| check(seed, false)).sum();
    assert!(found > 100, "only {found} cycles in {SEEDS} worlds");
}
