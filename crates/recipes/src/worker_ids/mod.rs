//! Numbers that one program has at a time, and 64-bit ids made from them.
//!
//! ```text
//!   handle        WorkerIds: takes a number and reserves its first ids
//!   worker_id     WorkerId: a guard, which mints ids
//!   keeper        the task that extends the reservation
//!   numbers       which number a program takes
//!   minting       state shared by a number and its keeper
//!   write         writing a reservation, also when replies are lost
//!   minter        ids within a reservation (pure)
//!   reservation   the data of a reservation, how far ahead and when (pure)
//!   time_estimate an estimate of the servers' time, from answers (pure)
//!   id_layout     the layout of ids (pure)
//!   error         why a number or an id is not available
//! ```
//!
//! No id is minted twice because each reservation is written over the one that was read: its writer alone has the
//! time from the end of the previous one to the end of its own, for good. All the rest, such as the lease, its
//! deadline, the check of the number's node and the clocks, only decides which program continues.

mod error;
mod handle;
mod id_layout;
mod keeper;
mod minter;
mod minting;
mod numbers;
mod reservation;
mod time_estimate;
mod worker_id;
mod write;

pub use error::{MintError, WorkerIdError};
pub use handle::{WorkerIds, WorkerIdsBuilder};
pub use id_layout::{IdLayout, IdParts};
pub use worker_id::WorkerId;
