//! The cycles among contenders that are stuck.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use crate::admin::graph::links::Links;
use crate::admin::graph::step::{Because, ContenderIndex, CycleStep, WaitCycle};
use crate::admin::graph::stuck::{Stuck, class};
use crate::admin::inspect::LockQueue;
use crate::profile::Kind;

/// Finds one cycle for each group of contenders that wait for each other.
pub(super) fn find(queues: &[LockQueue], links: &Links, stuck: &Stuck) -> Vec<WaitCycle> {
    let mut reasons = Reasons { links, stuck, queues, ahead: HashMap::new() };
    for (lock, queue) in queues.iter().enumerate() {
        reasons.read(lock, queue);
    }
    let mut cycles: Vec<_> =
        groups(&reasons).iter().filter_map(|group| reasons.cycle(group)).collect();
    cycles.sort_by_key(|cycle| cycle.steps.first().map(|step| step.waiter));
    cycles
}

/// The graph of reasons why contenders are stuck. Its nodes are the contenders and the parties. The number of a party's
/// node is the number of contenders plus its own.
struct Reasons<'a> {
    queues: &'a [LockQueue],
    links: &'a Links,
    stuck: &'a Stuck,
    /// For each stuck contender: the contenders ahead that block it and never finish. A contender is left out if
    /// another one of them waits for it as well, which keeps long queues small.
    ahead: HashMap<usize, Vec<usize>>,
}

impl Reasons<'_> {
    /// Reads a queue, first to last.
    fn read(&mut self, lock: usize, queue: &LockQueue) {
        let mut closest: Vec<(Kind, Vec<usize>)> = Vec::new();
        for (entry, found) in queue.entries.iter().enumerate() {
            let at = ContenderIndex { lock, entry };
            let (number, kind) = (self.links.number(at), class(found.kind));
            let waits = self.stuck.waits(number);
            if waits {
                let ahead = closest.iter().filter(|(ahead, _)| blocks(kind, *ahead));
                let ahead = ahead.flat_map(|(_, numbers)| numbers).copied().collect();
                self.ahead.insert(number, ahead);
                closest.retain(|(ahead, _)| !is_covered(*ahead, kind));
            } else if !self.stuck.is_kept(self.links.party(at), lock) {
                continue;
            }
            match closest.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, numbers)) => numbers.push(number),
                None => closest.push((kind, vec![number])),
            }
        }
    }

    /// The nodes that a node waits for.
    fn next(&self, node: usize, into: &mut Vec<usize>) {
        let contenders = self.links.contenders();
        if let Some(party) = node.checked_sub(contenders) {
            let waits = self.waits_of(party);
            into.extend(waits);
            into.extend(self.kept_under(party).map(|inner| contenders + inner));
            return;
        }
        let (own, lock) = (self.party(node), self.links.at(node).lock);
        for blocker in self.ahead.get(&node).into_iter().flatten() {
            if self.stuck.waits(*blocker) {
                into.push(*blocker);
            }
            let party = self.party(*blocker);
            if party == own {
                continue;
            }
            if self.waits_of(party).any(|wait| self.links.at(wait).lock == lock) {
                into.extend(self.elsewhere(party, lock));
                into.extend(self.kept_under(party).map(|inner| contenders + inner));
            } else {
                into.push(contenders + party);
            }
        }
    }

    fn party(&self, number: usize) -> usize {
        self.links.party(self.links.at(number))
    }

    /// The contenders of a party that are stuck.
    fn waits_of(&self, party: usize) -> impl Iterator<Item = usize> {
        let members = self.links.members(party).iter().map(|at| self.links.number(*at));
        members.filter(|number| self.stuck.waits(*number))
    }

    /// The stuck contenders of a party that wait for another lock.
    fn elsewhere(&self, party: usize, lock: usize) -> impl Iterator<Item = usize> {
        self.waits_of(party).filter(move |wait| self.links.at(*wait).lock != lock)
    }

    /// The parties directly under a party's runs that wait forever.
    fn kept_under(&self, party: usize) -> impl Iterator<Item = usize> {
        let inner = self.links.inner(party).iter().copied();
        inner.filter(|inner| self.stuck.is_kept_somewhere(*inner))
    }

    /// A short cycle in a group of nodes that can all be reached from each other.
    fn cycle(&self, group: &[usize]) -> Option<WaitCycle> {
        let contenders = self.links.contenders();
        let is_in: HashSet<usize> = group.iter().copied().collect();
        let waits = || group.iter().copied().filter(|node| *node < contenders);
        let holds = |number: &usize| {
            let kept = self.links.kept_by(self.party(*number));
            let mut members = kept.flat_map(|party| self.links.members(party));
            members.any(|at| self.queues[at.lock].entries[at.entry].holds)
        };
        let start = waits().filter(holds).min().or_else(|| waits().min())?;

        // Breadth first, back to the start.
        let mut came_from: HashMap<usize, (usize, CycleStep)> = HashMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(waiter) = next.pop_front() {
            for (step, to) in self.steps(waiter) {
                if !is_in.contains(&to) || came_from.contains_key(&to) {
                    continue;
                }
                came_from.insert(to, (waiter, step));
                if to == start {
                    return Some(trace(start, &came_from));
                }
                next.push_back(to);
            }
        }
        None
    }

    /// The steps from a contender, past the holders ahead of it, to the contenders that those holders wait for.
    fn steps(&self, waiter: usize) -> Vec<(CycleStep, usize)> {
        let at = self.links.at(waiter);
        let queue = &self.queues[at.lock];
        let holders = queue.blockers(at.entry).filter(|entry| queue.entries[*entry].holds);
        let holders = holders.map(|entry| self.links.number(ContenderIndex { entry, ..at }));
        let closest = self.ahead.get(&waiter).into_iter().flatten().copied();
        let (own, mut steps) = (self.party(waiter), Vec::new());
        for blocker in holders.chain(closest) {
            let mut add = |because, to| {
                let blocker = self.links.at(blocker);
                steps.push((CycleStep { waiter: at, blocker, because }, to));
            };
            if self.stuck.waits(blocker) {
                add(Because::ItWaits, blocker);
            }
            let party = self.party(blocker);
            if party == own {
                continue;
            }
            for inner in self.links.below(party) {
                self.waits_of(inner).for_each(|to| add(Because::ItsCommandWaits, to));
            }
            let others = self.elsewhere(party, at.lock);
            others.for_each(|to| add(Because::ItsSessionWaits, to));
        }
        steps
    }
}

