//! Why a name was not claimed.

use lockkeeper_client::{Error, Outcome, ZnodePath, impl_failure};

use crate::error::{AcquireError, BuildError};
use crate::names::holder::NameHolder;

/// Why a name was not claimed. The attempt leaves no node behind, or its node is about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The name is longer than servers accept.
    #[error(transparent)]
    Name(#[from] BuildError),
    /// Another program holds the name, and the call does not wait.
    #[error("the name {name:?} is taken by {by}; choose another one, or wait for it with `claim`")]
    Taken {
        /// The name.
        name: String,
        /// The holder.
        by: Box<NameHolder>,
    },
    /// The path of the claim has a node that is not ephemeral.
    #[error(
        "{node} is not ephemeral, so it is not a claim to a name; delete it, or use another path \
         for the names"
    )]
    Foreign {
        /// The node.
        node: ZnodePath,
    },
    /// A request failed, so the holder of the name is unknown.
    #[error("cannot read the holder of {node}: {source}")]
    Unseen {
        /// The node of the name.
        node: ZnodePath,
        /// The failure.
        source: Error,
    },
    /// The same failures as for a lock.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl_failure!(ClaimError {
    Self::Taken { .. } => (true, Outcome::NotApplied),
    Self::Unseen { source, .. } => (source.is_retryable(), Outcome::NotApplied),
    Self::Acquire(error) => (error.is_retryable(), error.outcome()),
    Self::Name(_) | Self::Foreign { .. } => (false, Outcome::NotApplied),
});
