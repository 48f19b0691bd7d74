//! Writes whose outcome is certain also when the reply to them is lost.
//!
//! Each transaction begins with a step on an *outcome marker*, an ephemeral node of the session: it
//! changes the marker's data if its version is still the known one. After a lost reply the same
//! transaction is sent again. If that first step is then refused, the transaction had been applied
//! before, and the marker's mzxid is its number; else it is applied now, once. It costs no round trip,
//! and one step in the same transaction.
//!
//! The marker is created by a request of its own, which is confirmed before the first transaction is
//! sent. If a transaction created it, a repeat could create it anew after somebody had deleted it, and be
//! applied twice. So a marker that is missing at a repeat always means that nothing is known.
//!
//! Looking at the nodes that were written cannot tell as much: others may have written the same, or
//! over it. Nor can `sync` and a look, which a leader that was deposed may answer.
//!
//! A server that takes less at once than its client closes the connection at a longer request. So what is
//! long and was lost several times in a row is not sent again; only the step on the marker is. If it is
//! refused, the transaction had been applied, or an earlier one of these lone steps, which the marker's data
//! tells.
//!
//! The marker goes with its session. If that ends before there is an answer, the outcome cannot be
//! known any more, and that is what the caller is told. It never happens otherwise, unless somebody
//! deletes the marker.
//!
//! `attempt` decides what an answer means; `rivalry` when to try again after another program was quicker;
//! `writer` sends, one transaction at a time; `writers` has one for each write that a handle has under way;
//! `shared_write` lets one write answer the calls of many tasks; `session_owned` is the node of a marker; `attempt_node` sees to it that whatever
//! may have been created is deleted.

mod attempt;
mod attempt_node;
mod rivalry;
mod session_owned;
pub(crate) mod shared_write;
mod writer;
mod writers;

pub(crate) use attempt::{Applied, WriteError, created_name};
pub(crate) use attempt_node::AttemptNode;
pub(crate) use session_owned::SessionOwned;
pub(crate) use writer::{DEFAULT_MARKERS, ExactWriter};
pub(crate) use writers::Writers;
