//! A ZooKeeper client session as a state machine.
//!
//! ```text
//!   session    Session: the state machine itself; all modules below are parts of it
//!   requests   requests that wait for a connection, or for their reply; their fate on a loss
//!   watches    which watchers wait for which node; arming them again after a reconnect
//!   timing     how the session timeout is divided: lease, margin, heartbeats, patience
//!   lease      until when no server can have expired the session
//!   heartbeat  held nodes, the committed writes that prove them, and what proves them in jeopardy
//!   history    what is remembered over sessions: the newest transaction, refusals by servers
//!   cleanup    deletes that must happen, whatever becomes of the connection
//!   config     Config: the options of a session
//!   event      Event: what the session reports to its caller
//!   watch_event  what happened to a node that is watched
//!   error      why a request failed, and why a connection was given up
//!   time       Instant: a reading of the caller's clock
//! ```
//!
//! Invariants: no I/O, no clock, no randomness. The caller owns the transport: it calls `handle_*`
//! when something happened, passing the time, and then takes what came of it from `poll_*`. So the
//! same code runs under tokio, in a seeded simulation and in a model.

mod cleanup;
mod config;
mod error;
mod event;
mod heartbeat;
mod history;
mod lease;
mod requests;
mod session;
mod time;
mod timing;
mod watch_event;
mod watches;

pub use cleanup::{Cleanup, ExpectedNode};
pub use config::{Config, Credentials, LeaseMode, MOST_SKIPPED};
pub use error::{Disconnect, Outcome, RequestError};
pub use event::Event;
pub use heartbeat::{Binding, HoldId, HoldProof, NameUse};
pub use lease::LeaseState;
pub use session::{Contact, Session};
pub use time::Instant;
pub use timing::Timing;
pub use watch_event::WatchEvent;
pub use watches::{WatchId, WatchKind};

#[cfg(test)]
mod tests;
