//! What can go wrong with barriers and latches.

use std::fmt;

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{
    Client, Error, Failure, Outcome, PathError, TransactionError, ZnodePath, impl_failure,
};
use lockkeeper_locks::{AcquireError, BuildError, LossReason};

use crate::exact::WriteError;

/// Why a barrier or a latch cannot be used, or what it is for has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// It is no path.
    #[error("{0}; a barrier is named like /steps/reduce")]
    Path(#[from] PathError),
    /// It is `/`, or `/zookeeper` or below it, where the server keeps what is its own.
    #[error("{0} cannot be a barrier; name a path of its own for it, like /steps/reduce")]
    Reserved(ZnodePath),
    /// A barrier cannot be there, as no lock can.
    #[error("{0}")]
    Place(#[from] BuildError),
    /// No node can stand for a party of this name.
    #[error("{name:?} cannot be the name of a party, which becomes that of a node: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is not said how many parties there are, or who they are, or there are none.
    #[error("a barrier needs at least one party: say how many there are, or name them")]
    Nobody,
    /// The barrier's parties are declared, and this is none of them.
    #[error("{name:?} is none of the parties of {path}: {}", .parties.join(", "))]
    NotDeclared {
        /// The barrier.
        path: ZnodePath,
        /// The name.
        name: String,
        /// The parties.
        parties: Vec<String>,
    },
    /// There is something else at the path, or a layout that this version does not know.
    #[error(
        "{path} has {found} where a {kind} has its layout; use another path. Nothing was changed"
    )]
    Foreign {
        /// The path.
        path: ZnodePath,
        /// What should be there.
        kind: &'static str,
        /// What is there.
        found: String,
    },
    /// The barrier is closed by a [guard](crate::Barrier::close_while_held), and opens when that ends.
    #[error(
        "{path} is already closed by a guard, and opens when that guard ends; close it again after that, or open \
         it first"
    )]
    ClosedByGuard {
        /// The barrier.
        path: ZnodePath,
    },
    /// The latch was made with another count.
    #[error(
        "{path} counts down from {found}, and not from {given}; all programs have to say the same"
    )]
    OtherCount {
        /// The latch.
        path: ZnodePath,
        /// What it counts down from.
        found: u64,
        /// What this program says.
        given: u64,
    },
    /// Somebody has closed the barrier already.
    #[error("{path} is closed already")]
    AlreadyClosed {
        /// The barrier.
        path: ZnodePath,
    },
    /// The parties have not all come in time. This one does not wait any more.
    #[error("not all parties of {path} have come in time: {missing}{}", Others(.others))]
    TimedOut {
        /// The barrier.
        path: ZnodePath,
        /// Who has not come.
        missing: Missing,
        /// Who waits there for other parties: their programs name others, or another number.
        others: Vec<String>,
    },
    /// Parties that were inside have died, or left without saying so.
    #[error("the round at {path} has failed: {} died inside", .died.join(", "))]
    PartyDied {
        /// The barrier.
        path: ZnodePath,
        /// Their names.
        died: Vec<String>,
    },
    /// This party is not inside any more, as its session is over or somebody has deleted its node.
    #[error("party {name} of {path} is not inside any more: {reason}")]
    Lost {
        /// The barrier.
        path: ZnodePath,
        /// The party.
        name: String,
        /// Why.
        reason: LossReason,
    },
    /// A wait at the barrier, or an entry or a closing, has failed: no server can be reached, for example.
    #[error("the wait at {path} has ended: {source}")]
    Enter {
        /// The barrier.
        path: ZnodePath,
        /// Why not.
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
    /// A write may have been applied: the session ended, no server could be reached for as long as it lasts,
    /// or somebody deleted the outcome marker, before that was known.
    #[error(
        "it is unknown whether {path} was changed, as the session ended, no server could be reached, or the \
         write's outcome marker was deleted, before an answer came"
    )]
    Unknown {
        /// The barrier.
        path: ZnodePath,
        /// The end.
        source: TransactionError,
    },
    /// Servers seem to close the connection whenever a write comes that is as long. It was given up.
    #[error(
        "{path} was not changed: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         use fewer parties, or shorter names"
    )]
    TooLong {
        /// The barrier.
        path: ZnodePath,
        /// How long the data of the write was, in bytes.
        bytes: usize,
        /// How often it was tried.
        tries: u32,
    },
    /// A request failed.
    #[error("cannot use {path}: {source}")]
    Client {
        /// The barrier.
        path: ZnodePath,
        /// What failed.
        source: Error,
    },
}

impl_failure!(BarrierError {
    Self::Unknown { .. } => (true, Outcome::Unknown),
    Self::Lost { .. } => (false, Outcome::Unknown),
    // A round may have opened with the party, or a barrier be closed.
    Self::Enter { source, .. } => (source.is_retryable(), Outcome::Unknown),
    Self::Client { source, .. } | Self::Refused { source: TransactionError::Request(source), .. } => {
        (source.is_retryable() || source.is_session_expired(), Outcome::NotApplied)
    },
    Self::TimedOut { .. } | Self::AlreadyClosed { .. } | Self::ClosedByGuard { .. } => (true, Outcome::NotApplied),
    _ => (false, Outcome::NotApplied),
});

impl BarrierError {
    /// The path, if a barrier can be there.
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

    /// Whether it passes by waiting, and nothing was done.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::Enter { .. } | Self::Client { .. } | Self::Refused { .. })
            && self.is_retryable()
    }
}

/// Who has not come to a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// These, if the barrier's parties [are declared](crate::DoubleBarrierBuilder::names).
    Names(Vec<String>),
    /// So many.
    Count(usize),
    /// No server could be asked.
    Unknown,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) if names.is_empty() => f.write_str("nobody is missing"),
            Self::Names(names) => write!(f, "{} missing", names.join(", ")),
            Self::Count(count) => write!(f, "{count} missing"),
            Self::Unknown => f.write_str("no server could be asked who is missing"),
        }
    }
}

/// Those who wait for other parties, in words.
struct Others<'a>(&'a [String]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            others => {
                let others = others.join(", ");
                write!(
                    f,
                    ". {others} waited there with another list or number of parties; it must be the same in all programs"
                )
            }
        }
    }
}
