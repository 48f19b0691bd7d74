//! How a client stands with its servers, and a hold with its lease.

use lockkeeper_session::{Contact, Instant, LeaseState, Standing, Timing};
use lockkeeper_wire::SessionId;

/// How a client stands with its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// Whether there is a connection.
    pub contact: Contact,
    /// The session, or [`SessionId::NONE`].
    pub session: SessionId,
    /// How often servers were behind what an earlier session of this client had seen: they were wiped, or
    /// others have taken their place. What was remembered of transactions before, such as the highest
    /// token, says nothing about those after.
    pub rewinds: u64,
    /// Grows with every change, also with those that the other fields do not show.
    pub change: u64,
}

/// How a hold stands, all from one look at the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HoldState {
    /// Whether there is a connection.
    pub contact: Contact,
    /// Until when no server can have expired the session.
    pub lease: LeaseState,
    /// How the session timeout is divided.
    pub timing: Timing,
    /// In which generation of the lease the node was proven, and whether it may be proven in a later
    /// one; `None` if it was found missing.
    pub standing: Option<Standing>,
    /// Whether a heartbeat found the node missing.
    pub is_gone: bool,
    /// The time of the look, by the clock that leases are measured by.
    pub now: Instant,
}
