//! How a lock stands with its holder: a pure function of a look at the session.

use std::fmt;

use lockkeeper_client::{Contact, HoldState, Instant, SessionId};

use crate::error::LossReason;

/// How a lock stands with its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Held.
    Held,
    /// Held, but there is no connection: unless one comes back, it will be lost.
    Suspect {
        /// When it will be lost.
        until: Instant,
    },
    /// Not held any more, and never again by this guard.
    Lost(LossReason),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Suspect { until } => write!(f, "held without a connection until {until}"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
        }
    }
}

impl State {
    pub(super) fn of(lease: Result<(Instant, Contact), LossReason>) -> Self {
        match lease {
            Err(reason) => Self::Lost(reason),
            Ok((_, Contact::Connected)) => Self::Held,
            Ok((until, _)) => Self::Suspect { until },
        }
    }
}

/// The deadline and the contact of a holder whose node is of this session and was granted in this
/// generation of the lease, as a look at the session shows them; or what has been lost. `deletion`:
/// what it means that a node is gone, if one is.
pub(super) fn judge(
    seen: &HoldState,
    session: SessionId,
    generation: u64,
    deletion: Option<LossReason>,
) -> Result<(Instant, Contact), LossReason> {
    if seen.contact == Contact::Closed {
        return Err(LossReason::ClientClosed);
    }
    if seen.lease.session != session {
        return Err(LossReason::SessionExpired);
    }
    if let Some(deletion) = deletion {
        return Err(deletion);
    }
    let unbroken = seen.lease.generation == generation;
    let deadline = seen.lease.deadline.filter(|deadline| unbroken && *deadline > seen.now);
    deadline.map(|deadline| (deadline, seen.contact)).ok_or(LossReason::DeadlinePassed)
}
