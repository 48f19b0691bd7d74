//! For people and tools: listing the contenders of a lock, and asking holders to leave. No lock
//! decides by it.
//!
//! ```text
//!   graph       who waits for whom over many locks, and deadlocks
//!   inspect     who holds a lock, and who waits
//!   known_tree  the same, in a tree that is in memory
//!   due_delay   the lock delay of a holder that has vanished
//!   revoke      asking holders to give a lock back
//! ```

mod due_delay;
pub mod graph;
pub mod inspect;
mod known_tree;
pub mod revoke;
