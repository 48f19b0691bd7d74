//! A ZooKeeper server on one machine, as a state machine without I/O.
//!
//! ```text
//!   server       Server: what the engine calls; frames and time in, changes and outputs out
//!   config       provided by the caller: limits, the time, randomness
//!   output       frames and closes for connections    outbox     ... buffered until they may be sent
//!   changes      changes that must become durable     records    ... their encoding
//!                                                     restore    ... their decoding
//!   handshake    the first frame of a connection      sessions   deadlines and passwords
//!   requests     every other frame, up to its reply   connections, auth, acl   identity, permission
//!   reads        requests that do not change the tree
//!   writes       prepare, apply, notify:
//!     prepare, multi    (tree, request) -> transaction or error; changes nothing
//!     apply             (tree, transaction) -> outcome and events; cannot fail
//!     txn               the types that pass between the two
//!     notify            events -> connections, by the table in `watches` (`watchers`: of one path)
//!     fan_out           limits the events of one transaction
//!   watch_requests      setWatches and related requests
//!   succession   how a server starts as the successor of an earlier one
//!   following    followers of a leader, for simulations
//!   timers       expiry of sessions, reaping of containers and TTL nodes
//!   nodes        the tree itself                  quota      ... limits on the size of subtrees
//!   children     the children of one node         gradual    hash tables that grow incrementally
//!   ancestors    values for whole subtrees: looks up all ancestors of a path in one pass
//!   room, share  limits on growth, and fair shares of memory
//!   lengths      the encoded lengths of replies
//!   rearming     long setWatches requests, handled in portions
//!   short        requests that are known to take little time
//!   notices      requests that exceeded a limit   report     ... and summaries, for operators
//!   hash         the tables of paths and ids      digest     the hash of digest authentication
//! ```
//!
//! The caller passes events and the time, then takes the effects:
//!
//! 1. [`Server::handle_frame`], [`Server::connected`], [`Server::disconnected`] and
//!    [`Server::handle_timeout`], any number of times;
//! 2. [`Server::take_changes`], and commit them in one atomic, durable step;
//! 3. only then [`Server::take_outputs`], and send them.
//!
//! Invariant: everything that step 3 lets a client see, including replies to reads and watch events, follows
//! from what step 2 has made durable so far. A caller that keeps this order never shows a state that a crash
//! can undo.

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
pub use share::{SMALL_SHARE_BYTES, allowance};
#[cfg(any(test, feature = "following"))]
pub use txn::Transactions;
