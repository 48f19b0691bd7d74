//! Status: the state of the connection and the session. HoldState: the state of a hold and its lease.

use lockkeeper_session::{Contact, HoldProof, Instant, LeaseState, Timing};
use lockkeeper_wire::SessionId;

/// The state of a client's connection and session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// Whether there is a connection.
    pub contact: Contact,
    /// The session, or [`SessionId::NONE`].
    pub session: SessionId,
    /// How often servers were behind what an earlier session of this client had seen, because they were
    /// wiped or replaced. Transaction numbers and tokens from before a rewind cannot be compared with
    /// those after it.
    pub rewinds: u64,
    /// Grows with every change, also with those that the other fields do not show.
    pub change: u64,
}

/// The state of a hold and of its session, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HoldState {
    /// Whether there is a connection; [`Contact::Closed`] from the call on that closes the client.
    pub contact: Contact,
    /// Until when no server can have expired the session.
    pub lease: LeaseState,
    /// How the session timeout is divided.
    pub timing: Timing,
    /// In which generation of the lease the node was proven, and whether it may be proven in a later
    /// one; `None` if it was found missing, or the servers refuse to check it.
    pub proof: Option<HoldProof>,
    /// Whether a heartbeat found the node missing.
    pub is_gone: bool,
    /// That moment, by the clock that leases are measured by.
    pub now: Instant,
}

impl HoldState {
    /// Whether the node was proven in the lease as it is, and its deadline has not passed.
    pub fn is_proven(&self) -> bool {
        self.proof.is_some_and(|proof| self.lease.covers(proof, self.now))
    }
}
