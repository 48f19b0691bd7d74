//! What the server knows of each connection.

use std::net::IpAddr;

use lockkeeper_wire::SessionId;

use crate::acl::Identity;
use crate::hash::{self, HashMap};
use crate::{ConnectionId, auth};

pub(crate) struct Connection {
    pub(crate) peer: Option<IpAddr>,
    /// `None` until the handshake.
    pub(crate) session: Option<SessionId>,
    /// The address first, then what the client has proven.
    pub(crate) identities: Vec<Identity>,
}

impl Connection {
    fn new(peer: Option<IpAddr>, subject: Option<String>) -> Self {
        let address = peer.map(auth::by_address).into_iter();
        let identities = address.chain(subject.map(auth::by_certificate)).collect();
        Self { peer, session: None, identities }
    }

    pub(crate) fn add_identity(&mut self, identity: Identity) {
        if !self.identities.contains(&identity) {
            self.identities.push(identity);
        }
    }
}

/// The open connections; what the caller says of others is ignored, because the server may have
/// closed one while something of it was still on its way.
#[derive(Default)]
pub(crate) struct Connections(HashMap<ConnectionId, Connection>);

impl Connections {
    pub(crate) fn open(&mut self, id: ConnectionId, peer: Option<IpAddr>, subject: Option<String>) {
        self.0.insert(id, Connection::new(peer, subject));
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.0.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.0.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        self.0.remove(&id)
    }

    /// Who a connection has proven to be; nobody, if it is gone.
    pub(crate) fn identities(&self, id: ConnectionId) -> &[Identity] {
        self.0.get(&id).map_or(&[], |connection| &connection.identities)
    }

    /// Gives memory back that is there for more connections than there are now.
    pub(crate) fn shrink(&mut self) {
        hash::shrink(&mut self.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
