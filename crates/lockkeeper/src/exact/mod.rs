//! Writes whose outcome is certain also when the reply to them is lost.
//!
//! Each transaction begins with a step on an *outcome marker*, an ephemeral node of the session: the
//! first one creates it, each later one changes its data if the version is still the known one. After
//! a lost reply the same transaction is sent again. If that first step is then refused, the
//! transaction had been applied before, and the marker's mzxid is its number; else it is applied now,
//! once. It costs no round trip, and one step in the same transaction.
//!
//! Looking at the nodes that were written cannot tell as much: others may have written the same, or
//! over it. Nor can `sync` and a look, which a leader that was deposed may answer.
//!
//! The marker goes with its session. If that ends before there is an answer, the outcome cannot be
//! known any more, and that is what the caller is told. It never happens otherwise.
//!
//! `attempt` decides what an answer means; `writer` sends.

mod attempt;
mod writer;

pub(crate) use attempt::{Applied, WriteError};
pub(crate) use writer::ExactWriter;

/// Where the markers are, unless a builder says otherwise: no recipe lists or caches it.
pub(crate) const DEFAULT_MARKERS: &str = "/lockkeeper-outcomes";
