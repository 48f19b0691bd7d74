//! For operators and tools: listing the contenders of a lock, and asking holders to release it. The locks themselves do
//! not use it.
//!
//! ```text
//!   graph       the waits-for graph of many locks, and deadlocks
//!   inspect     the holders and waiters of a lock
//!   known_tree  the same, in a tree that is in memory
//!   due_delay   the lock delay of a vanished holder
//!   revoke      asking holders to release a lock
//! ```

mod due_delay;
pub mod graph;
pub mod inspect;
mod known_tree;
pub mod revoke;
