//! Choosing the instance for the next call.
//!
//! ```text
//!   picker          Picker: picks and outcomes, for any number of tasks; Call: one call in flight
//!   balancer        instances, the calls in flight, and the choice (pure)
//!   pool            the instances that may be picked, and their weights (pure)
//!   health          which instances are excluded from calls, and for how long (pure)
//!   load            calls in flight, and the moving average of latency (pure)
//!   rendezvous      which instance owns a key (pure; a protocol)
//!   candidate       what a picker needs to know about an instance
//! ```
//!
//! Invariant: a pick reads no socket and allocates nothing, and it fails only if no instance has a weight.

mod balancer;
mod candidate;
mod health;
mod load;
mod picker;
mod pool;
pub(crate) mod rendezvous;
#[cfg(test)]
mod tests;

pub use balancer::InstanceLoad;
pub use candidate::{Candidate, Pick, PickError};
pub use health::{Ejection, InstanceHealth};
pub use picker::{Call, Picker, PickerBuilder};
