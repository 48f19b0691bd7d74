//! Pools: one of a set of named things, as a guard.
//!
//! ```text
//!   handle       Pool: taking a thing, and the set of those that there are
//!   guard        PoolGuard: a thing that this program has
//!   look         PoolReport: the holders and the waiters
//!   take         how a thing is claimed; a program that finds none waits in line
//!   core         what the clones of a handle share: where the pool is, how it is read
//!   decide       which waiter may take which thing, and what the others wait for (pure)
//!   layout       how the nodes of a pool are named and written (pure)
//!   error        why a thing cannot be had
//! ```

mod core;
mod decide;
mod error;
mod guard;
mod handle;
mod layout;
mod look;
mod take;

pub use error::PoolError;
pub use guard::PoolGuard;
pub use handle::{Pool, PoolBuilder};
pub use look::{HeldThing, PoolReport, WaitingForThing};
