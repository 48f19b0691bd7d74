//! State that programs share and watch: values, parts of the tree in memory, groups, services. Users depend
//! on the crate `lockkeeper`, which re-exports everything here.
//!
//! ```text
//!   overview/       Overview: which recipes use a part of the tree, which sessions, and what looks wrong
//!   updates         sources of changes as streams
//!   pool/           Pool: one of a set of named things
//!   worker_ids/     WorkerIds: numbers that one program has at a time, and 64-bit ids with them
//!   partitions/     Partitions: items that the members of a group share
//!   barrier/        Barrier, CountDownLatch, DoubleBarrier: programs that wait for each other
//!   queue/          Queue: items that one consumer at a time works on
//!   group/          Group: the programs that are running, and views of them
//!   discovery/      ServiceDirectory: the instances of a service, and picks; Registration
//!   watch/          TreeCache: a part of the tree in memory; Presence: a node while this program runs
//!   values/         shared values, counters, unique numbers, notifications
//!   waits           helpers for calls that wait
//!   last_time       the last run of a repeated job
//!   wall_clock      the wall clock, for display
//!   exact/          writes whose outcome is certain even when the reply is lost
//! ```
//!
//! A module uses only the modules below it in this list. `docs/glossary.md` explains the terms.
//!
//! Invariant: a write is applied once or not at all, and a reader never sees an older state after a newer one of
//! the same history. See `docs/guarantees.md` for what is promised and what is not.

mod barrier;
mod discovery;
mod exact;
mod group;
mod last_time;
pub mod overview;
mod partitions;
mod pool;
mod queue;
mod reads;
#[cfg(feature = "stream")]
mod updates;
mod values;
mod waits;
mod wall_clock;
mod watch;
mod worker_ids;

pub use barrier::{
    Barrier, BarrierError, BarrierReport, ClosedBarrier, CountDownLatch, Deaths, DoubleBarrier,
    DoubleBarrierBuilder, Missing, Round,
};
pub use discovery::pick::{
    Call, Candidate, Ejection, InstanceHealth, InstanceLoad, Pick, PickError, Picker, PickerBuilder,
};
pub use discovery::{
    DirectoryChanges, DirectoryUpdate, Instance, InstanceChange, Instances, ListedInstance,
    Payload, RegisterError, Registration, ServiceDirectory, ServiceDirectoryBuilder, ServiceType,
    Unreadable, UriPart, UriSpec, UriSpecError,
};
pub use group::{
    Group, GroupBuilder, GroupError, GroupLayout, GroupUpdate, GroupView, Member, MemberBuilder,
    MemberChange, MemberChanges, Members, Membership, ViewId,
};
pub use partitions::{
    Assignment, PartitionMember, Partitions, PartitionsBuilder, PartitionsError, TakeError,
    WaitedItem,
};
pub use pool::{HeldThing, Pool, PoolBuilder, PoolError, PoolGuard, PoolReport, PoolWaiter};
pub use queue::{
    AtLeastOnce, AtMostOnce, Bound, DeadLetter, Delivery, Item, ItemState, PutOptions, Queue,
    QueueBuilder, QueueError, QueueLayout, QueueReport, QueuedItem, Request, Verdict,
};
pub use values::{
    Added, Codec, CodecError, Counter, CounterBuilder, CounterLayout, Editions, IdBlocks, Json,
    LastGoodError, Notify, Publication, PublicationBuilder, PublishedEdition, Raw, Revision,
    Shared, SharedBuilder, Swap, ValueChange, ValueChanges, ValueError, ValuePathError, Versioned,
};
pub use watch::{
    CacheChanges, CacheError, CacheUpdate, CachedNode, Change, Presence, PresenceBuilder,
    PresenceError, PresenceState, Snapshot, TreeCache, TreeCacheBuilder, TtlPresence,
    TtlPresenceBuilder, WhenTaken,
};
pub use worker_ids::{
    IdLayout, IdParts, MintError, WorkerId, WorkerIdError, WorkerIds, WorkerIdsBuilder,
};
