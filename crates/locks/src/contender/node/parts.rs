//! Read access to the parts of a contender.

use bytes::Bytes;
use lockkeeper_client::{Client, Created, SessionId, ZnodePath};

use super::Contender;
use crate::error::AcquireError;
use crate::profile::Profile;

impl Contender {
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// The lock's path.
    pub(crate) fn path(&self) -> &ZnodePath {
        &self.0.settings.path
    }

    pub(crate) fn profile(&self) -> Profile {
        self.0.settings.profile
    }

    /// The data that its node was created with.
    pub(crate) fn data(&self) -> &Bytes {
        &self.0.data
    }

    pub(crate) fn node(&self) -> Option<&Created> {
        self.0.node.as_ref()
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.0.node.as_ref().map(|node| node.path.name())
    }

    /// The session that the node belongs to; zero before the node exists.
    pub(crate) fn session(&self) -> SessionId {
        self.0.node.as_ref().map_or(SessionId::NONE, |node| node.stat.ephemeral_owner)
    }

    /// The error for a node that is gone with its session.
    pub(crate) fn session_ended(&self) -> AcquireError {
        AcquireError::session_ended(&self.0.client, &self.0.settings.path)
    }
}
