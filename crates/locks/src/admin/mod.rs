//! For people and tools: listing the contenders of a lock, and asking holders to leave. No lock
//! decides by it.
//!
//! ```text
//!   inspect     who holds a lock, and who waits
//!   due_delay   the lock delay of a holder that has vanished
//!   revoke      asking holders to give a lock back
//! ```

mod due_delay;
pub mod inspect;
pub mod revoke;
