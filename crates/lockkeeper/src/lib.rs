//! Distributed locks with guards, fencing tokens and exact leases, on the ZooKeeper protocol.
//!
//! ```text
//!   blocking        a client for programs without async
//!   updates         sources of changes as streams
//!   debug           what {:?} shows of locks and recipes
//!   failure         what each error answers as a Failure: whether to try again
//!   group/          Group: programs that are there, and views of which
//!   discovery/      ServiceDirectory: the instances of a service, and which a call goes to; Registration
//!   watch/          TreeCache: a part of the tree in memory; Presence: a node while this program is there
//!   names/          Names: names that one program has at a time
//!   election/       Election: one leader at a time, and observers
//!   values/         shared values, counters, numbers that nobody else has, notifications
//!   once/           Once: something is done once for each key, under a lock
//!   locks/          the locks, one file or folder each; Owner, for re-entry
//!   admin/          inspect: who holds and who waits; revoke: asking holders to leave
//!   acquire/        from a contender to a guard: options, the queue within one process, re-entry, delay
//!   guard/          Guard: what a holder may believe, and until when; its duty to delete its node
//!   exact/          writes whose outcome is certain also when the reply is lost
//!   contender/      one place in a wait queue: entering, waiting, order (who is ahead of whom)
//!
//! and on the ground floor, what everyone names:
//!   retry           which failures are transient, and when a request or an attempt may be repeated
//!   behind          Horizon: whether what a server shows is old, or all that there is
//!   exposure        finds znodes above a lock that let strangers in despite its access control list
//!   beside          names of znodes beside a lock
//!   error           what can go wrong
//!   profile         how contenders are named, so that Curator and kazoo programs take part
//!   owner_info      OwnerInfo: what a contender says of its program, for people to read
//!   permit_format   how a number of permits is written into a node
//!   token           FencingToken and Fence
//! ```
//!
//! A path is that of one lock of one kind, and a lock has no other locks below it: the first acquire that
//! finds other children refuses them ([`AcquireError::Foreign`]). Nothing is looked up when a lock is made
//! or used for the first time, so a lock below one that is held is granted, and the upper one refused next.
//!
//! Everything here runs in a tokio runtime whose timer is enabled, and what waits panics without a timer;
//! a client of [`blocking`] has a runtime of its own.
//!
//! A module uses only what is below it in this list. `docs/glossary.md` explains the terms.
//!
//! Invariant: a lock that is reported as held was held at that moment, and its holder is told before
//! another client can have it. See `docs/guarantees.md` for what is promised and what
//! is not.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let servers = engine.connect_string();
//! use lockkeeper::{Client, Mutex};
//!
//! let client = Client::connect(&servers).await?;
//! let lock = Mutex::new(&client, "/locks/orders")?;
//!
//! let guard = lock.acquire().await?;
//! println!("held; fencing token {}", guard.token());
//! guard.release().await?;
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

mod acquire;
mod admin;
mod behind;
mod beside;
pub mod blocking;
mod contender;
mod debug;
mod discovery;
mod election;
mod error;
mod exact;
mod exposure;
mod failure;
mod group;
mod guard;
mod locks;
mod names;
mod once;
mod owner_info;
mod permit_format;
mod profile;
mod retry;
mod token;
#[cfg(feature = "stream")]
mod updates;
mod values;
mod watch;

pub use admin::{inspect, revoke};
pub use contender::order;
pub use discovery::pick::{
    Call, Candidate, Ejection, InstanceHealth, InstanceLoad, Pick, PickError, Picker, PickerBuilder,
};
pub use discovery::{
    DirectoryChanges, DirectoryUpdate, Instance, InstanceChange, Instances, Listed, Payload,
    RegisterError, Registration, ServiceDirectory, ServiceDirectoryBuilder, ServiceType,
    Unreadable, UriPart, UriSpec, UriSpecError,
};
pub use election::{Election, ElectionBuilder, ElectionLayout, Leader, Leaders, Leadership};
pub use error::{
    AcquireError, BuildError, EnsureError, LossReason, ObserveError, ProclaimError, ReleaseError,
    SetPermitsError, VerifyError,
};
pub use exposure::{Exposure, exposures};
pub use group::{
    Group, GroupBuilder, GroupError, GroupLayout, GroupUpdate, GroupView, Member, MemberBuilder,
    MemberChange, MemberChanges, Members, Membership, ViewId,
};
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
    Begun, IfUnfinished, Once, OnceBuilder, OnceEnd, OnceError, OnceKey, OnceRecord, OnceRun, Tick,
};
pub use owner_info::{OwnerInfo, RevokeRequest};
pub use profile::{Kind, Profile, Usage};
pub use token::{Fence, FencingToken, ParseTokenError, Stale};
pub use values::{
    Added, Codec, CodecError, Counter, CounterBuilder, CounterLayout, Editions, IdBlocks, Json,
    LastGoodError, Notify, Publication, PublicationBuilder, Raw, Revision, Shared, SharedBuilder,
    Swap, ValueChange, ValueChanges, ValueError, ValuePathError, Versioned,
};
pub use watch::{
    CacheChanges, CacheError, CacheUpdate, CachedNode, Change, Presence, PresenceBuilder,
    PresenceError, PresenceState, Snapshot, TreeCache, TreeCacheBuilder, TtlPresence,
    TtlPresenceBuilder, WhenTaken,
};

#[cfg(feature = "rehearsal")]
pub use lockkeeper_client::Rehearsal;
pub use lockkeeper_client::{
    Acl, AclError, AddWatchMode, Client, ClientBuilder, Clock, ConnectError, ConnectString,
    Contact, CreateMode, Created, DefaultAcl, Error, ErrorCode, EventKind, Failure, Host, Instant,
    LeaseMode, LeaseState, Listing, OpResult, Outcome, PathError, Permissions, Reply, Sequence,
    ServiceError, SessionId, SessionIdentity, Stat, Status, StillHeld, Timing, Transaction,
    TransactionError, WatchEvent, WatchItem, WatchLost, WatchStream, Watcher, ZnodePath, Zxid,
};
#[cfg(feature = "tls")]
pub use lockkeeper_client::{Tls, TlsError};
#[cfg(feature = "stream")]
pub use lockkeeper_client::{UpdateStream, Updates};
