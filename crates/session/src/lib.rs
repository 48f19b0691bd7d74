//! A ZooKeeper client session as a state machine.
//!
//! ```text
//!   session    Session: the state machine itself; all modules below are parts of it
//!   requests   requests that wait for a connection or for their reply; their outcome after a loss
//!   watches    which watchers wait for which node; rearming them after a reconnect
//!   timing     how the session timeout is divided: lease, margin, heartbeats, time limits
//!   lease      the time until which no server can have expired the session
//!   heartbeat  held nodes, the committed writes that prove them, and jeopardy
//!   history    what is remembered across sessions: the newest transaction, refusals by servers
//!   cleanup    deletes that must happen, even if connections are lost
//!   config     Config: the options of a session
//!   event      Event: what the session reports to its caller
//!   watch_event  WatchEvent: a change of a watched node
//!   error      why a request failed, and why a connection was closed
//!   time       Instant: a reading of the caller's clock
//! ```
//!
//! Invariants: no I/O, no clock, no randomness. The caller owns the transport: it reports events and the time
//! with `handle_*`, and then takes the results from `poll_*`. So the same code runs under tokio, in a seeded
//! simulation and in a model.

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
pub use config::{Config, Credentials, LeaseMode, MAX_SKIPPED_REPLY};
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
