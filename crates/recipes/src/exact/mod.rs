//! Writes whose outcome is certain even when the reply is lost.
//!
//! Each transaction begins with a step on an *outcome marker*, an ephemeral node of the session: it
//! changes the marker's data if its version is still the known one. After a lost reply the same
//! transaction is sent again. If its first step is then refused, the transaction was applied before, and
//! the marker's mzxid is its zxid; otherwise it is applied now, once. This costs one step in the same
//! transaction and no round trip.
//!
//! The marker is created by a request of its own, which is confirmed before the first transaction is
//! sent. If a transaction created it, a repeat could create it again after it was deleted, and be
//! applied twice. So a marker that is missing at a repeat always means that the outcome is unknown.
//!
//! Reading the written nodes proves less: other programs may have written the same data, or
//! overwritten it. `sync` and a read do not help, because a deposed leader may answer them.
//!
//! A server with a smaller request limit than its client closes the connection at a longer request. So a
//! long transaction that was lost several times in a row is not sent again; only the step on the marker is.
//! If that step is refused, the transaction was applied, or an earlier one of these single steps was. The
//! marker's data shows which.
//!
//! The marker is deleted with its session. If the session ends before the answer comes, the outcome stays
//! unknown, and the caller gets that as an error. Otherwise this happens only if another program deletes
//! the marker.
//!
//! `attempt` decides what an answer means; `contention_backoff` when to try again after another program was faster;
//! `writer` sends one transaction at a time; `writers` has one for each write of a handle that is in progress;
//! `shared_write` answers the calls of many tasks with one write; `session_owned` is the node of a marker;
//! `attempt_node` deletes a node that may have been created.

mod attempt;
mod attempt_node;
mod contention_backoff;
mod session_owned;
pub(crate) mod shared_write;
mod writer;
mod writers;

pub(crate) use attempt::{Applied, WriteError, created_name};
pub(crate) use attempt_node::AttemptNode;
pub(crate) use session_owned::SessionOwned;
pub(crate) use writer::{DEFAULT_MARKERS, ExactWriter};
pub(crate) use writers::Writers;
