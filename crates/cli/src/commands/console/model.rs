//! [`Model`]: what all pages show, computed once for all viewers.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use lockkeeper::graph::{Because, ContenderIndex, RootBlocker, WaitCycle, WaitGraph};
use lockkeeper::inspect::{Entry, KnownTree, LockQueue};
use lockkeeper::overview::{HoldTimes, Overview, Warning, WarningLimits};
use lockkeeper::{SessionId, ZnodePath, Zxid};

use crate::shared::view::Observed;

/// How many root blockers and long waits are kept.
const MOST_ROWS: usize = 200;

/// How many waits of one session are looked at, for one contender.
const MOST_WAITS: usize = 20;

/// The tree at one moment, with the wait graph.
#[derive(Debug)]
pub(super) struct Model {
    /// Another one for each model.
    pub(super) number: u64,
    /// When it was read, by the clock of this machine.
    pub(super) at: SystemTime,
    pub(super) zxid: Zxid,
    pub(super) nodes: usize,
    /// The locks and elections, by path.
    pub(super) queues: Vec<LockQueue>,
    /// What else there is, without the locks.
    pub(super) others: Overview,
    /// What looks wrong, other than deadlocks: the most urgent first.
    pub(super) warnings: Vec<Warning>,
    pub(super) all_warnings: usize,
    /// The nodes that may not be read.
    pub(super) unreadable: Vec<String>,
    pub(super) holders: usize,
    pub(super) waiters: usize,
    /// Those with the most waiters behind them first.
    pub(super) roots: Vec<RootBlocker>,
    /// How many there are.
    pub(super) all_roots: usize,
    pub(super) cycles: Vec<WaitCycle>,
    /// Whether each circle that was found is shown.
    pub(super) is_confirmed: bool,
    /// The contenders that wait in a circle or behind one.
    pub(super) stuck: HashSet<ContenderIndex>,
    /// The contenders that have waited longest, first.
    pub(super) longest: Vec<ContenderIndex>,
    /// Since when holders hold, as far as the console has seen it.
    pub(super) observed: Observed,
    sessions: HashMap<SessionId, Vec<ContenderIndex>>,
    /// The holders under whose runs other contenders work, by their nodes.
    runs: HashMap<ZnodePath, ContenderIndex>,
    /// The contenders that work under each of them.
    under: HashMap<ZnodePath, Vec<ContenderIndex>>,
}

impl Model {
    /// Reads the recipes of a tree. `times`: how long locks are usually held. Takes time in proportion to the number of nodes.
    pub(super) fn of(tree: &impl KnownTree, top: &ZnodePath, times: &HoldTimes) -> Self {
        let mut others = Overview::in_tree(tree, top);
        let mut warnings = others.warnings(SystemTime::now(), &WarningLimits::default(), times);
        warnings.retain(|warning| !matches!(warning, Warning::Deadlock { .. }));
        let all_warnings = warnings.len();
        warnings.truncate(MOST_ROWS);
        let queues = std::mem::take(&mut others.locks);
        let graph = WaitGraph::new(&queues);
        let mut roots = graph.roots();
        let all_roots = roots.len();
        roots.truncate(MOST_ROWS);
        let cycles = graph.cycles();
        let stuck = match cycles.is_empty() {
            true => HashSet::new(),
            false => graph.waiters().filter(|at| graph.is_stuck(*at)).collect(),
        };
        let mut longest: Vec<_> = graph.waiters().collect();
        let waiters = longest.len();
        let since = |at: &ContenderIndex| queues[at.lock].entries[at.entry].since;
        if longest.len() > MOST_ROWS {
            longest.select_nth_unstable_by_key(MOST_ROWS, since);
            longest.truncate(MOST_ROWS);
        }
        longest.sort_by_key(since);

        let mut sessions: HashMap<SessionId, Vec<ContenderIndex>> = HashMap::new();
        let mut under: HashMap<ZnodePath, Vec<ContenderIndex>> = HashMap::new();
        for (at, entry) in contenders(&queues) {
            if entry.session != SessionId::NONE {
                sessions.entry(entry.session).or_default().push(at);
            }
            let outer = entry.owner.iter().flat_map(|owner| &owner.under);
            for node in outer.filter_map(|node| ZnodePath::new(node).ok()) {
                under.entry(node).or_default().push(at);
            }
        }
        let mut runs = HashMap::new();
        if !under.is_empty() {
            let found = contenders(&queues).filter(|(_, entry)| under.contains_key(&entry.node));
            runs.extend(found.map(|(at, entry)| (entry.node.clone(), at)));
        }
        let all: usize = queues.iter().map(|queue| queue.entries.len()).sum();

        Self {
            number: 0,
            at: SystemTime::now(),
            zxid: Zxid::default(),
            nodes: 0,
            unreadable: Vec::new(),
            holders: all - waiters,
            waiters,
            roots,
            all_roots,
            cycles,
            stuck,
            longest,
            is_confirmed: true,
            observed: Observed::new(),
            others,
            warnings,
            all_warnings,
            sessions,
            runs,
            under,
            queues,
        }
    }

