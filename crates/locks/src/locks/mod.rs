//! The locks. Each has one file, or a directory if its guards or its nodes need more.
//!
//! ```text
//!   mutex             Mutex: a fair lock for one holder at a time
//!   reentrant_mutex   ReentrantMutex: the same, and its owner can enter it again
//!   exclusive_node    ExclusiveNode: the simplest lock; each release wakes all waiters
//!   owner             Owner: the identity that may enter one of these two again
//!   rw_lock/          RwLock: a fair lock that readers share and writers hold alone
//!   semaphore/        Semaphore: a number of permits, for as many holders at once
//!   multi_lock/       MultiLock: several locks as one, all or none
//!   registry          Locks: a lock for any key
//! ```

mod exclusive_node;
mod multi_lock;
mod mutex;
mod owner;
mod reentrant_mutex;
mod registry;
mod rw_lock;
mod semaphore;

pub(crate) use exclusive_node::WaitsFor;
pub use exclusive_node::{ExclusiveGuard, ExclusiveNode, ExclusiveNodeBuilder};
pub use multi_lock::{MultiGuard, MultiLock, MultiLockBuilder};
pub use mutex::{Mutex, MutexBuilder, MutexGuard};
pub use owner::Owner;
pub use reentrant_mutex::{ReentrantGuard, ReentrantMutex, ReentrantMutexBuilder};
pub use registry::Locks;
pub(crate) use registry::keys_below;
pub use registry::{key_of, node_of};
pub use rw_lock::{
    RwLock, RwLockBuilder, RwLockReadGuard, RwLockUpgradeableGuard, RwLockWriteGuard, UpgradeError,
};
pub use semaphore::{Semaphore, SemaphoreBuilder, SemaphoreGuard, SemaphoreProfile};
