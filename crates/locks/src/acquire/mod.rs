//! From a contender to a guard: what several locks share.
//!
//! ```text
//!   entrance     the way into a queue; `within`, for all time limits
//!   local        the queue within one process
//!   setup        the options that all locks have
//!   reentry      counted entries of one owner
//!   lock_delay   a pause between a holder that vanished and the next one
//! ```

pub(crate) mod entrance;
pub(crate) mod local;
pub(crate) mod lock_delay;
pub(crate) mod reentry;
pub(crate) mod setup;
