//! Barriers and latches: programs that wait for each other.
//!
//! ```text
//!   gate         Barrier: closed, and everybody waits until it is open
//!   latch        CountDownLatch: open when it was counted down to zero
//!   double       DoubleBarrier: parties that enter together, and leave together
//!   enter        how a party comes into a round
//!   round        Round: a party that is inside; what becomes of the others
//!   core         what the clones of a double barrier share
//!   entry        the node of a party, from before its creation to its deletion
//!   requests     how they make their nodes, and make a request again
//!   layout       how parties and rounds are named and written, and who comes into a round (pure)
//!   error        why a barrier cannot be used, or has failed
//! ```

mod core;
mod double;
mod enter;
mod entry;
mod error;
mod gate;
mod latch;
mod layout;
mod requests;
mod round;

pub use self::core::Deaths;
pub use double::{BarrierReport, DoubleBarrier, DoubleBarrierBuilder};
pub use error::{BarrierError, Missing};
pub use gate::{Barrier, ClosedBarrier};
pub use latch::CountDownLatch;
pub use round::Round;
