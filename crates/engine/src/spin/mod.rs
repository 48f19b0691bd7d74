//! Whether a thread that has run out of work polls for a moment before it sleeps
//! (`docs/decisions/0007-look-out-before-sleeping.md`).
//!
//! The policy is in `policy` only: which threads may poll, and for how long. `arrivals` and `series` record what has
//! happened so far; the tree thread and the commit thread poll.

mod arrivals;
mod policy;
mod series;

pub(crate) use self::arrivals::Arrivals;
pub(crate) use self::policy::SpinPolicy;
pub use self::policy::{Spin, UnknownSpin};
pub(crate) use self::series::CommitSeries;
