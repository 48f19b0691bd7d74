//! Distributed locks with guards, fencing tokens and exact leases, on the ZooKeeper protocol.
//!
//! ```text
//!   mutex             Mutex: a fair lock for one holder at a time
//!   reentrant_mutex   ReentrantMutex: the same, and its owner can enter it again
//!   exclusive_node    ExclusiveNode: the simplest lock, which wakes everyone at each release
//!   multi_lock        MultiLock: several locks as one, all or none
//!   rw_lock           RwLock: a fair lock that readers share and writers have alone
//!   semaphore         Semaphore: a number of permits, for as many holders at once
//!   locks             Locks: a lock for any key
//!   blocking          all of them for programs without async
//!   inspect           who holds a lock, and who waits
//!   revoke            asking holders to give a lock back
//!
//! and what the locks are made of:
//!   guard             Guard: what a holder may believe, and until when
//!   stake             Stake: a holder's node, and the duty to delete it
//!   contender         Contender: one place in a queue, from before its node is created
//!   lock_delay        a pause between a holder that vanished and the next one
//!   idle              nodes of idle locks, where only contenders should be
//!   attempt           attempts to create a node, while what fails is something passing
//!   local             the queue within one process
//!   reentry           counted entries of one owner
//!   waiting           how a contender waits
//!   entrance          a program's way into a queue: what the locks with several kinds share
//!   upgrade           a reader that may become a writer
//!   semaphore_layout  what a semaphore is made of
//!   permits           how many permits there are
//!   order             who is ahead of whom: a pure function of a listing
//!   profile           how contenders are named, so that Curator and kazoo programs take part
//!   token             FencingToken and Fence
//!   owner             OwnerInfo: who stands in a queue, for people to read; Owner: who enters again
//!   error             what can go wrong
//! ```
//!
//! Invariant: a lock that is reported as held was held at that moment, and whoever holds it is
//! told before anyone else can have it. See `docs/guarantees.md` for what is promised and what
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

mod attempt;
pub mod blocking;
mod contender;
mod entrance;
mod error;
mod exclusive_node;
mod exposure;
mod guard;
mod idle;
pub mod inspect;
mod local;
mod lock_delay;
mod locks;
mod multi_guard;
mod multi_lock;
mod mutex;
pub mod order;
mod owner;
mod permits;
mod profile;
mod reentrant_mutex;
mod reentry;
pub mod revoke;
mod rw_lock;
mod semaphore;
mod semaphore_layout;
mod stake;
mod token;
mod upgrade;
mod waiting;

pub use error::{
    AcquireError, EnsureError, LockPathError, LossReason, ReleaseError, SetPermitsError,
    VerifyError,
};
pub use exclusive_node::{ExclusiveGuard, ExclusiveNode};
pub use exposure::{Exposure, exposures};
pub use guard::{Guard, State};
pub use locks::Locks;
pub use multi_guard::MultiGuard;
pub use multi_lock::MultiLock;
pub use mutex::{Mutex, MutexBuilder, MutexGuard};
pub use owner::{Owner, OwnerInfo};
pub use profile::{Kind, Profile};
pub use reentrant_mutex::{ReentrantGuard, ReentrantMutex};
pub use rw_lock::{RwLock, RwLockBuilder, RwLockWriteGuard};
pub use semaphore::{Semaphore, SemaphoreBuilder, SemaphoreGuard};
pub use semaphore_layout::SemaphoreLayout;
pub use token::{Fence, FencingToken, ParseTokenError, Stale};
pub use upgrade::RwLockUpgradeableGuard;

pub use lockkeeper_client::{
    Acl, AclError, AddWatchMode, Client, ClientBuilder, Clock, ConnectError, ConnectString,
    Contact, CreateMode, Created, DefaultAcl, Error, ErrorCode, EventKind, Host, Instant,
    LeaseMode, LeaseState, Listing, OpResult, Outcome, Permissions, Sequence, SessionId,
    SessionIdentity, Stat, Timing, Transaction, TransactionError, WatchEvent, WatchStream, Watcher,
    ZnodePath, Zxid,
};
#[cfg(feature = "tls")]
pub use lockkeeper_client::{Tls, TlsError};
