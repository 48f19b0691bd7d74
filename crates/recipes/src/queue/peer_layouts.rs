//! [`QueueLayout`]: which programs a queue is shared with.

use std::fmt;

use lockkeeper_client::ZnodePath;

use crate::queue::options::Ability;

/// The znodes of a queue: its own, or those of a queue in another library, whose programs then share it. All
/// programs of a queue must use the same layout.
///
/// What is promised of a [`Queue`](crate::Queue) holds for what our programs do in each of them: no item is lost by a
/// lost reply, nor put twice, and only the holder of a claim ends it. An item that cannot be read is an error,
/// [`QueueError::Undecodable`](crate::QueueError::Undecodable), and stays; nodes that are no items are passed over and
/// stay. `docs/interop.md` says what the other programs do.
///
/// The layouts of others have these limits:
///
/// - They keep no count of tries, no dead letters and no list of consumers.
///   [`QueueBuilder::max_tries`](crate::QueueBuilder::max_tries), [`Item::bury`](crate::Item::bury), the methods for
///   dead letters and [`Queue::delete`](crate::Queue::delete) fail with
///   [`QueueError::NotInLayout`](crate::QueueError::NotInLayout).
///   [`Item::attempt`](crate::Item::attempt) is 1 each time, and what has no place in
///   [`QueueReport`](crate::QueueReport) is 0.
/// - Those without claims can be taken from with [`AtMostOnce`](crate::AtMostOnce) only.
/// - All items are in one directory, which each listing reads: they are for hundreds of items, not for thousands. A
///   consumer goes by a listing for 16 items, and so may pass over an item of a higher priority that has come
///   meanwhile, unless it is to take [strictly in order](crate::QueueBuilder::strictly_in_order).
/// - The first of the consumers that wait is told of each item and claim that comes or goes, of whichever program.
///   Our others wait beside the queue, in `<path>-__lockkeeper__`.
/// - The id of an item is the name of its node. A [put](crate::Queue::put) gives an empty one if its reply was lost:
///   it is known then that the item was put, and its name is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueLayout {
    /// Our own, with all abilities.
    #[default]
    Lockkeeper,
    /// Curator's `DistributedQueue`: `<path>/queue-<number>`, an item file. With
    /// [claims](crate::QueueBuilder::lock_path) if the Java programs have a `lockPath`.
    CuratorQueue,
    /// Curator's `DistributedPriorityQueue`: lower [priorities](crate::PutOptions::priority) first; without one, 0. Claims as with
    /// `CuratorQueue`. What Curator's own programs put back comes before all others, as it loses its priority; a
    /// retry of ours keeps it.
    CuratorPriority,
    /// Curator's `DistributedDelayQueue`: an item is free when it is [due](crate::PutOptions::due_unix_ms), by the wall clock of each
    /// consumer, as in Curator; without a time, at once. Claims as with `CuratorQueue`.
    CuratorDelay,
    /// Curator's `DistributedIdQueue`: items have an [id](crate::PutOptions::id) in their names, by which Curator's programs can
    /// remove them; without one, a random one. Claims as with `CuratorQueue`.
    CuratorId,
    /// Curator's `SimpleDistributedQueue`, which is the recipe of ZooKeeper's documentation: `<path>/qn-<number>`, the
    /// value as it is. Without claims.
    CuratorSimple,
    /// kazoo's `Queue`: `<path>/entry-<priority>-<number>`, the value as it is. Lower
    /// [priorities](crate::PutOptions::priority) first, from 0 to 999; without one, 100. Without claims.
    KazooQueue,
    /// kazoo's `LockingQueue`: as `KazooQueue`, in `<path>/entries`; claims in `<path>/taken`.
    KazooLocking,
}

impl fmt::Display for QueueLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lockkeeper => "our own layout",
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

    /// What an item can be put with.
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

    /// Whether the claims are where the builder says.
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

    /// The directory of the claims, if there are any.
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
