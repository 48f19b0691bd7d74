//! [`QueueLayout`]: the libraries whose programs can share a queue.

use std::fmt;

use lockkeeper_client::ZnodePath;

use crate::queue::options::Ability;

/// The layout of a queue's znodes: Lockkeeper's own, or that of another library, whose programs can then share the
/// queue. All programs of a queue must use the same layout.
///
/// In each layout, the guarantees of a [`Queue`](crate::Queue) hold for Lockkeeper's programs: no item is lost or
/// put twice because of a lost reply, and only the holder of a claim ends it. An item that cannot be decoded is an
/// error, [`QueueError::Undecodable`](crate::QueueError::Undecodable), and stays. Nodes that are not items are
/// skipped and stay. `docs/interop.md` describes the other programs.
///
/// The other libraries' layouts have these limits:
///
/// - They have no counts of tries, dead letters or lists of consumers.
///   [`QueueBuilder::max_tries`](crate::QueueBuilder::max_tries), [`Item::bury`](crate::Item::bury), the methods
///   for dead letters and [`Queue::delete`](crate::Queue::delete) fail with
///   [`QueueError::NotInLayout`](crate::QueueError::NotInLayout). [`Item::attempt`](crate::Item::attempt) is always
///   1, and the corresponding numbers in [`QueueReport`](crate::QueueReport) are 0.
/// - Items of layouts without claims can only be taken with [`AtMostOnce`](crate::AtMostOnce).
/// - All items are in one directory, which each listing reads: they are for hundreds of items, not for thousands. A
///   consumer uses one listing for 16 items, so that it may miss an item of a higher priority that was put since,
///   unless it takes [strictly in order](crate::QueueBuilder::strictly_in_order).
/// - The first of the waiting consumers gets an event for each item and claim that any program creates or deletes.
///   Our other consumers wait outside of the queue, in `<path>-__lockkeeper__`.
/// - The id of an item is the name of its node. A [put](crate::Queue::put) whose reply was lost returns an empty
///   id: the item was put, but its name is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueLayout {
    /// Lockkeeper's own, which supports all options.
    #[default]
    Lockkeeper,
    /// Curator's `DistributedQueue`: `<path>/queue-<number>`, an item file. With
    /// [claims](crate::QueueBuilder::lock_path) if the Java programs have a `lockPath`.
    CuratorQueue,
    /// Curator's `DistributedPriorityQueue`: lower [priorities](crate::PutOptions::priority) first; default 0.
    /// Claims as in `CuratorQueue`. An item that Curator's own programs put back loses its priority, and comes
    /// before all others; a retry by Lockkeeper keeps it.
    CuratorPriority,
    /// Curator's `DistributedDelayQueue`: an item is free when it is [due](crate::PutOptions::due_unix_ms), by the
    /// wall clock of each consumer, as in Curator; by default at once. Claims as in `CuratorQueue`.
    CuratorDelay,
    /// Curator's `DistributedIdQueue`: items have an [id](crate::PutOptions::id) in their names, by which Curator's
    /// programs can remove them; by default a random one. Claims as in `CuratorQueue`.
    CuratorId,
    /// Curator's `SimpleDistributedQueue`, which is the recipe of ZooKeeper's documentation: `<path>/qn-<number>`,
    /// with the plain value. Without claims.
    CuratorSimple,
    /// kazoo's `Queue`: `<path>/entry-<priority>-<number>`, with the plain value. Lower
    /// [priorities](crate::PutOptions::priority) first, from 0 to 999; default 100. Without claims.
    KazooQueue,
    /// kazoo's `LockingQueue`: as `KazooQueue`, in `<path>/entries`; claims in `<path>/taken`.
    KazooLocking,
}

impl fmt::Display for QueueLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lockkeeper => "Lockkeeper's layout",
            Self::CuratorQueue => "Curator's DistributedQueue",
            Self::CuratorPriority => "Curator's DistributedPriorityQueue",
            Self::CuratorDelay => "Curator's DistributedDelayQueue",
            Self::CuratorId => "Curator's DistributedIdQueue",
            Self::CuratorSimple => "Curator's SimpleDistributedQueue",
            Self::KazooQueue => "kazoo's Queue",
            Self::KazooLocking => "kazoo's LockingQueue",
        })
    }
}

impl QueueLayout {
    pub(super) fn is_own(self) -> bool {
        self == Self::Lockkeeper
    }

    /// The options that an item may have.
    pub(super) fn abilities(self) -> &'static [Ability] {
        match self {
            Self::Lockkeeper => Ability::ALL,
            Self::CuratorPriority | Self::KazooQueue | Self::KazooLocking => &[Ability::Priority],
            Self::CuratorDelay => &[Ability::Due],
            Self::CuratorId => &[Ability::Id],
            Self::CuratorQueue | Self::CuratorSimple => &[],
        }
    }

    /// Whether the values are in Curator's item files.
    pub(super) fn has_files(self) -> bool {
        let with = [Self::CuratorQueue, Self::CuratorPriority, Self::CuratorDelay, Self::CuratorId];
        with.contains(&self)
    }

    /// Whether the builder sets the path of the claims.
    pub(super) fn takes_lock_path(self) -> bool {
        self.has_files()
    }

    /// The directory of the items.
    pub(super) fn entries(self, path: &ZnodePath) -> ZnodePath {
        match self {
            Self::KazooLocking => path.child("entries").expect("letters"),
            _ => path.clone(),
        }
    }

    /// The directory of the claims, if any.
    pub(super) fn claims(
        self,
        path: &ZnodePath,
        lock_path: Option<ZnodePath>,
    ) -> Option<ZnodePath> {
        match self {
            Self::KazooLocking => path.child("taken").ok(),
            _ => lock_path,
        }
    }
}
