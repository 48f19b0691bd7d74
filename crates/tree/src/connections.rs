//! The state of each connection.

use std::net::IpAddr;

use lockkeeper_wire::SessionId;

use crate::acl::Identity;
use crate::auth;
use crate::config::Now;
use crate::hash::HashMap;
use crate::output::{CloseReason, ConnectionId};
use crate::rearming::Rearming;

/// The maximum number of identities of a connection, including its address and certificate. `auth` in an
/// access control list stands for all of them, and every permission check looks up each.
pub(crate) const MAX_IDENTITIES: usize = 32;

/// The maximum total length of the identities of a connection, in bytes. A digest is a user name plus 29
/// bytes; the subject of a certificate has a few hundred bytes.
pub(crate) const MAX_IDENTITY_BYTES: usize = 8 * 1024;

/// An open connection.
pub(crate) struct Connection {
    pub(crate) peer: Option<IpAddr>,
    /// `None` until the handshake.
    pub(crate) session: Option<SessionId>,
    /// Whether it may only resume sessions.
    pub(crate) only_resumes: bool,
    /// The address first, then the identities that the client has proven.
    pub(crate) identities: Vec<Identity>,
    /// The rest of a long request. Its frame is handled next.
    pub(crate) rearming: Option<Box<Rearming>>,
}

impl Connection {
    pub(crate) fn new(peer: Option<IpAddr>, subject: Option<String>) -> Self {
        let address = peer.map(auth::by_address).into_iter();
        let identities = address.chain(subject.map(auth::by_certificate)).collect();
        Self { peer, session: None, only_resumes: false, identities, rearming: None }
    }

    /// Adds an identity that the client has proven, up to the limit.
    pub(crate) fn add_identity(&mut self, identity: Identity) -> Result<(), CloseReason> {
        if self.identities.contains(&identity) {
            return Ok(());
        }
        if self.identities.len() >= MAX_IDENTITIES {
            return Err(CloseReason::TooManyIdentities { max: MAX_IDENTITIES });
        }
        self.identities.push(identity);
        self.check_identities()
    }

    /// Fails if the total length of the identities is above the limit.
    pub(crate) fn check_identities(&self) -> Result<(), CloseReason> {
        let bytes = self.identities.iter().map(|identity| identity.id.len()).sum();
        match bytes <= MAX_IDENTITY_BYTES {
            true => Ok(()),
            false => Err(CloseReason::IdentitiesTooLong { bytes, max: MAX_IDENTITY_BYTES }),
        }
    }

    /// The memory use of the identities.
    pub(crate) fn identity_bytes(&self) -> usize {
        self.identities.iter().map(Identity::weight).sum()
    }
}

/// The connection and the session of a request, and its time of arrival.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext {
    pub(crate) now: Now,
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
}

/// The open connections. Calls for other connections are ignored, because the server may close a connection
/// while frames of it are still in flight.
pub(crate) type Connections = HashMap<ConnectionId, Connection>;