    /// Leaves out the circles whose waiters were not stuck before: in a tree that was read node by node, a circle that is there
    /// once may never have been.
    pub(super) fn confirm(&mut self, stuck_before: &HashSet<ZnodePath>) {
        let found = self.cycles.len();
        let queues = &self.queues;
        let was_stuck =
            |at: ContenderIndex| stuck_before.contains(&queues[at.lock].entries[at.entry].node);
        self.cycles.retain(|cycle| cycle.steps.iter().all(|step| was_stuck(step.waiter)));
        self.is_confirmed = self.cycles.len() == found;
        if self.cycles.is_empty() {
            self.stuck.clear();
        }
    }

    /// A lock that is held, or that others wait for.
    pub(super) fn find(&self, path: &ZnodePath) -> Option<usize> {
        self.queues.binary_search_by(|queue| queue.path.cmp(path)).ok()
    }

    /// The first holder of a lock.
    pub(super) fn holder(&self, lock: usize) -> Option<ContenderIndex> {
        let entry = self.queues[lock].entries.iter().position(|entry| entry.holds)?;
        Some(ContenderIndex { lock, entry })
    }

    pub(super) fn queue(&self, at: ContenderIndex) -> &LockQueue {
        &self.queues[at.lock]
    }

    pub(super) fn contender(&self, at: ContenderIndex) -> &Entry {
        &self.queues[at.lock].entries[at.entry]
    }

    /// The sessions with what they hold and wait for, those with the most waits first.
    pub(super) fn sessions(&self) -> Vec<(SessionId, &[ContenderIndex])> {
        let mut all: Vec<_> = self.sessions.iter().map(|(id, own)| (*id, own.as_slice())).collect();
        let waits =
            |own: &[ContenderIndex]| own.iter().filter(|at| !self.contender(**at).holds).count();
        all.sort_by_cached_key(|(id, own)| {
            (std::cmp::Reverse(waits(own)), std::cmp::Reverse(own.len()), *id)
        });
        all
    }

    /// What a session holds and waits for.
    pub(super) fn session(&self, id: SessionId) -> &[ContenderIndex] {
        self.sessions.get(&id).map(Vec::as_slice).unwrap_or_default()
    }

    /// What keeps a holder from going on: the waits of its session for other locks, and of what runs under it.
    pub(super) fn kept_for(&self, at: ContenderIndex) -> Vec<(ContenderIndex, Because)> {
        let entry = self.contender(at);
        let waits = |at: &&ContenderIndex| !self.contender(**at).holds;
        let own = self.session(entry.session).iter().filter(|wait| wait.lock != at.lock);
        let own = own.filter(waits).map(|wait| (*wait, Because::ItsSessionWaits));
        let below = self.under.get(&entry.node).into_iter().flatten();
        let below = below.filter(waits).map(|wait| (*wait, Because::ItsCommandWaits));
        below.chain(own).take(MOST_WAITS).collect()
    }

    /// The sessions that do not go on while a contender waits: its own, and those of the runs that it works under.
    pub(super) fn kept_by(&self, at: ContenderIndex) -> Vec<SessionId> {
        let entry = self.contender(at);
        let outer = entry.owner.iter().flat_map(|owner| &owner.under);
        let outer = outer.filter_map(|node| self.runs.get(&ZnodePath::new(node).ok()?));
        let mut sessions = vec![entry.session];
        sessions.extend(outer.map(|at| self.contender(*at).session));
        sessions.retain(|session| *session != SessionId::NONE);
        sessions.dedup();
        sessions
    }

