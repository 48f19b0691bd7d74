//! Whether a lock is held: a pure function of the session's state.

use std::fmt;

use lockkeeper_client::{Contact, HoldProof, HoldState, Instant, SessionId};

use crate::error::LossReason;

/// Whether a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderState {
    /// The lock is held.
    Held,
    /// The lock is held, but the connection is lost. Unless it is restored in time, the lock will be lost or in
    /// jeopardy.
    Suspect {
        /// The deadline.
        until: Instant,
    },
    /// The deadline has passed, and it is unknown whether the lock is still held. Occurs only if
    /// [allowed](crate::Guard::allow_jeopardy). No work may be done under the lock. It is held again, with the
    /// same token, when the servers have proven that its node has existed all the time. Otherwise it is lost.
    Jeopardy,
    /// The lock is no longer held. This guard never holds it again.
    Lost(LossReason),
}

impl fmt::Display for HolderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Suspect { until } => write!(f, "held without a connection until {until}"),
            Self::Jeopardy => f.write_str("in jeopardy"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
        }
    }
}

impl HolderState {
    pub(super) fn of(lease: Result<(Instant, Contact), Unheld>) -> Self {
        match lease {
            Err(Unheld::Lost(reason)) => Self::Lost(reason),
            Err(Unheld::Jeopardy) => Self::Jeopardy,
            Ok((_, Contact::Connected)) => Self::Held,
            Ok((until, _)) => Self::Suspect { until },
        }
    }
}

/// Why a lock is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheld {
    Jeopardy,
    Lost(LossReason),
}

/// Returns the deadline and the contact of a holder whose node belongs to `session`, or why the lock is not
/// held. `deletion`: the reason to report if a node is gone.
pub(super) fn judge(
    seen: &HoldState,
    session: SessionId,
    deletion: Option<LossReason>,
) -> Result<(Instant, Contact), Unheld> {
    if seen.contact == Contact::Closed {
        return Err(Unheld::Lost(LossReason::ClientClosed));
    }
    if seen.lease.session != session {
        return Err(Unheld::Lost(LossReason::SessionExpired));
    }
    if let Some(deletion) = deletion {
        return Err(Unheld::Lost(deletion));
    }

    if seen.is_proven()
        && let Some(deadline) = seen.lease.deadline
    {
        return Ok((deadline, seen.contact));
    }

    Err(unproven([seen.proof]))
}

/// Why a lock with these proofs of its nodes is no longer held. None of the nodes is gone.
pub(super) fn unproven(proofs: impl IntoIterator<Item = Option<HoldProof>>) -> Unheld {
    let mut rides_out = true;
    for proof in proofs {
        match proof {
            Some(proof) => rides_out &= proof.rides_out,
            // The node is no longer proven, although it is not gone.
            None => return Unheld::Lost(LossReason::CheckRefused),
        }
    }

    match rides_out {
        true => Unheld::Jeopardy,
        false => Unheld::Lost(LossReason::DeadlinePassed),
    }
}
