//! Errors of partitions.

use lockkeeper_client::{Error, Outcome, PathError, TransactionError, ZnodePath, impl_failure};
use lockkeeper_locks::{AcquireError, BuildError, OwnerInfo};

use crate::group::GroupError;
use crate::watch::PresenceError;

/// Why items cannot be shared, or one of them cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionsError {
    /// The path is invalid.
    #[error("{0}; the path of partitions looks like /crawl")]
    Path(#[from] PathError),
    /// The path is `/`, or `/zookeeper` or below it, which the server uses itself.
    #[error("{0} cannot be used for partitions; use another path, such as /crawl")]
    Reserved(ZnodePath),
    /// The weight is not from 1 to 100.
    #[error("the weight {0} is not from 1 to 100")]
    Weight(u32),
    /// The item is not valid as the name of a node.
    #[error("cannot share the item {item:.40?}: {source}")]
    Item {
        /// The item.
        item: String,
        /// The cause.
        source: BuildError,
    },
    /// The member cannot join, or others cannot see it any more.
    #[error("cannot be a member: {0}")]
    Join(GroupError),
    /// The members cannot be watched, or no longer. No items are assigned from then on, and this member's items are
    /// [moving](crate::Assignment::moving).
    #[error("cannot watch the members: {0}")]
    View(GroupError),
    /// Another program is the member of this name. The member still waits for the name.
    #[error("cannot be a member: {source}{}", program_of(owner.as_deref()))]
    Taken {
        /// The program that has the name, if known.
        owner: Option<Box<OwnerInfo>>,
        /// The member's node, and its session.
        source: PresenceError,
    },
    /// An item cannot be read or taken. It is tried again after a second.
    #[error("cannot take the item {item:?}: {source}")]
    Take {
        /// The item.
        item: String,
        /// The cause.
        source: TakeError,
    },
    /// The member's task has ended with the runtime in which its client was connected.
    #[error(
        "the task of the member at {path} has ended with the runtime in which its client was connected; \
         keep that runtime running"
    )]
    Stopped {
        /// The partitions.
        path: ZnodePath,
    },
    /// The member has left.
    #[error("the member has left {0}, and gets no items; join again")]
    Left(ZnodePath),
}

/// Why an item cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The node of the item is refused.
    #[error(transparent)]
    Refused(#[from] TransactionError),
    /// The lease is not good enough.
    #[error(transparent)]
    Grant(#[from] AcquireError),
}

impl_failure!(TakeError {
    Self::Request(error) => (error.is_retryable(), error.outcome()),
    Self::Refused(error) => (error.is_retryable(), error.outcome()),
    Self::Grant(error) => (error.is_retryable(), error.outcome()),
});

impl_failure!(PartitionsError {
    Self::Join(error) => (error.is_retryable(), error.outcome()),
    // The other program may end.
    Self::Taken { .. } | Self::Take { .. } => (true, Outcome::NotApplied),
    _ => (false, Outcome::NotApplied),
});

/// A program, for the end of a message.
fn program_of(owner: Option<&OwnerInfo>) -> String {
    owner.map(|owner| format!(" (it is {owner})")).unwrap_or_default()
}
