//! Finds locks in a tree that is in memory, such as a cache, without I/O.

use std::collections::HashSet;

use lockkeeper_client::{SessionId, ZnodePath};

use crate::acquire::lock_delay::{DelayMark, lock_marked_by, mark_of};
use crate::admin::due_delay::of_mark;
use crate::admin::inspect::{
    DueDelay, KnownTree, LockQueue, LockQueues, ReadContenders, SearchPath, below, entry, read,
    says_how_many,
};
use crate::permit_format::PermitFormat;
use crate::profile::{Kind, LEASES, has_curators_leases};

impl LockQueues {
    /// The queues of all locks at a path and below it, as [`queues`](crate::inspect::queues) finds them. No I/O, and
    /// exact if the tree is a snapshot of one moment.
    pub fn in_tree(tree: &impl KnownTree, top: &ZnodePath) -> Self {
        let mut found = Self::default();
        let mut next = vec![SearchPath { path: top.clone(), is_marked: true }];
        while let Some(searched) = next.pop() {
            let (queue, below) = look(tree, &searched);
            found.add(queue);
            next.extend(below);
        }
        found.sort();
        found
    }
}

impl LockQueue {
    /// The queue of one lock; `None` if it does not have contenders and no lock delay is due. No I/O.
    pub fn in_tree(tree: &impl KnownTree, lock: &ZnodePath) -> Option<Self> {
        let (queue, _) = look(tree, &SearchPath { path: lock.clone(), is_marked: true });
        Some(queue).filter(Self::is_in_use)
    }

    /// The locks whose queues may change when a node is created, written or deleted. A node that is named
    /// like a contender counts as a contender, and not as a lock of its own.
    pub fn changed_by(node: &ZnodePath) -> Vec<ZnodePath> {
        let name = node.name().to_owned();
        let Some(parent) = node.parent() else { return Vec::new() };
        if let Some(lock) = lock_marked_by(&name) {
            return parent.child(lock).into_iter().collect();
        }
        let (_, _, foreign) = read(std::slice::from_ref(&name));
        if !foreign.is_empty() {
            return vec![node.clone()];
        }
        let above = parent.parent().filter(|_| parent.name() == LEASES);
        [Some(parent), above].into_iter().flatten().collect()
    }
}

/// Reads a path as a lock. Also returns the paths to read next.
fn look(tree: &impl KnownTree, searched: &SearchPath) -> (LockQueue, Vec<SearchPath>) {
    let path = &searched.path;
    let mut names = tree.children(path.as_str());
    let delay = searched.is_marked.then(|| delay_of(tree, path, &names)).flatten();
    let Some((data, stat)) = tree.node(path.as_str()) else {
        return (LockQueue { delay, ..LockQueue::empty(path) }, Vec::new());
    };
    if stat.ephemeral_owner != SessionId::NONE {
        let holder = entry(Kind::Exclusive, true, path.clone(), Some((data, stat)));
        return (LockQueue::of_node(path, holder), Vec::new());
    }

    let mut place = path.clone();
    if has_curators_leases(&names)
        && let Ok(leases) = path.child(LEASES)
    {
        names = tree.children(leases.as_str());
        place = leases;
    }
    let (profile, queue, foreign) = read(&names);
    let nodes = queue.places().iter().filter_map(|contender| {
        let child = place.child(&contender.name).ok()?;
        let found = tree.node(child.as_str())?;
        Some((contender, child, Some(found)))
    });
    let is_number = says_how_many(&queue, &names, data.len());
    let permits = is_number.then(|| tree.node(place.as_str())).flatten();
    let permits = permits.and_then(|(data, _)| PermitFormat::Text.read(&data));
    let seen = ReadContenders { there: nodes.collect(), permits, gone: Vec::new() };

    let (entries, permits) = seen.entries(&queue, delay.as_ref());
    let mut next = Vec::new();
    if place == *path {
        // A lease is not a lock of its own.
        let leases = entries.iter().filter(|entry| entry.kind == Kind::Lease);
        let leases: HashSet<&ZnodePath> = leases.map(|entry| &entry.node).collect();
        next = below(path, names, &foreign);
        next.retain(|searched| !leases.contains(&searched.path));
    }
    let path = path.clone();
    (LockQueue { path, profile, entries, foreign, permits, delay }, next)
}

fn delay_of(tree: &impl KnownTree, lock: &ZnodePath, names: &[String]) -> Option<DueDelay> {
    let (data, stat) = (!lock.is_root()).then(|| tree.node(mark_of(lock).as_str())).flatten()?;
    of_mark(lock, names, DelayMark::from_data(&data), stat)
}
