//! What the server knows of each connection.

use std::net::IpAddr;

use lockkeeper_wire::SessionId;

use crate::acl::Identity;
use crate::auth;
use crate::config::Now;
use crate::hash::HashMap;
use crate::output::{CloseReason, ConnectionId};
use crate::rearming::Rearming;

/// How many identities a connection may have, its address and certificate included. `auth` in an
/// access control list stands for all of them, and every check looks for each.
pub(crate) const MAX_IDENTITIES: usize = 32;

/// How long the identities of a connection may be together, in bytes. A digest is a user and 29 bytes,
/// and the subject of a certificate has some hundred.
pub(crate) const MAX_IDENTITY_BYTES: usize = 8 * 1024;

/// An open connection.
pub(crate) struct Connection {
    pub(crate) peer: Option<IpAddr>,
    /// `None` until the handshake.
    pub(crate) session: Option<SessionId>,
    /// Whether it may not begin a session.
    pub(crate) only_resumes: bool,
    /// The address first, then what the client has proven.
    pub(crate) identities: Vec<Identity>,
    /// What is left of a long request, whose frame is the next one.
    pub(crate) rearming: Option<Box<Rearming>>,
}

impl Connection {
    pub(crate) fn new(peer: Option<IpAddr>, subject: Option<String>) -> Self {
        let address = peer.map(auth::by_address).into_iter();
        let identities = address.chain(subject.map(auth::by_certificate)).collect();
        Self { peer, session: None, only_resumes: false, identities, rearming: None }
    }

    /// Adds an identity that the client has proven, unless it is one too many.
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

    /// Fails if the identities are too long together.
    pub(crate) fn check_identities(&self) -> Result<(), CloseReason> {
        let bytes = self.identities.iter().map(|identity| identity.id.len()).sum();
        match bytes <= MAX_IDENTITY_BYTES {
            true => Ok(()),
            false => Err(CloseReason::IdentitiesTooLong { bytes, max: MAX_IDENTITY_BYTES }),
        }
    }

    /// What its identities weigh.
    pub(crate) fn identity_bytes(&self) -> usize {
        self.identities.iter().map(Identity::weight).sum()
    }
}

/// The connection and the session of a request, and when it arrived.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext {
    pub(crate) now: Now,
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
}

/// The open connections; what the caller says of others is ignored, because the server may have
/// closed one while something of it was still on its way.
pub(crate) type Connections = HashMap<ConnectionId, Connection>;
