//! An ephemeral node of one session, from before its creation to its deletion.

use bytes::Bytes;
use lockkeeper_client::{Cleanup, Client, CreateMode, Error, Outcome, SessionId, ZnodePath};

/// An ephemeral node of one session. It is deleted when this goes away.
///
/// It exists before the request is sent that creates the node, so whatever may come of that is deleted.
#[derive(Debug)]
pub(crate) struct SessionOwned {
    client: Client,
    path: ZnodePath,
    /// [`SessionId::NONE`] until it is known to be created.
    session: SessionId,
    /// Whether there may be a node.
    may_exist: bool,
}

impl SessionOwned {
    /// One that is about to be created, under a name that no other node has.
    pub(crate) fn new(client: &Client, path: ZnodePath) -> Self {
        Self { client: client.clone(), path, session: SessionId::NONE, may_exist: true }
    }

    /// Creates it. When that fails, another one needs another name.
    pub(crate) async fn create(&mut self, data: Bytes) -> Result<(), Error> {
        match self.client.create(&self.path, data, CreateMode::Ephemeral).await {
            Ok(created) => {
                self.session = created.stat.ephemeral_owner;
                Ok(())
            }
            Err(error) => {
                self.may_exist = error.outcome() != Outcome::NotApplied;
                Err(error)
            }
        }
    }

    pub(crate) fn path(&self) -> &ZnodePath {
        &self.path
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }
}

impl Drop for SessionOwned {
    fn drop(&mut self) {
        // Those of other sessions went with them.
        let lives_on = [SessionId::NONE, self.client.session_id()].contains(&self.session);
        if self.may_exist && lives_on {
            self.client.clean_up(Cleanup::Node(self.path.clone()));
        }
    }
}
