//! Watching data, and nodes that show that a program runs.
//!
//! ```text
//!   presence        Presence: a node that is there while this program is
//!   ttl_presence    TtlPresence: one that outlives its program for a while
//!   tree_cache      TreeCache: a part of the tree in memory, and what changes in it
//!   follow          reads what the view wants to know, and publishes what comes of it
//!   batches         how many reads go into one request (pure)
//!   published       the newest snapshot, and who has not seen it
//!   backlog         where the tree may have changed, for those who have not looked (pure)
//!   view            what a cache knows, and what it has to read (pure)
//!   snapshot        a part of the tree at one moment, and what changed since (pure)
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
