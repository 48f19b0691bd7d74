//! [`WaitGraph`]: the waits for all of some locks.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use crate::admin::graph::cycles;
use crate::admin::graph::links::Links;
use crate::admin::graph::step::{Because, ContenderIndex, WaitCycle};
use crate::admin::graph::stuck::Stuck;
use crate::admin::inspect::{Entry, LockQueue};

/// Who waits for whom. See the [module](super) for what that can tell.
#[derive(Debug)]
pub struct WaitGraph<'a> {
    queues: &'a [LockQueue],
    links: Links,
    stuck: Stuck,
}

/// A holder that others wait for, and whose session waits for no other lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootBlocker {
    /// The holder; one of them, if its session holds several locks that others wait for.
    pub holder: ContenderIndex,
    /// The locks whose lines do not move before it goes on: its own, and those of holders that wait behind it.
    pub locks: Vec<usize>,
    /// How many contenders wait in these lines.
    pub waiters: usize,
    /// The one of them that is longest in line.
    pub oldest: ContenderIndex,
}

impl<'a> WaitGraph<'a> {
    /// Reads who waits for whom from the queues of some locks. No I/O. Takes time in proportion to the number of
    /// contenders.
    pub fn new(queues: &'a [LockQueue]) -> Self {
        let links = Links::of(queues);
        let stuck = Stuck::find(queues, &links);
        Self { queues, links, stuck }
    }

    /// The locks.
    pub fn queues(&self) -> &'a [LockQueue] {
        self.queues
    }

    /// A contender.
    ///
    /// # Panics
    /// If there is no such contender in this graph.
    pub fn contender(&self, at: ContenderIndex) -> &'a Entry {
        &self.queues[at.lock].entries[at.entry]
    }

    /// All that wait, lock by lock, first to last.
    pub fn waiters(&self) -> impl Iterator<Item = ContenderIndex> {
        self.queues.iter().enumerate().flat_map(|(lock, queue)| {
            let waits = queue.entries.iter().enumerate().filter(|(_, entry)| !entry.holds);
            waits.map(move |(entry, _)| ContenderIndex { lock, entry })
        })
    }

    /// Those that a contender waits for: all ahead of it that block it, first to last. Where permits are counted,
    /// some of them have to go, and it does not matter which.
    pub fn blockers(&self, of: ContenderIndex) -> impl Iterator<Item = ContenderIndex> {
        let queue = self.queues.get(of.lock);
        let blockers = queue.into_iter().flat_map(move |queue| queue.blockers(of.entry));
        blockers.map(move |entry| ContenderIndex { entry, ..of })
    }

    /// The other waits that keep a contender from going on: those of its session for other locks, and those of the
    /// commands under its run.
    pub fn kept_for(&self, at: ContenderIndex) -> Vec<(ContenderIndex, Because)> {
        let own = self.links.party(at);
        let waits = |party: usize| {
            let members = self.links.members(party).iter().copied();
            members.filter(|member| !self.contender(*member).holds)
        };
        let of_session = waits(own).filter(|wait| wait.lock != at.lock);
        let of_session = of_session.map(|wait| (wait, Because::ItsSessionWaits));
        let of_command = self.links.below(own).flat_map(waits);
        of_session.chain(of_command.map(|wait| (wait, Because::ItsCommandWaits))).collect()
    }

    /// The circles, one for each group of contenders that wait for each other. Each is as short as there is
    /// one through the holder that is first in the group.
    pub fn cycles(&self) -> Vec<WaitCycle> {
        cycles::find(self.queues, &self.links, &self.stuck)
    }

    /// The circles whose waiters were stuck in an earlier graph too. Queues that are read one after the other may show a
    /// circle that never was; one that is there twice is a deadlock.
    pub fn cycles_since(&self, earlier: &WaitGraph<'_>) -> Vec<WaitCycle> {
        let stuck = earlier.waiters().filter(|at| earlier.is_stuck(*at));
        let stuck: HashSet<_> = stuck.map(|at| &earlier.contender(at).node).collect();
        let mut cycles = self.cycles();
        cycles.retain(|cycle| {
            let mut waiters = cycle.steps.iter().map(|step| &self.contender(step.waiter).node);
            waiters.all(|node| stuck.contains(node))
        });
        cycles
    }

    /// Whether a contender waits in a circle or behind one, so that it gets no turn before one in the circle
    /// leaves.
    pub fn is_stuck(&self, at: ContenderIndex) -> bool {
        self.stuck.waits(self.links.number(at))
    }

    /// The holders that others wait for, and whose sessions wait for no other lock: those with the most waiters
    /// behind them first.
    pub fn roots(&self) -> Vec<RootBlocker> {
        let mut held: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        for (lock, queue) in self.queues.iter().enumerate() {
            if queue.waiters().next().is_none() {
                continue;
            }
            for (entry, _) in queue.entries.iter().enumerate().filter(|(_, entry)| entry.holds) {
                let party = self.links.party(ContenderIndex { lock, entry });
                held.entry(party).or_default().insert(lock);
            }
        }

        let mut roots = Vec::new();
        for (party, locks) in &held {
            let own = locks.iter().copied().filter(|lock| !self.links.is_waiting(*party, *lock));
            roots.extend(self.root(*party, &own.collect(), &held));
        }
        // A session that blocks itself, by several tasks, in each of its locks: whoever is behind it has a root too.
        let mut behind: HashSet<usize> = roots.iter().flat_map(|root| root.locks.clone()).collect();
        for at in self.waiters().filter(|at| !self.is_stuck(*at)) {
            let holds = |entry: &usize| self.queues[at.lock].entries[*entry].holds;
            if !behind.contains(&at.lock)
                && let Some(entry) = (0..at.entry).find(holds)
            {
                let party = self.links.party(ContenderIndex { entry, ..at });
                roots.extend(self.root(party, &BTreeSet::from([at.lock]), &held));
                behind.extend(roots.last().into_iter().flat_map(|root| &root.locks));
            }
        }
        let since = |root: &RootBlocker| self.contender(root.oldest).since;
        roots.sort_by_key(|root| (Reverse(root.waiters), since(root), root.holder));
        roots
    }

    /// What is behind a party that goes on with these locks, where `held` has the locks of each party that others
    /// wait for.
    fn root(
        &self,
        party: usize,
        own: &BTreeSet<usize>,
        held: &HashMap<usize, BTreeSet<usize>>,
    ) -> Option<RootBlocker> {
        let mut behind = own.clone();
        let mut next: VecDeque<usize> = own.iter().copied().collect();
        let (mut waiters, mut oldest) = (0, None);
        while let Some(lock) = next.pop_front() {
            for (entry, found) in self.queues[lock].entries.iter().enumerate() {
                if found.holds {
                    continue;
                }
                let at = ContenderIndex { lock, entry };
                waiters += 1;
                oldest = oldest.into_iter().chain([(found.since, at)]).min();
                for outer in self.links.kept_by(self.links.party(at)) {
                    let theirs = held.get(&outer).into_iter().flatten();
                    next.extend(theirs.copied().filter(|lock| behind.insert(*lock)));
                }
            }
        }

        let lock = *own.first()?;
        let mut entries = self.queues[lock].entries.iter().enumerate();
        let (entry, _) = entries.find(|(entry, found)| {
            found.holds && self.links.party(ContenderIndex { lock, entry: *entry }) == party
        })?;
        let holder = ContenderIndex { lock, entry };
        let (_, oldest) = oldest?;
        Some(RootBlocker { holder, locks: behind.into_iter().collect(), waiters, oldest })
    }
}
