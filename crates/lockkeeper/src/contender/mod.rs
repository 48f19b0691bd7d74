//! One place in line: how it is entered, how it waits, and who is ahead of it.
//!
//! ```text
//!   node      Contender: a node, from before its creation to its deletion
//!   waiting   how a contender waits for those ahead
//!   idle      nodes of idle locks, where only contenders should be
//!   retry     attempts that are made again, while what fails is something passing
//!   order     who is ahead of whom: a pure function of a listing
//! ```
//!
//! Invariant: a contender exists before the request that creates its node is sent, so whatever may
//! have come of it is deleted.

mod idle;
pub(crate) mod node;
pub mod order;
pub(crate) mod retry;
pub(crate) mod waiting;
