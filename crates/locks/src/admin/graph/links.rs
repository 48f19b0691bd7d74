//! Which contenders belong together: those of one session, and those of nested runs.

use std::collections::HashMap;

use lockkeeper_client::SessionId;

use crate::admin::graph::step::ContenderIndex;
use crate::admin::inspect::LockQueue;

/// The contenders by number, lock by lock, and the parties that they belong to.
///
/// A party does not release any lock while it waits. It consists of the contenders of one session. A contender of an
/// unknown session is a party of its own.
#[derive(Debug)]
pub(super) struct Links {
    /// The number of the first contender of each lock.
    starts: Vec<usize>,
    /// The party of each contender.
    parties: Vec<usize>,
    /// The contenders of each party.
    members: Vec<Vec<ContenderIndex>>,
    /// The locks in which each party waits.
    waits: Vec<Waits>,
    /// For each party: the parties that work under its runs, and the parties under whose runs it works.
    inner: Vec<Vec<usize>>,
    outer: Vec<Vec<usize>>,
}

impl Links {
    pub(super) fn of(queues: &[LockQueue]) -> Self {
        let total = queues.iter().map(|queue| queue.entries.len()).sum();
        let (mut starts, mut parties) =
            (Vec::with_capacity(queues.len()), Vec::with_capacity(total));
        let mut members: Vec<Vec<ContenderIndex>> = Vec::new();
        let mut waits: Vec<Waits> = Vec::new();
        let mut by_session: HashMap<SessionId, usize> = HashMap::new();
        let mut runs = Vec::new();
        for (lock, queue) in queues.iter().enumerate() {
            starts.push(parties.len());
            for (entry, found) in queue.entries.iter().enumerate() {
                let new = members.len();
                let party = match found.session != SessionId::NONE {
                    true => *by_session.entry(found.session).or_insert(new),
                    false => new,
                };
                if party == new {
                    members.push(Vec::new());
                    waits.push(Waits::default());
                }
                members[party].push(ContenderIndex { lock, entry });
                if !found.holds {
                    waits[party].add(lock);
                }
                parties.push(party);
                let under = found.owner.iter().flat_map(|owner| &owner.under);
                runs.extend(under.map(|node| (node.as_str(), party)));
            }
        }

        let mut links =
            Self { starts, parties, members, waits, inner: Vec::new(), outer: Vec::new() };
        links.nest(queues, &runs);
        links
    }

    /// Notes which parties work under the holders of these nodes.
    fn nest(&mut self, queues: &[LockQueue], runs: &[(&str, usize)]) {
        self.inner = vec![Vec::new(); self.members.len()];
        self.outer = vec![Vec::new(); self.members.len()];
        let mut under: HashMap<&str, Vec<usize>> = HashMap::new();
        for (node, party) in runs {
            under.entry(node).or_default().push(*party);
        }
        if under.is_empty() {
            return;
        }
        for (number, party) in self.parties.iter().enumerate() {
            let at = self.at(number);
            let node = queues[at.lock].entries[at.entry].node.as_str();
            for inner in under.get(node).into_iter().flatten().filter(|inner| *inner != party) {
                if !self.inner[*party].contains(inner) {
                    self.inner[*party].push(*inner);
                    self.outer[*inner].push(*party);
                }
            }
        }
    }

    pub(super) fn contenders(&self) -> usize {
        self.parties.len()
    }

    pub(super) fn parties(&self) -> usize {
        self.members.len()
    }

    pub(super) fn number(&self, at: ContenderIndex) -> usize {
        self.starts[at.lock] + at.entry
    }

    pub(super) fn at(&self, number: usize) -> ContenderIndex {
        let lock = self.starts.partition_point(|start| *start <= number) - 1;
        ContenderIndex { lock, entry: number - self.starts[lock] }
    }

    pub(super) fn party(&self, at: ContenderIndex) -> usize {
        self.parties[self.number(at)]
    }

    pub(super) fn members(&self, party: usize) -> &[ContenderIndex] {
        &self.members[party]
    }

    pub(super) fn inner(&self, party: usize) -> &[usize] {
        &self.inner[party]
    }

    pub(super) fn outer(&self, party: usize) -> &[usize] {
        &self.outer[party]
    }

    /// The locks in which the contenders of each party wait.
    pub(super) fn waits(&self) -> &[Waits] {
        &self.waits
    }

    /// Whether a party keeps its hold on a lock until it, or a party under its runs, has acquired another lock.
    pub(super) fn is_waiting(&self, party: usize, lock: usize) -> bool {
        let mut below = self.below(party);
        self.waits[party].are_elsewhere(lock) || below.any(|party| !self.waits[party].is_empty())
    }

    /// The parties under a party's runs, at any depth.
    pub(super) fn below(&self, party: usize) -> impl Iterator<Item = usize> {
        reach(party, &self.inner).skip(1)
    }

    /// The parties that do not release while this one waits: the party itself, and the parties that it works under.
    pub(super) fn kept_by(&self, party: usize) -> impl Iterator<Item = usize> {
        reach(party, &self.outer)
    }
}

/// The locks in which contenders of one party wait, with the number of waiters.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(HashMap<usize, usize>);

impl Waits {
    fn add(&mut self, lock: usize) {
        *self.0.entry(lock).or_default() += 1;
    }

    /// One contender no longer waits. Returns whether it was the last one for this lock.
    pub(super) fn remove(&mut self, lock: usize) -> bool {
        let Some(count) = self.0.get_mut(&lock) else { return false };
        *count -= 1;
        *count == 0 && self.0.remove(&lock).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a contender waits for a lock other than `lock`. Contenders that wait for the same lock belong to
    /// other tasks.
    pub(super) fn are_elsewhere(&self, lock: usize) -> bool {
        self.0.len() > usize::from(self.0.contains_key(&lock))
    }

    /// The lock, if there is exactly one.
    pub(super) fn only(&self) -> Option<usize> {
        self.0.keys().next().copied().filter(|_| self.0.len() == 1)
    }
}

/// A party, and the parties that can be reached from it, each once.
fn reach(party: usize, next: &[Vec<usize>]) -> impl Iterator<Item = usize> {
    let (mut seen, mut at) = (vec![party], 0);
    std::iter::from_fn(move || {
        let party = *seen.get(at)?;
        at += 1;
        for other in &next[party] {
            if !seen.contains(other) {
                seen.push(*other);
            }
        }
        Some(party)
    })
}
