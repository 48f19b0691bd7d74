//! Watching data, and nodes that show that a program runs.
//!
//! ```text
//!   presence        Presence: a node that exists while this program runs
//!   ttl_presence    TtlPresence: a node that outlives its program for a limited time
//!   tree_cache      TreeCache: a part of the tree in memory, and its changes
//!   follow          reads what the view needs, and publishes snapshots
//!   batches         how many reads one request has (pure)
//!   published       the newest snapshot, and the readers that have not seen it
//!   backlog         the changed paths that readers have not read (pure)
//!   view            the state of a cache, and the reads that it needs (pure)
//!   snapshot        a part of the tree at one moment, and changes between two (pure)
//!   error           why a cache could not be opened, or has ended
//! ```

mod backlog;
mod batches;
mod error;
mod follow;
mod presence;
mod published;
mod snapshot;
mod tree_cache;
mod ttl_presence;
mod view;
#[cfg(test)]
mod view_tests;

#[cfg(test)]
pub(crate) use snapshot::Tree;

pub use error::CacheError;
pub(crate) use presence::{IsOurs, PendingUpdate};
pub use presence::{Presence, PresenceBuilder, PresenceError, PresenceState, WhenTaken};
pub use snapshot::{CachedNode, Change, Snapshot};
pub use tree_cache::{CacheChanges, CacheUpdate, TreeCache, TreeCacheBuilder};
pub use ttl_presence::{TtlPresence, TtlPresenceBuilder};
