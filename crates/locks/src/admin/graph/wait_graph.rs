//! [`WaitGraph`]: the waits for a set of locks.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use crate::admin::graph::cycles;
use crate::admin::graph::links::Links;
use crate::admin::graph::step::{Because, ContenderIndex, WaitCycle};
use crate::admin::graph::stuck::Stuck;
use crate::admin::inspect::{Entry, LockQueue};

/// The waits-for graph. See the [module](super) for its limits.
#[derive(Debug)]
pub struct WaitGraph<'a> {
    queues: &'a [LockQueue],
    links: Links,
    stuck: Stuck,
}

/// A holder that others wait for, and whose session does not wait for another lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootBlocker {
    /// The holder. If its session holds several locks that others wait for, one of these holds.
    pub holder: ContenderIndex,
    /// The locks whose queues wait for it: its own, and those of holders that wait behind it.
    pub locks: Vec<usize>,
    /// The number of contenders that wait in these queues.
    pub waiters: usize,
    /// The contender among them that has waited longest.
    pub oldest: ContenderIndex,
}

impl<'a> WaitGraph<'a> {
    /// Computes the graph of some queues. No I/O. Takes time in proportion to the number of contenders.
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
    /// If this graph does not contain the contender.
    pub fn contender(&self, at: ContenderIndex) -> &'a Entry {
        &self.queues[at.lock].entries[at.entry]
    }

    /// All waiting contenders, lock by lock, first to last.
    pub fn waiters(&self) -> impl Iterator<Item = ContenderIndex> {
        self.queues.iter().enumerate().flat_map(|(lock, queue)| {
            let waits = queue.entries.iter().enumerate().filter(|(_, entry)| !entry.holds);
            waits.map(move |(entry, _)| ContenderIndex { lock, entry })
        })
    }

    /// The contenders that a contender waits for: all contenders ahead that block it, first to last. Where permits are
    /// counted, some of them have to leave, no matter which.
    pub fn blockers(&self, of: ContenderIndex) -> impl Iterator<Item = ContenderIndex> {
        let queue = self.queues.get(of.lock);
        let blockers = queue.into_iter().flat_map(move |queue| queue.blockers(of.entry));
        blockers.map(move |entry| ContenderIndex { entry, ..of })
    }

    /// The other waits that keep a contender from releasing: those of its session for other locks, and those of the
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

    /// The cycles: one for each group of contenders that wait for each other. Each is a shortest cycle
    /// through the first holder of its group.
    pub fn cycles(&self) -> Vec<WaitCycle> {
        cycles::find(self.queues, &self.links, &self.stuck)
    }

    /// The cycles whose waiters were stuck in an earlier graph too. Queues that are read one after the other may show a
    /// cycle that never existed. A cycle in two graphs is a deadlock.
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

    /// Whether a contender waits in a cycle or behind one, and does not get its turn until a contender in the cycle
    /// leaves.
    pub fn is_stuck(&self, at: ContenderIndex) -> bool {
        self.stuck.waits(self.links.number(at))
    }

    /// The holders that others wait for, and whose sessions do not wait for another lock. The holder with the
    /// most waiters behind it comes first.
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
        // A session may block itself, through several tasks, in each of its locks. The waiters behind it need a
        // root too.
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

    /// The root blocker for a party that makes progress with these locks. `held`: the contended locks of each party.
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
