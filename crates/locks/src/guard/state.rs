//! Whether a lock is held: a pure function of the session's state.

use std::fmt;

use lockkeeper_client::{Contact, HoldProof, HoldState, Instant, SessionId};

use crate::error::LossReason;

/// Whether a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Held.
    Held,
    /// Held, without a connection. Unless one comes back in time, it will be lost or in jeopardy.
    Suspect {
        /// The deadline.
        until: Instant,
    },
    /// Only where it [is allowed](crate::Guard::allow_jeopardy): the deadline has passed, and it is
    /// unknown whether the lock is still held. Nothing may be done under it. It is held again, with the
    /// same token, when the servers have proven that its node existed all the time. Otherwise it is lost.
    Jeopardy,
    /// Not held any more. This guard never holds the lock again.
    Lost(LossReason),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Suspect { until } => write!(f, "held without a connection until {until}"),
            Self::Jeopardy => f.write_str("in jeopardy"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
        }
    }
}

impl State {
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

/// The deadline and the contact of a holder whose node belongs to `session`, or why the lock is not
/// held. `deletion` is the reason to report if a node is gone.
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

/// Why a lock is not held any more whose nodes have these proofs, with none gone.
pub(super) fn unproven(proofs: impl IntoIterator<Item = Option<HoldProof>>) -> Unheld {
    let mut rides_out = true;
    for proof in proofs {
        match proof {
            Some(proof) => rides_out &= proof.rides_out,
            // It is proven no more, although it is not gone.
            None => return Unheld::Lost(LossReason::CheckRefused),
        }
    }

    match rides_out {
        true => Unheld::Jeopardy,
        false => Unheld::Lost(LossReason::DeadlinePassed),
    }
}
