//! Errors of worker ids.

use lockkeeper_client::{Error, Outcome, TransactionError, ZnodePath, impl_failure};
use lockkeeper_locks::{AcquireError, BuildError, ClaimError, EnsureError};

/// Why a program cannot get a number. Nodes of the attempt are deleted, now or in the background; a reservation
/// stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerIdError {
    /// The path is not valid, for the same reasons as for a lock.
    #[error(transparent)]
    Place(#[from] BuildError),
    /// The parts of an id do not add up to 63 bits, or the time has 0 bits.
    #[error(
        "an id needs 63 bits, at least 1 of them for the time; the layout has {time} for the time, \
         {number} for the number and {sequence} for the sequence"
    )]
    Widths {
        /// The bits of the time.
        time: u32,
        /// The bits of the number.
        number: u32,
        /// The bits of the sequence.
        sequence: u32,
    },
    /// A number does not fit into its bits.
    #[error("{number} does not fit into the {bits} bits that the layout has for a number")]
    NumberTooLarge {
        /// The number.
        number: u32,
        /// The bits.
        bits: u32,
    },
    /// The range of numbers is empty.
    #[error("no numbers were given; give at least one, as in 0..1024")]
    NoNumbers,
    /// The servers' time is before the layout's epoch, or after its end.
    #[error(
        "the servers' time, {unix_ms} ms since 1970, is outside of the layout's range; use a layout with \
         another epoch or more bits for the time"
    )]
    OutOfTime {
        /// The servers' time, in milliseconds since 1970.
        unix_ms: u64,
    },
    /// The ids of each free number may have been minted far ahead of the servers' time, because the servers' clock
    /// was wrong, then or now.
    #[error(
        "{node} is reserved for {ahead_ms} ms ahead of the servers' time, and so are all free numbers: the \
         servers' clock is wrong, or was; set it, wait, or allow it with `max_ahead`"
    )]
    FarAhead {
        /// The reservation of one of the numbers.
        node: ZnodePath,
        /// The distance, in milliseconds.
        ahead_ms: u64,
    },
    /// The node of a number or its reservation has other data, or a format that this version does not know.
    #[error(
        "{node} is neither a claim to a number nor a reservation; use another path. Nothing was changed"
    )]
    Foreign {
        /// The node.
        node: ZnodePath,
    },
    /// Another program has the number by now, or another client has deleted its reservation.
    #[error(
        "{node} was changed by another program, so the number is no longer reserved; acquire another one"
    )]
    Overtaken {
        /// The reservation.
        node: ZnodePath,
    },
    /// The reservation was not written.
    #[error("cannot reserve ids in {node}: {source}")]
    Refused {
        /// The reservation.
        node: ZnodePath,
        /// What was refused.
        source: TransactionError,
    },
    /// A request failed.
    #[error("cannot read {node}: {source}")]
    Client {
        /// The node.
        node: ZnodePath,
        /// The cause.
        source: Error,
    },
    /// As for a lock.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl_failure!(WorkerIdError {
    Self::Refused { source: TransactionError::Request(source), .. } | Self::Client { source, .. } => {
        (source.is_retryable(), Outcome::NotApplied)
    },
    Self::Acquire(error) => (error.is_retryable(), error.outcome()),
    Self::FarAhead { .. } | Self::Overtaken { .. } => (true, Outcome::NotApplied),
    _ => (false, Outcome::NotApplied),
});

impl From<ClaimError> for WorkerIdError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Acquire(error) => Self::Acquire(error),
            ClaimError::Name(error) => Self::Place(error),
            ClaimError::Unseen { node, source } => Self::Client { node, source },
            ClaimError::Foreign { node } => Self::Foreign { node },
            // Not returned here: which program has the name was not requested.
            error => unreachable!("{error}"),
        }
    }
}

impl WorkerIdError {
    /// Whether no server could be reached.
    pub(super) fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Acquire(error) => matches!(error, AcquireError::Unreachable { .. }),
            Self::Client { source, .. }
            | Self::Refused { source: TransactionError::Request(source), .. } => {
                source.is_unreachable()
            }
            _ => false,
        }
    }
}

/// Why an id cannot be minted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MintError {
    /// The number is lost, or may be. Other programs may have it; their ids differ from those already minted.
    #[error("cannot mint an id, because the number is not held: {0}")]
    NotHeld(EnsureError),
    /// The reservation is used up: ids were minted too quickly, or no server could be reached. This is transient,
    /// and [`WorkerId::next`](crate::WorkerId::next) waits for more.
    #[error(
        "cannot mint before more ids are reserved: ids were minted too quickly, or no server could be reached; use \
         `next`, which waits"
    )]
    UsedUp,
    /// No more ids will be reserved.
    #[error("cannot mint ids any more: {0}")]
    Ended(WorkerIdError),
}

impl_failure!(MintError {
    Self::UsedUp => (true, Outcome::NotApplied),
    Self::NotHeld(EnsureError::Jeopardy) => (true, Outcome::NotApplied),
    _ => (false, Outcome::NotApplied),
});
