//! For people and tools: listing the contenders of a lock, and asking holders to leave. No lock
//! decides by it.
//!
//! ```text
//!   inspect   who holds a lock, and who waits
//!   revoke    asking holders to give a lock back
//! ```

pub mod inspect;
pub mod revoke;
