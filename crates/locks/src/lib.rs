//! Everything that can be held: locks, elections, names, and work that is done once. Users depend on the crate
//! `lockkeeper`, which re-exports this crate.
//!
//! ```text
//!   for_recipes     building blocks for recipes in other crates: a place in a queue, the guard of a node
//!   once/           Once: does work once for each key, under a lock
//!   names/          Names: names that one program holds at a time
//!   election/       Election: one leader at a time, and observers
//!   locks/          the locks, one file or folder each; Owner, for re-entry
//!   admin/          inspect: holders and waiters; graph: the waits-for graph; revoke: asking holders to release
//!   acquire/        from a contender to a guard: options, the queue within one process, re-entry, delay
//!   guard/          Guard: the state and the deadline of a hold; the duty to delete the holder's node
//!   telemetry/      spans, events and metrics of locks
//!   contender/      one place in a wait queue: entering, waiting, the order of contenders
//!
//! and the common modules, which all of them use:
//!   attempt         attempts to acquire: what an attempt waits for, and whether it is repeated
//!   exposure        finds znodes whose access control lists let other clients bypass a lock's own list
//!   failure         whether a failed call may be repeated, for each error
//!   error           the errors of locks and elections
//!   siblings        names of znodes next to a lock
//!   profile         the names of contenders, which allow sharing queues with Curator and kazoo programs
//!   owner_info      OwnerInfo: the description of a contender's program, for display
//!   permit_format   the format of a number of permits in a node
//!   token           FencingToken and Fence
//! ```
//!
//! A module uses only modules below it in this list. `docs/glossary.md` explains the terms.
//!
//! Invariant: a lock that is reported as held was held at that moment, and a loss is reported to its holder before
//! another client can acquire it. See `docs/guarantees.md` for the guarantees and their limits.

mod acquire;
mod admin;
mod attempt;
mod contender;
mod election;
mod error;
mod exposure;
mod failure;
#[doc(hidden)]
pub mod for_recipes;
mod guard;
mod locks;
mod names;
mod once;
mod owner_info;
mod permit_format;
mod profile;
mod siblings;
mod telemetry;
mod token;

pub use admin::{graph, inspect, revoke};
pub use contender::order;
pub use election::{Election, ElectionBuilder, ElectionLayout, Leader, Leaders, Leadership};
pub use error::{
    AcquireError, BuildError, EnsureError, LossReason, ObserveError, ProclaimError, ReleaseError,
    SetPermitsError, VerifyError,
};
pub use exposure::{Exposure, exposures};
pub use guard::Guard;
pub use guard::state::HolderState;
pub use locks::{
    ExclusiveGuard, ExclusiveNode, ExclusiveNodeBuilder, Locks, MultiGuard, MultiLock,
    MultiLockBuilder, Mutex, MutexBuilder, MutexGuard, Owner, ReentrantGuard, ReentrantMutex,
    ReentrantMutexBuilder, RwLock, RwLockBuilder, RwLockReadGuard, RwLockUpgradeableGuard,
    RwLockWriteGuard, Semaphore, SemaphoreBuilder, SemaphoreGuard, SemaphoreProfile, UpgradeError,
};
pub use names::{ClaimError, NameClaim, NameHolder, Names, NamesBuilder};
pub use once::{
    Begun, IfUnfinished, Once, OnceBuilder, OnceEnd, OnceError, OnceKey, OnceLog, OnceRecord,
    OnceRun, Tick,
};
pub use owner_info::{OwnerInfo, RevokeRequest};
pub use profile::{Kind, Profile, Usage};
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub use telemetry::lock_metrics;
pub use token::{Fence, FencingToken, ParseTokenError, Stale};
