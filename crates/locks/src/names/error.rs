//! Why a name was not claimed.

use lockkeeper_client::{Error, Outcome, ZnodePath, impl_failure};

use crate::error::{AcquireError, BuildError};
use crate::names::holder::NameHolder;

/// Why a name was not claimed. Nothing of the attempt is left behind, or it is about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The name is longer than servers take.
    #[error(transparent)]
    Name(#[from] BuildError),
    /// Somebody has it, and it was not to be waited for.
    #[error("the name {name:?} is taken by {by}; choose another one, or wait for it with `claim`")]
    Taken {
        /// The name.
        name: String,
        /// Who has it.
        by: Box<NameHolder>,
    },
    /// Where the claim would be, there is a node that no session's end removes.
    #[error(
        "{node} does not go by itself, so it is no claim to a name; delete it, or use another path \
         for the names"
    )]
    Foreign {
        /// The node.
        node: ZnodePath,
    },
    /// A request failed, so it cannot be seen who has the name.
    #[error("cannot see who has {node}: {source}")]
    Unseen {
        /// The node of the name.
        node: ZnodePath,
        /// What failed.
        source: Error,
    },
    /// As when a lock is not acquired.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl_failure!(ClaimError {
    Self::Taken { .. } => (true, Outcome::NotApplied),
    Self::Unseen { source, .. } => (source.is_retryable(), Outcome::NotApplied),
    Self::Acquire(error) => (error.is_retryable(), error.outcome()),
    Self::Name(_) | Self::Foreign { .. } => (false, Outcome::NotApplied),
});
