//! What can go wrong with partitions.

use lockkeeper_client::{Error, Outcome, PathError, TransactionError, ZnodePath, impl_failure};
use lockkeeper_locks::{AcquireError, BuildError, OwnerInfo};

use crate::group::GroupError;
use crate::watch::PresenceError;

/// Why items cannot be shared, or one of them cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionsError {
    /// The path is invalid.
    #[error("{0}; partitions are named like /crawl")]
    Path(#[from] PathError),
    /// It is `/`, or `/zookeeper` or below it, where the server keeps what is its own.
    #[error("{0} cannot have partitions; name a path of its own for them, like /crawl")]
    Reserved(ZnodePath),
    /// The weight is not from 1 to 100.
    #[error("a member cannot have the weight {0}; weights are from 1 to 100")]
    Weight(u32),
    /// No node can stand for an item.
    #[error("cannot share the item {item:.40?}: {source}")]
    Item {
        /// The item.
        item: String,
        /// Why not.
        source: BuildError,
    },
    /// The member cannot join, or be seen by others any more.
    #[error("cannot be a member: {0}")]
    Join(GroupError),
    /// The members cannot be seen, or not any more. Nothing is assigned from then on, and what this member has is
    /// [moving](crate::Assignment::moving).
    #[error("cannot see the members: {0}")]
    View(GroupError),
    /// Another program is the member of this name. The name is waited for all the same.
    #[error("cannot be a member: {source}{}", program_of(owner.as_deref()))]
    Taken {
        /// The program that has the name, if it says so.
        owner: Option<Box<OwnerInfo>>,
        /// The member's node, and its session.
        source: PresenceError,
    },
    /// An item cannot be looked for, or taken. It is tried again after a second.
    #[error("cannot take the item {item:?}: {source}")]
    Take {
        /// The item.
        item: String,
        /// Why not.
        source: TakeError,
    },
    /// Nothing acts for the member any more: the runtime in which its client was connected has ended.
    #[error(
        "nothing acts for the member at {path} any more, as the runtime in which its client was connected has ended; \
         keep that running"
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

/// A program, at the end of a message.
fn program_of(owner: Option<&OwnerInfo>) -> String {
    owner.map(|owner| format!(" (it is {owner})")).unwrap_or_default()
}
