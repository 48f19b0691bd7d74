//! Errors of barriers and latches.

use std::fmt;

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{
    Client, Error, Failure, Outcome, PathError, TransactionError, ZnodePath, impl_failure,
};
use lockkeeper_locks::{AcquireError, BuildError, LossReason};

use crate::exact::WriteError;

/// An error of a barrier or a latch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The text is not a path.
    #[error("{0}; the path of a barrier looks like /steps/reduce")]
    Path(#[from] PathError),
    /// The path is `/`, or `/zookeeper` or below it, which the server uses itself.
    #[error("{0} cannot be used for a barrier; use another path, such as /steps/reduce")]
    Reserved(ZnodePath),
    /// The path is not valid for a barrier, for the same reasons as for a lock.
    #[error("{0}")]
    Place(#[from] BuildError),
    /// The name is not valid for a party: its node could not have this name.
    #[error("{name:?} is not a valid party name, because a node gets this name: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The number or the names of the parties are missing, or the number is 0.
    #[error("a barrier needs at least one party: give their number or their names")]
    Nobody,
    /// The barrier's parties are declared, and this name is not among them.
    #[error("{name:?} is not one of the parties of {path}: {}", .parties.join(", "))]
    NotDeclared {
        /// The barrier.
        path: ZnodePath,
        /// The name.
        name: String,
        /// The parties.
        parties: Vec<String>,
    },
    /// The path has other data, or a layout that this version does not know.
    #[error("{path} is not a {kind}: it has {found}; use another path. Nothing was changed")]
    Foreign {
        /// The path.
        path: ZnodePath,
        /// What should be there.
        kind: &'static str,
        /// What is there.
        found: String,
    },
    /// The barrier is closed by a [guard](crate::Barrier::close_while_held), and opens when that guard ends.
    #[error(
        "{path} is already closed by a guard, and opens when that guard ends; close it again after that, or open \
         it first"
    )]
    ClosedByGuard {
        /// The barrier.
        path: ZnodePath,
    },
    /// The latch was created with another count.
    #[error(
        "{path} counts down from {found} instead of {given}; all programs must use the same count"
    )]
    OtherCount {
        /// The latch.
        path: ZnodePath,
        /// What it counts down from.
        found: u64,
        /// The count of this program.
        given: u64,
    },
    /// The barrier is already closed.
    #[error("{path} is already closed")]
    AlreadyClosed {
        /// The barrier.
        path: ZnodePath,
    },
    /// Not all parties came in time. This party does not wait any longer.
    #[error("not all parties of {path} have come in time: {missing}{}", Others(.others))]
    TimedOut {
        /// The barrier.
        path: ZnodePath,
        /// The parties that have not come.
        missing: Missing,
        /// Parties that wait there for other parties: their programs declare others, or another number.
        others: Vec<String>,
    },
    /// Parties inside have died, or their programs dropped the [`Round`](crate::Round).
    #[error("the round at {path} has failed: {} died inside", .died.join(", "))]
    PartyDied {
        /// The barrier.
        path: ZnodePath,
        /// Their names.
        died: Vec<String>,
    },
    /// This party is not inside any more: its session has ended, or its node was deleted.
    #[error("party {name} of {path} is no longer inside: {reason}")]
    Lost {
        /// The barrier.
        path: ZnodePath,
        /// The party.
        name: String,
        /// Why.
        reason: LossReason,
    },
    /// A wait, an entry or a closing has failed, for example because no server can be reached.
    #[error("the wait at {path} has ended: {source}")]
    Enter {
        /// The barrier.
        path: ZnodePath,
        /// The cause.
        source: AcquireError,
    },
    /// A write was refused. Nothing of it was applied.
    #[error("cannot change {path}: {source}")]
    Refused {
        /// The barrier.
        path: ZnodePath,
        /// What was refused.
        source: TransactionError,
    },
    /// A write may have been applied: the session ended, no server could be reached for a session timeout, or the
    /// outcome marker was deleted, before the answer came.
    #[error(
        "it is unknown whether {path} was changed, as the session ended, no server could be reached, or the \
         write's outcome marker was deleted, before an answer came"
    )]
    Unknown {
        /// The barrier.
        path: ZnodePath,
        /// The error that ended the write.
        source: TransactionError,
    },
    /// The connection is lost at each attempt to send a write of this size, so the write was given up.
    #[error(
        "{path} was not changed: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         use fewer parties, or shorter names"
    )]
    TooLong {
        /// The barrier.
        path: ZnodePath,
        /// The size of the write's data, in bytes.
        bytes: usize,
        /// The number of attempts.
        tries: u32,
    },
    /// A request failed.
    #[error("cannot use {path}: {source}")]
    Client {
        /// The barrier.
        path: ZnodePath,
        /// The cause.
        source: Error,
    },
}

impl_failure!(BarrierError {
    Self::Unknown { .. } => (true, Outcome::Unknown),
    Self::Lost { .. } => (false, Outcome::Unknown),
    // A round may have opened with the party, or a barrier may be closed.
    Self::Enter { source, .. } => (source.is_retryable(), Outcome::Unknown),
    Self::Client { source, .. } | Self::Refused { source: TransactionError::Request(source), .. } => {
        (source.is_retryable() || source.is_session_expired(), Outcome::NotApplied)
    },
    Self::TimedOut { .. } | Self::AlreadyClosed { .. } | Self::ClosedByGuard { .. } => (true, Outcome::NotApplied),
    _ => (false, Outcome::NotApplied),
});

impl BarrierError {
    /// The path, if it is valid for a barrier.
    pub(super) fn check_path(client: &Client, path: &str) -> Result<ZnodePath, Self> {
        let path = ZnodePath::new(path)?;
        match client.is_own_base(&path) && !path.is_root() {
            true => Ok(path),
            false => Err(Self::Reserved(path)),
        }
    }

    pub(super) fn read(path: &ZnodePath, source: Error) -> Self {
        Self::Client { path: path.clone(), source }
    }

    pub(super) fn enter(path: &ZnodePath, source: AcquireError) -> Self {
        Self::Enter { path: path.clone(), source }
    }

    pub(super) fn write(path: &ZnodePath, error: WriteError) -> Self {
        let path = path.clone();
        match error {
            WriteError::NotApplied(source) => Self::Refused { path, source },
            WriteError::Unknown(source) => Self::Unknown { path, source },
            WriteError::TooLong(TooLong { bytes, tries }) => Self::TooLong { path, bytes, tries },
        }
    }

    /// Whether waiting resolves the error, and nothing was done.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::Enter { .. } | Self::Client { .. } | Self::Refused { .. })
            && self.is_retryable()
    }
}

/// The parties that have not come to a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// Their names, if the barrier's parties [are declared](crate::DoubleBarrierBuilder::names).
    Names(Vec<String>),
    /// Their number.
    Count(usize),
    /// No server could be asked.
    Unknown,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) if names.is_empty() => f.write_str("no party is missing"),
            Self::Names(names) => write!(f, "{} missing", names.join(", ")),
            Self::Count(count) => write!(f, "{count} missing"),
            Self::Unknown => f.write_str("no server could be asked which parties are missing"),
        }
    }
}

/// Displays the parties that wait for other parties.
struct Others<'a>(&'a [String]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            others => {
                let others = others.join(", ");
                write!(
                    f,
                    ". {others} waited there with another list or number of parties; all programs must use the same"
                )
            }
        }
    }
}
