//! Pools: one of a set of named things, as a guard.
//!
//! ```text
//!   handle       Pool: taking a thing, and changing the stored set
//!   guard        PoolGuard: a thing that this program holds
//!   report       PoolReport: the holders and the waiters
//!   take         how a thing is claimed; a program that finds none waits in line
//!   core         state shared by the clones of a handle: where the pool is, how it is read
//!   decide       which waiter may take which thing, and what the others wait for (pure)
//!   layout       names and data of a pool's nodes (pure)
//!   error        why a thing cannot be taken
//! ```

mod core;
mod decide;
mod error;
mod guard;
mod handle;
mod layout;
mod report;
mod take;

pub use error::PoolError;
pub use guard::PoolGuard;
pub use handle::{Pool, PoolBuilder};
pub use report::{HeldThing, PoolReport, PoolWaiter};
