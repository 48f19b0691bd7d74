//! A ZooKeeper server on one machine, as a state machine without I/O.
//!
//! ```text
//!   server       Server: what the engine calls; frames and time in, changes and outputs out
//!   config       what the caller decides: limits, the time, randomness
//!   output       what goes back to connections        outbox     ... and waits there until then
//!   changes      what must become durable             records    ... as bytes
//!                                                     restore    ... and back
//!   handshake    the first frame of a connection      sessions   deadlines and passwords
//!   requests     every other frame, up to its reply   connections, auth, acl   identity, permission
//!   reads        answers from the tree
//!   writes       prepare, apply, notify:
//!     prepare, multi    (tree, request) -> transaction or error; changes nothing
//!     apply             (tree, transaction) -> outcome and events; cannot fail
//!     txn               what passes between the two
//!     notify            events -> connections, by the table in `watches` (`watchers`: of one path)
//!     fan_out           which of them get more events of one transaction than their share
//!   watch_requests      setWatches and its relatives
//!   succession   how a server starts after an earlier one
//!   following    followers of a leader, for simulations
//!   timers       expiry of sessions, reaping of containers and TTL nodes
//!   nodes        the tree itself                  quota      ... and how large parts of it may be
//!   children     the children of one node         gradual    hash tables that grow in small steps
//!   ancestors    what holds for whole subtrees: the paths above a path, in one pass
//!   room, share  limits on growth, and fair shares of memory
//!   lengths      the lengths of replies on the wire
//!   rearming     long setWatches requests, cut into portions
//!   short        requests that are known to take little time
//!   notices      requests that ran into a limit   report     ... and summaries, for operators
//!   hash         the tables of paths and ids      digest  of the passwords of digest authentication
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

mod acl;
mod ancestors;
mod apply;
mod auth;
mod changes;
mod children;
mod config;
mod connections;
mod digest;
mod fan_out;
#[cfg(any(test, feature = "following"))]
mod following;
mod gradual;
mod handshake;
mod hash;
mod lengths;
mod multi;
mod nodes;
mod notices;
mod notify;
mod outbox;
mod output;
mod prepare;
mod quota;
mod reads;
mod rearming;
mod records;
mod report;
mod requests;
mod restore;
mod room;
mod server;
mod sessions;
mod share;
mod short;
mod succession;
mod timers;
mod txn;
mod watch_requests;
mod watchers;
mod watches;
mod writes;

#[cfg(test)]
mod tests;

pub use changes::{Change, Changes, RestoreError, Table};
pub use config::{Config, Entropy, InvalidSuperDigest, Now, SuperDigest};
pub use digest::{DigestAlgorithm, UnknownDigestAlgorithm};
pub use notices::Notice;
pub use output::{CloseReason, ConnectionId, Output};
pub use report::WatchSummary;
pub use restore::LAST_EPOCH;
pub use room::{Growth, Resource};
pub use server::{Server, SessionInfo, Stats};
pub use share::{LITTLE, allowance};
#[cfg(any(test, feature = "following"))]
pub use txn::Transactions;
