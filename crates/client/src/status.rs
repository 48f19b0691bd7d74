//! Status: the state of the connection and the session. HoldState: the state of a hold and its lease.

use lockkeeper_session::{Contact, HoldProof, Instant, LeaseState, Timing};
use lockkeeper_wire::SessionId;

/// The state of a client's connection and session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// The state of the connection.
    pub contact: Contact,
    /// The session, or [`SessionId::NONE`].
    pub session: SessionId,
    /// How many times servers were found behind what an earlier session of this client had seen, because they
    /// were wiped, restored or replaced. Transaction numbers and fencing tokens from before a rewind cannot
    /// be compared with those after it.
    pub rewinds: u64,
    /// Increases with every change, including changes that the other fields do not show.
    pub change: u64,
}

/// The state of a hold and of its session, read at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HoldState {
    /// The state of the connection; [`Contact::Closed`] as soon as the client is being closed.
    pub contact: Contact,
    /// The lease: the time until which no server can have expired the session.
    pub lease: LeaseState,
    /// How the session timeout is divided.
    pub timing: Timing,
    /// In which generation of the lease the node was proven, and whether it may be proven in a later one;
    /// `None` if the node is missing, or the servers refuse to check it.
    pub proof: Option<HoldProof>,
    /// Whether a heartbeat found the node missing.
    pub is_gone: bool,
    /// The time of this state, by the client's clock.
    pub now: Instant,
}

impl HoldState {
    /// Whether the node was proven in the current generation of the lease, and the deadline has not passed.
    pub fn is_proven(&self) -> bool {
        self.proof.is_some_and(|proof| self.lease.covers(proof, self.now))
    }
}
