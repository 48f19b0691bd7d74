//! Why it is not known that something is done once.

use std::time::Duration;

use lockkeeper_client::{Error, Outcome, TransactionError, ZnodePath, impl_failure};

use crate::error::{BuildError, LossReason};

/// Why it is not certain that something was begun once, or that its end is recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The lock is lost.
    #[error("{path} is lost: {reason}")]
    Lost {
        /// The lock.
        path: ZnodePath,
        /// Why it is lost.
        reason: LossReason,
    },
    /// The guard is of another lock than the records.
    #[error("the guard is of {guard}, and the records are of {lock}: use the guard of that lock")]
    OtherLock {
        /// The lock of the records.
        lock: ZnodePath,
        /// The lock of the guard.
        guard: ZnodePath,
    },
    /// The key is longer than servers take as a name.
    #[error(transparent)]
    Key(#[from] BuildError),
    /// The tick lies ahead of the servers' time. Once it has begun, no tick before it would.
    #[error(
        "the tick is {by:?} ahead of the servers' clock: this machine's clock or theirs is wrong, and \
         until then no other tick would run"
    )]
    Ahead {
        /// How far.
        by: Duration,
    },
    /// Where a record should be, there is something else.
    #[error("{node} has something else in it than a record; delete it, or use another lock")]
    Foreign {
        /// The node.
        node: ZnodePath,
    },
    /// The record is gone, or another call has written it, although the lock was held.
    #[error("{node} was deleted or written by another client: the end was not recorded")]
    Replaced {
        /// The node of the record.
        node: ZnodePath,
    },
    /// A read failed for good.
    #[error("cannot read the records: {0}")]
    Read(#[from] Error),
    /// A write failed for good.
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
