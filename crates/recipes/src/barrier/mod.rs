//! Barriers and latches: programs that wait for each other.
//!
//! ```text
//!   gate         Barrier: programs wait while it is closed
//!   latch        CountDownLatch: opens when its count reaches zero
//!   double       DoubleBarrier: parties enter and leave rounds together
//!   enter        how a party enters a round
//!   round        Round: a party that is inside; it watches the others
//!   core         state shared by the clones of a double barrier
//!   entry        the node of a party, from before its creation to its deletion
//!   requests     creating nodes, and retrying
//!   layout       names and data of parties and rounds, and which parties enter a round (pure)
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
