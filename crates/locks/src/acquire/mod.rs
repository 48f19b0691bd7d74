//! The way from a contender to a guard, shared by all locks.
//!
//! ```text
//!   queue_handle   a handle to a queue: every lock with a queue enters it here; `within`, for all time limits
//!   local          the queue within one process
//!   lock_options   the options that all locks have
//!   reentry        counts the entries of one owner
//!   lock_delay     a pause between a vanished holder and the next one
//! ```

pub(crate) mod local;
pub(crate) mod lock_delay;
pub(crate) mod lock_options;
pub(crate) mod queue_handle;
pub(crate) mod reentry;
