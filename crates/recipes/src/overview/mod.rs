//! An overview of the recipes in a part of the tree at one moment, with warnings.
//!
//! ```text
//!   mod        Overview: all recipes of a tree
//!   warning    Warning: what looks wrong, and why
//!   sessions   SessionUse: what each session holds, waits for and takes part in
//!   path_use   PathUse: which recipe uses a path
//! ```
//!
//! Everything here is computed from a tree in memory, such as a [`Snapshot`](crate::Snapshot). The cache costs
//! one watch, and one read for each change. The overview itself makes no request.

mod path_use;
mod sessions;
#[cfg(test)]
mod tests;
mod warning;

use std::collections::HashSet;

use lockkeeper_client::{SessionId, ZnodePath};
use lockkeeper_locks::inspect::{KnownTree, LockQueue, LockQueues};
use lockkeeper_locks::{Leader, OnceLog};

use crate::discovery::Instance;
use crate::group::Member;
use crate::pool::PoolReport;
use crate::queue::QueueReport;

use sessions::Sessions;

pub use path_use::PathUse;
pub use sessions::SessionUse;
pub use warning::{HoldTimes, Warning, WarningLimits};

/// The recipes at and below a path at one moment.
///
/// It contains only information from znodes. The tree does not show the tasks of a program, watches, when a
/// session will end, or when a waiter was granted its lock.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overview {
    /// The locks and elections with contenders or with a lock delay that is due, by path. Members of groups,
    /// instances of services and the nodes of other recipes are left out.
    pub locks: Vec<LockQueue>,
    /// The elections among the locks.
    pub elections: Vec<ElectionUse>,
    /// The sessions that have nodes in the tree.
    pub sessions: Vec<SessionUse>,
    /// The groups that have members.
    pub groups: Vec<GroupUse>,
    /// The services that have instances.
    pub services: Vec<ServiceUse>,
    /// The queues.
    pub queues: Vec<QueueUse>,
    /// The pools.
    pub pools: Vec<PoolUse>,
    /// The records of [`Once`](lockkeeper_locks::Once), by lock.
    pub once: Vec<OnceLog>,
    /// Other recognized recipes, by path: values, counters, ids and barriers.
    pub others: Vec<(ZnodePath, PathUse)>,
}

/// An election.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionUse {
    /// The path.
    pub path: ZnodePath,
    /// The candidate that leads, or would lead after a lock delay.
    pub leader: Option<Leader>,
    /// The number of candidates, including the leader.
    pub candidates: usize,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupUse {
    /// The path.
    pub path: ZnodePath,
    /// Its members, in the order in which they joined. Programs that hold single-znode locks of other libraries may be
    /// among them.
    pub members: Vec<Member>,
}

