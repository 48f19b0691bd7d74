//! A ZooKeeper server on one machine, as a state machine without I/O.
//!
//! ```text
//!   server     Server: what the engine calls; one frame in, frames and changes out
//!   config     what the caller decides: limits, the time, randomness
//!   output     what goes back to connections
//!   storage    what must become durable, and the way back from it
//! ```
//!
//! The caller hands in what arrived and what time it is, then asks for the effects:
//!
//! 1. [`Server::handle_frame`], [`Server::connected`], [`Server::disconnected`] and
//!    [`Server::handle_timeout`], as often as there is something to handle;
//! 2. [`Server::take_changes`], and commit them in one atomic, durable step;
//! 3. only then [`Server::take_outputs`], and send them.
//!
//! Invariant: everything that step 3 lets a client see, replies to reads and watch events
//! included, is a consequence of what the steps 2 up to then have made durable. A caller that keeps
//! this order never shows a state that a crash can undo.

mod config;
mod output;
mod server;
mod storage;

pub use config::{Config, Entropy, Now};
pub use output::{CloseReason, ConnectionId, Output};
pub use server::{Server, SessionInfo, Stats};
pub use storage::{Change, Changes, RestoreError, Restored, Table};