    /// Whether a contender waits for a lock.
    pub(super) fn is_contended(&self, lock: usize) -> bool {
        self.queues[lock].entries.iter().any(|entry| !entry.holds)
    }
}

fn contenders(queues: &[LockQueue]) -> impl Iterator<Item = (ContenderIndex, &Entry)> {
    queues.iter().enumerate().flat_map(|(lock, queue)| {
        let entries = queue.entries.iter().enumerate();
        entries.map(move |(entry, found)| (ContenderIndex { lock, entry }, found))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use lockkeeper::{OwnerInfo, Stat, Zxid};

    use super::*;

    /// A tree of contenders: the lock, the place in line, the session, and the node of the run that it works under.
    #[derive(Default)]
    pub(crate) struct FakeTree(BTreeMap<String, (Bytes, Stat)>);

    impl FakeTree {
        pub(crate) fn add(
            &mut self,
            lock: &str,
            place: u32,
            session: i64,
            under: Option<&str>,
        ) -> String {
            let node = format!("{lock}/_c_00000000-0000-4000-8000-{session:012}-lock-{place:010}");
            let mut owner = OwnerInfo::current(Some(format!("program <{session}>")));
            owner.under = under.iter().map(|&node| node.to_owned()).collect();
            let data = serde_json::to_vec(&owner).unwrap().into();
            let zxid = Zxid(i64::try_from(self.0.len()).unwrap() + 1);
            self.0
                .entry(lock.to_owned())
                .or_insert((Bytes::new(), Stat::of_new(zxid, SessionId::NONE)));
            self.0.insert(node.clone(), (data, Stat::of_new(zxid, SessionId(session))));
            node
        }

        pub(crate) fn model(&self) -> Model {
            Model::of(self, &ZnodePath::root(), &HoldTimes::default())
        }
    }

    impl KnownTree for FakeTree {
        fn node(&self, path: &str) -> Option<(Bytes, Stat)> {
            match path {
                "/" => Some((Bytes::new(), Stat::of_new(Zxid(0), SessionId::NONE))),
                path => self.0.get(path).cloned(),
            }
        }

        fn children(&self, path: &str) -> Vec<String> {
            let top = format!("{}/", path.trim_end_matches('/'));
            let below = self.0.keys().filter_map(|node| node.strip_prefix(&top));
            below.filter(|name| !name.contains('/')).map(str::to_owned).collect()
        }
    }

    /// A run holds `/a`, and its command waits for `/b`, whose holder's command waits for `/a`.
    pub(crate) fn circle() -> Model {
        let mut tree = FakeTree::default();
        let (a, b) = (tree.add("/a", 0, 1, None), tree.add("/b", 0, 2, None));
        tree.add("/b", 1, 3, Some(&a));
        tree.add("/a", 1, 4, Some(&b));
        tree.add("/c", 0, 5, None);
        tree.model()
    }

    #[test]
    fn a_circle_through_commands_is_seen() {
        let model = circle();
        assert_eq!((model.queues.len(), model.holders, model.waiters), (3, 3, 2));
        assert_eq!((model.cycles.len(), model.all_roots), (1, 0));
        let (holder, waiter) =
            (ContenderIndex { lock: 0, entry: 0 }, ContenderIndex { lock: 1, entry: 1 });
        assert_eq!(model.kept_for(holder), [(waiter, Because::ItsCommandWaits)]);
        assert_eq!(model.kept_by(waiter), [SessionId(3), SessionId(1)]);
        assert!(model.stuck.contains(&waiter) && model.is_contended(0) && !model.is_contended(2));

        let (mut once, mut twice) = (circle(), circle());
        once.confirm(&HashSet::new());
        assert!(once.cycles.is_empty() && once.stuck.is_empty() && !once.is_confirmed);
        twice.confirm(&model.stuck.iter().map(|at| model.contender(*at).node.clone()).collect());
        assert!(twice.cycles.len() == 1 && twice.is_confirmed);
    }
}
