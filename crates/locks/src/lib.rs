//! What can be held: locks, elections, names, and work that is done once. Users depend on the crate `lockkeeper`,
//! which shows all of this.
//!
//! ```text
//!   for_recipes     what recipes of another crate are made of: a place in a line, the guard of a node
//!   once/           Once: something is done once for each key, under a lock
//!   names/          Names: names that one program has at a time
//!   election/       Election: one leader at a time, and observers
//!   locks/          the locks, one file or folder each; Owner, for re-entry
//!   admin/          inspect: who holds and who waits; graph: who waits for whom; revoke: asking holders to leave
//!   acquire/        from a contender to a guard: options, the queue within one process, re-entry, delay
//!   guard/          Guard: what a holder may believe, and until when; its duty to delete its node
//!   telemetry/      what a program can show of its locks: spans, events and figures
//!   contender/      one place in a wait queue: entering, waiting, order (who is ahead of whom)
//!
//! and on the ground floor, what all of them use:
//!   attempt         an attempt to acquire: what it waits for, and whether it is made again
//!   exposure        finds znodes above a lock that let strangers in despite its access control list
//!   failure         what the errors say about trying again
//!   error           what can go wrong
//!   beside          names of znodes beside a lock
//!   profile         how contenders are named, so that Curator and kazoo programs take part
//!   owner_info      OwnerInfo: what a contender says of its program, for people to read
//!   permit_format   how a number of permits is written into a node
//!   token           FencingToken and Fence
//! ```
//!
//! A module uses only what is below it in this list. `docs/glossary.md` explains the terms.
//!
//! Invariant: a lock that is reported as held was held at that moment, and its holder is told before
//! another client can have it. See `docs/guarantees.md` for what is promised and what is not.

mod acquire;
mod admin;
mod attempt;
mod beside;
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
pub use guard::state::State;
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
pub use telemetry::figures;
pub use token::{Fence, FencingToken, ParseTokenError, Stale};