/// A service.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServiceUse {
    /// The path.
    pub path: ZnodePath,
    /// Its instances, each with its session ([`SessionId::NONE`] if it is persistent).
    pub instances: Vec<(Instance, SessionId)>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueUse {
    /// The path.
    pub path: ZnodePath,
    /// The numbers of its items and consumers.
    pub report: QueueReport,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolUse {
    /// The path.
    pub path: ZnodePath,
    /// The held resources and their holders.
    pub report: PoolReport,
}

impl Overview {
    /// Reads everything at and below a path of a tree. No I/O. Exact if the tree is a snapshot of one moment.
    /// Takes time in proportion to the number of nodes.
    pub fn in_tree(tree: &impl KnownTree, top: &ZnodePath) -> Self {
        let mut overview = Self::default();
        let mut sessions = Sessions::default();
        let mut next = vec![top.clone()];
        while let Some(path) = next.pop() {
            if overview.add(tree, &path, &mut sessions) {
                let names = tree.children(path.as_str());
                next.extend(names.iter().filter_map(|name| path.child(name).ok()));
            }
        }

        let uses = overview.paths_of_recipes();
        let is_in_recipe = |lock: &LockQueue| {
            std::iter::successors(Some(lock.path.clone()), ZnodePath::parent)
                .any(|path| uses.contains(&path))
        };
        let mut locks = LockQueues::in_tree(tree, top).queues;
        locks.retain(|lock| !is_in_recipe(lock));
        overview.elections = locks.iter().filter_map(|lock| ElectionUse::of(tree, lock)).collect();
        locks.iter().for_each(|lock| sessions.add_lock(lock));

        overview.locks = locks;
        overview.sessions = sessions.into_sorted();
        overview.sort();
        overview
    }

    /// The queue of a lock.
    pub fn lock(&self, path: &ZnodePath) -> Option<&LockQueue> {
        let found = self.locks.binary_search_by(|lock| lock.path.cmp(path));
        found.ok().map(|index| &self.locks[index])
    }

    /// Adds the recipe at a path. Returns whether to read the paths below it.
    fn add(&mut self, tree: &impl KnownTree, path: &ZnodePath, sessions: &mut Sessions) -> bool {
        if let Some(log) = OnceLog::in_tree(tree, path) {
            self.once.push(log);
            return false;
        }
        let path = path.clone();
        match PathUse::in_tree(tree, &path) {
            None | Some(PathUse::Lock) => return true,
            Some(PathUse::Queue) => {
                let Some(report) = QueueReport::in_tree(tree, &path) else { return true };
                sessions.add_consumers(&path, QueueReport::consumers(tree, &path));
                self.queues.push(QueueUse { path, report });
            }
            Some(PathUse::Pool) => {
                let Some(report) = PoolReport::in_tree(tree, &path) else { return true };
                sessions.add_pool(&path, &report);
                self.pools.push(PoolUse { path, report });
            }
            Some(PathUse::Group) => {
                let members = Member::in_tree(tree, &path);
                sessions.add_members(&path, members.iter().map(|member| member.session));
                self.groups.push(GroupUse { path, members });
                return true;
            }
            Some(PathUse::Service) => {
                let service = ServiceUse::in_tree(tree, path);
                let instances = service.instances.iter().map(|(_, session)| *session);
                sessions.add_members(&service.path, instances);
                self.services.push(service);
            }
            Some(other) => self.others.push((path, other)),
        }
        false
    }

    /// The paths below which nodes belong to a recipe and are not locks, and the nodes of members.
    fn paths_of_recipes(&self) -> HashSet<ZnodePath> {
        let queues = self.queues.iter().map(|queue| &queue.path);
        let pools = self.pools.iter().map(|pool| &pool.path);
        let services = self.services.iter().map(|service| &service.path);
        let others = self.others.iter().map(|(path, _)| path);
        let members = self.groups.iter().flat_map(|group| &group.members);
        let members = members.map(|member| &member.node);
        queues.chain(pools).chain(services).chain(others).chain(members).cloned().collect()
    }

    fn sort(&mut self) {
        self.groups.sort_by(|one, other| one.path.cmp(&other.path));
        self.services.sort_by(|one, other| one.path.cmp(&other.path));
        self.queues.sort_by(|one, other| one.path.cmp(&other.path));
        self.pools.sort_by(|one, other| one.path.cmp(&other.path));
        self.once.sort_by(|one, other| one.lock.cmp(&other.lock));
        self.others.sort_by(|one, other| one.0.cmp(&other.0));
    }
}

impl ElectionUse {
    fn of(tree: &impl KnownTree, lock: &LockQueue) -> Option<Self> {
        lock.is_election(tree).then(|| Self {
            path: lock.path.clone(),
            leader: Leader::in_tree(tree, lock),
            candidates: lock.entries.len(),
        })
    }
}

impl ServiceUse {
    fn in_tree(tree: &impl KnownTree, path: ZnodePath) -> Self {
        let names = tree.children(path.as_str()).into_iter();
        let instances = names.filter_map(|name| {
            let (data, stat) = tree.node(path.child(&name).ok()?.as_str())?;
            Some((Instance::from_json(&data).ok()?, stat.ephemeral_owner))
        });
        let mut instances: Vec<_> = instances.collect();
        instances.sort_by(|one, other| one.0.id.cmp(&other.0.id));
        Self { path, instances }
    }
}
