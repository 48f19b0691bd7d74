//! Finds the contenders that never get their turn unless another one gives up: those that remain when every contender
//! that can make progress has done so.
//!
//! A contender *acquires* when all contenders that block it have finished, or enough of them to leave its permits. It
//! *finishes* when it has acquired, its party has acquired all other locks that it waits for, and no party under
//! its runs waits.
//!
//! A session with two contenders for one lock has two tasks. So the waits of a party in one lock do not keep its other
//! contenders in that lock from finishing. A contender that is blocked by another one of its party can rely on that one
//! to finish as soon as it has acquired.

use std::collections::{HashMap, VecDeque};

use crate::admin::graph::links::{Links, Waits};
use crate::admin::graph::step::ContenderIndex;
use crate::admin::inspect::LockQueue;
use crate::profile::Kind;

#[derive(Debug)]
pub(super) struct Stuck {
    /// Which contenders acquire, by number.
    acquires: Vec<bool>,
    /// The locks in which parties wait forever.
    waits: Vec<Waits>,
    /// For each party: the number of parties under its runs that wait forever.
    nested: Vec<usize>,
}

impl Stuck {
    pub(super) fn find(queues: &[LockQueue], links: &Links) -> Self {
        let entries = queues.iter().flat_map(|queue| &queue.entries);
        let acquires: Vec<bool> = entries.map(|entry| entry.holds).collect();
        let nested = (0..links.parties()).map(|party| links.inner(party).len()).collect();
        let mut search = Search {
            queues,
            links,
            found: Self { acquires, waits: links.waits().to_vec(), nested },
            is_idle: vec![false; links.parties()],
            dirty: VecDeque::new(),
            is_dirty: vec![false; queues.len()],
        };
        search.run();
        search.found
    }

    /// Whether a contender waits forever.
    pub(super) fn waits(&self, number: usize) -> bool {
        !self.acquires[number]
    }

    /// Whether a party never releases its hold on a lock.
    pub(super) fn is_kept(&self, party: usize, lock: usize) -> bool {
        self.nested[party] > 0 || self.waits[party].are_elsewhere(lock)
    }

    /// Whether there is a lock that a party never releases.
    pub(super) fn is_kept_somewhere(&self, party: usize) -> bool {
        self.nested[party] > 0 || !self.waits[party].is_empty()
    }
}

struct Search<'a> {
    queues: &'a [LockQueue],
    links: &'a Links,
    found: Stuck,
    /// Whether each party, with the parties under its runs, does not wait.
    is_idle: Vec<bool>,
    /// Locks in which contenders may make progress.
    dirty: VecDeque<usize>,
    is_dirty: Vec<bool>,
}

impl Search<'_> {
    fn run(&mut self) {
        for (lock, queue) in self.queues.iter().enumerate() {
            if queue.waiters().next().is_some() {
                self.mark(lock);
            }
        }
        for party in 0..self.links.parties() {
            self.look_at(party);
        }

        while let Some(lock) = self.dirty.pop_front() {
            self.is_dirty[lock] = false;
            self.acquire_all(lock);
        }
    }

    fn mark(&mut self, lock: usize) {
        if !std::mem::replace(&mut self.is_dirty[lock], true) {
            self.dirty.push_back(lock);
        }
    }

    /// Updates what follows from the current waits of a party.
    fn look_at(&mut self, party: usize) {
        let mut parties = vec![party];
        while let Some(party) = parties.pop() {
            if self.found.is_kept_somewhere(party) {
                let only = self.found.waits[party].only().filter(|_| self.found.nested[party] == 0);
                only.into_iter().for_each(|lock| self.mark(lock));
                continue;
            }
            if std::mem::replace(&mut self.is_idle[party], true) {
                continue;
            }
            for member in self.links.members(party) {
                if self.queues[member.lock].entries.len() > member.entry + 1 {
                    self.mark(member.lock);
                }
            }
            for outer in self.links.outer(party) {
                self.found.nested[*outer] -= 1;
                parties.push(*outer);
            }
        }
    }

    /// Finds the contenders of a lock that acquire, first to last.
    fn acquire_all(&mut self, lock: usize) {
        let queue = &self.queues[lock];
        let mut ahead = Ahead::default();
        for (entry, found) in queue.entries.iter().enumerate() {
            let at = ContenderIndex { lock, entry };
            let (number, party) = (self.links.number(at), self.links.party(at));
            if self.found.waits(number) && !ahead.blocks(found.kind, party, queue.permits) {
                self.found.acquires[number] = true;
                if self.found.waits[party].remove(lock) {
                    self.look_at(party);
                }
            }
            match (self.found.waits(number), self.found.is_kept(party, lock)) {
                (true, _) => ahead.add(found.kind, None),
                (false, true) => ahead.add(found.kind, Some(party)),
                (false, false) => {}
            }
        }
    }
}

/// The contenders ahead that never finish, by kind.
#[derive(Default)]
struct Ahead(Vec<(Kind, OfKind)>);

/// Contenders of one kind, or the permits that they take.
#[derive(Default)]
struct OfKind {
    /// The contenders that have not acquired.
    waiting: u64,
    /// The contenders that have acquired, by party.
    kept: HashMap<usize, u64>,
    all_kept: u64,
}

impl Ahead {
    /// `party`: the party of a contender that has acquired; `None` for one that has not.
    fn add(&mut self, kind: Kind, party: Option<usize>) {
        let class = class(kind);
        let index = self.0.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
            self.0.push((class, OfKind::default()));
            self.0.len() - 1
        });
        let of_kind = &mut self.0[index].1;
        let weight = u64::from(kind.permits().unwrap_or(1));
        match party {
            None => of_kind.waiting += weight,
            Some(party) => {
                *of_kind.kept.entry(party).or_default() += weight;
                of_kind.all_kept += weight;
            }
        }
    }

    /// Whether a contender of this kind and party waits forever. `permits`: the number of permits.
    fn blocks(&self, kind: Kind, party: usize, permits: Option<u32>) -> bool {
        let mut taken = u64::from(kind.permits().unwrap_or(0));
        for (ahead, of_kind) in &self.0 {
            let own = of_kind.kept.get(&party).copied().unwrap_or(0);
            let in_the_way = of_kind.waiting + of_kind.all_kept - own;
            if kind.permits().is_some() && ahead.permits().is_some() {
                taken += in_the_way;
            } else if in_the_way > 0 && kind.is_blocked_by(*ahead) {
                return true;
            }
        }
        kind.permits().is_some() && permits.is_some_and(|permits| taken > u64::from(permits))
    }
}

/// Maps kinds that differ only in the number of permits to one kind.
pub(super) fn class(kind: Kind) -> Kind {
    match kind {
        Kind::Permits(_) => Kind::Permits(1),
        kind => kind,
    }
}
