//! Reads the records of a lock from a tree that is in memory, such as a cache, without I/O.

use lockkeeper_client::ZnodePath;

use crate::admin::inspect::{KnownTree, LockQueue};
use crate::once::key::{OnceKey, Tick};
use crate::once::record::{Floor, OnceRecord, Written};
use crate::siblings::{ONCE, lock_of_sibling};

/// The records that [`Once`](crate::Once) has written under one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnceLog {
    /// The lock.
    pub lock: ZnodePath,
    /// The last tick that was started.
    pub last_tick: Option<Tick>,
    /// The kept records, in the order in which they were started.
    pub records: Vec<OnceRecord>,
}

impl OnceLog {
    /// The records in a node; `None` if the node does not contain records. No I/O.
    pub fn in_tree(tree: &impl KnownTree, node: &ZnodePath) -> Option<Self> {
        let lock = lock_of_sibling(node.name(), ONCE)?;
        let lock = node.parent()?.child(lock).ok()?;
        let (floor, _) = tree.node(node.as_str())?;

        let names = tree.children(node.as_str());
        let records = names.iter().filter_map(|name| {
            let key = OnceKey::of(name)?;
            let (data, stat) = tree.node(node.child(name).ok()?.as_str())?;
            Some(Written::read(&data)?.record(key, &stat))
        });
        let mut records: Vec<_> = records.collect();
        OnceRecord::sort(&mut records);
        Some(Self { lock, last_tick: Floor::read(&floor).and_then(|it| it.tick()), records })
    }

    /// The records without an end whose program no longer holds the lock: it died, or lost the lock. `queue` is
    /// the queue of the lock at the same moment, if any.
    pub fn abandoned(&self, queue: Option<&LockQueue>) -> impl Iterator<Item = &OnceRecord> {
        let holders: Vec<_> =
            queue.into_iter().flat_map(LockQueue::holders).map(|holder| holder.token).collect();
        let is_over = move |record: &&OnceRecord| !holders.contains(&record.token);
        self.records.iter().filter(|record| record.end.is_none()).filter(is_over)
    }
}