fn trace(start: usize, came_from: &HashMap<usize, (usize, CycleStep)>) -> WaitCycle {
    let mut steps = Vec::new();
    let mut at = start;
    while let Some((from, step)) = came_from.get(&at) {
        steps.push(*step);
        at = *from;
        if at == start {
            break;
        }
    }
    steps.reverse();
    WaitCycle { steps }
}

/// Whether one kind can wait for the other. Permits can, because they may run out.
fn blocks(kind: Kind, ahead: Kind) -> bool {
    kind.is_blocked_by(ahead) || kind.permits().is_some() && ahead.permits().is_some()
}

/// Whether a contender that waits for contenders of kind `ahead` also waits for one of kind `behind` that waits behind
/// them.
fn is_covered(ahead: Kind, behind: Kind) -> bool {
    let waits_for_both = |kind: &Kind| !blocks(*kind, ahead) || blocks(*kind, behind);
    blocks(behind, ahead) && Kind::ALL.iter().all(waits_for_both)
}

/// The groups of two or more nodes that can be reached from each other (Tarjan's algorithm, without recursion).
fn groups(reasons: &Reasons<'_>) -> Vec<Vec<usize>> {
    let total = reasons.links.contenders() + reasons.links.parties();
    let mut search = Tarjan {
        order: vec![usize::MAX; total],
        low: vec![0; total],
        is_open: vec![false; total],
        ..Tarjan::default()
    };
    let mut starts: Vec<usize> = reasons.ahead.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        search.from(start, reasons);
    }
    search.groups
}

#[derive(Default)]
struct Tarjan {
    /// When each node was first reached, and the earliest node that can be reached from it.
    order: Vec<usize>,
    low: Vec<usize>,
    reached: usize,
    /// Nodes that may be in one group with a later node.
    open: Vec<usize>,
    is_open: Vec<bool>,
    /// The path to the current node, and the `edges` that each node on it still has to follow.
    way: Vec<(usize, Range<usize>)>,
    edges: Vec<usize>,
    groups: Vec<Vec<usize>>,
}

impl Tarjan {
    fn from(&mut self, start: usize, reasons: &Reasons<'_>) {
        if self.order[start] != usize::MAX {
            return;
        }
        self.enter(start, reasons);
        while let Some((node, rest)) = self.way.last_mut() {
            let node = *node;
            if let Some(edge) = rest.next() {
                let to = self.edges[edge];
                if self.order[to] == usize::MAX {
                    self.enter(to, reasons);
                } else if self.is_open[to] {
                    self.low[node] = self.low[node].min(self.order[to]);
                }
                continue;
            }
            self.leave(node);
        }
    }

    fn enter(&mut self, node: usize, reasons: &Reasons<'_>) {
        self.order[node] = self.reached;
        self.low[node] = self.reached;
        self.reached += 1;
        self.open.push(node);
        self.is_open[node] = true;
        let begin = self.edges.len();
        reasons.next(node, &mut self.edges);
        self.way.push((node, begin..self.edges.len()));
    }

    fn leave(&mut self, node: usize) {
        self.way.pop();
        // Its own edges come after those of the nodes on the path to it.
        self.edges.truncate(self.way.last().map_or(0, |(_, before)| before.end));
        if let Some((before, _)) = self.way.last() {
            self.low[*before] = self.low[*before].min(self.low[node]);
        }
        if self.low[node] < self.order[node] {
            return;
        }
        let first = self.open.iter().rposition(|open| *open == node).unwrap_or(0);
        let group = self.open.split_off(first);
        group.iter().for_each(|node| self.is_open[*node] = false);
        if group.len() > 1 {
            self.groups.push(group);
        }
    }
}
