//! The errors of work that is done once.

use std::time::Duration;

use lockkeeper_client::{Error, Outcome, TransactionError, ZnodePath, impl_failure};

use crate::error::{BuildError, LossReason};

/// Why work was not started, or its end may not be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The lock is lost.
    #[error("{path} is lost: {reason}")]
    Lost {
        /// The lock.
        path: ZnodePath,
        /// The reason of the loss.
        reason: LossReason,
    },
    /// The guard belongs to a different lock than the records.
    #[error("the guard is for {guard}, but the records are for {lock}; use the guard of that lock")]
    OtherLock {
        /// The lock of the records.
        lock: ZnodePath,
        /// The lock of the guard.
        guard: ZnodePath,
    },
    /// The key is longer than servers accept as a name.
    #[error(transparent)]
    Key(#[from] BuildError),
    /// The tick lies ahead of the servers' time. After it has started, no earlier tick could start.
    #[error(
        "the tick is {by:?} ahead of the servers' clock: this machine's clock or theirs is wrong, and \
         no other tick could run until then"
    )]
    Ahead {
        /// How far it is ahead.
        by: Duration,
    },
    /// The node for a record contains other data.
    #[error("{node} contains data that is not a record; delete it, or use another lock")]
    Foreign {
        /// The node.
        node: ZnodePath,
    },
    /// The record is gone, or was written by another call, although the lock was held.
    #[error("{node} was deleted or written by another client: the end was not recorded")]
    Replaced {
        /// The node of the record.
        node: ZnodePath,
    },
    /// A read failed with a permanent error.
    #[error("cannot read the records: {0}")]
    Read(#[from] Error),
    /// A write failed with a permanent error.
    #[error("cannot write the record: {0}")]
    Write(#[from] TransactionError),
}

impl_failure!(OnceError {
    Self::Read(error) => (error.is_retryable(), Outcome::NotApplied),
    Self::Write(error) => (error.is_retryable(), error.outcome()),
    Self::Lost { .. } => (false, Outcome::Unknown),
    Self::OtherLock { .. }
    | Self::Key(_)
    | Self::Ahead { .. }
    | Self::Foreign { .. }
    | Self::Replaced { .. } => (false, Outcome::NotApplied),
});
