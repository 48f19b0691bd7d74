//! Measuring locks: how many cycles and hand-offs a second, and how long each takes.
//!
//! Nothing here knows which system it measures, so that every system is measured in the same way.

mod cycles;
mod hand_offs;
mod latency;
mod lock;
mod measured;
mod repeats;
mod rounds;
mod window;

pub(crate) use cycles::{Release, cycles, record_cycles};
pub(crate) use hand_offs::hand_offs;
pub(crate) use latency::{Latency, Recorder, micros};
pub(crate) use lock::Lock;
pub(crate) use measured::Measured;
pub(crate) use repeats::repeat;
pub(crate) use rounds::rounds;
pub(crate) use window::Plan;
