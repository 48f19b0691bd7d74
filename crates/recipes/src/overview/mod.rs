//! An overview of the recipes in a part of the tree at one moment, with warnings.
//!
//! ```text
//!   warning    Warning: what looks wrong, and why
//!   uses       Overview: all recipes of a tree
//!   sessions   SessionUse: what each session holds, waits for and takes part in
//!   path_use   PathUse: which recipe uses a path
//! ```
//!
//! Everything here is computed from a tree in memory, such as a [`Snapshot`](crate::Snapshot). The cache costs
//! one watch, and one read for each change. The overview itself makes no request.

mod path_use;
mod sessions;
#[cfg(test)]
mod tests;
mod uses;
mod warning;

pub use path_use::PathUse;
pub use sessions::SessionUse;
pub use uses::{ElectionUse, GroupUse, Overview, PoolUse, QueueUse, ServiceUse};
pub use warning::{HoldTimes, Warning, WarningLimits};
