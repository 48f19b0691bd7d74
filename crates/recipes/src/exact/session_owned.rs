//! An ephemeral node of one session, from before its creation to its deletion.

use bytes::Bytes;
use lockkeeper_client::{Client, CreateMode, Error, Outcome, SessionId, ZnodePath};

use crate::exact::attempt_node::AttemptNode;

/// An ephemeral node of one session. Dropping this deletes the node.
#[derive(Debug)]
pub(crate) struct SessionOwned {
    client: Client,
    path: ZnodePath,
    node: AttemptNode,
}

impl SessionOwned {
    /// A node to be created under a name that no other node has.
    pub(crate) fn new(client: &Client, path: ZnodePath) -> Self {
        let node = AttemptNode::once(client, path.clone());
        Self { client: client.clone(), path, node }
    }

    /// Creates it. After a failure, use a new node with another name.
    pub(crate) async fn create(&mut self, data: Bytes) -> Result<(), Error> {
        match self.client.create(&self.path, data, CreateMode::Ephemeral).await {
            Ok(created) => {
                self.node.made(&created.stat);
                Ok(())
            }
            Err(error) => {
                if error.outcome() == Outcome::NotApplied {
                    self.node.gone();
                }
                Err(error)
            }
        }
    }

    pub(crate) fn path(&self) -> &ZnodePath {
        &self.path
    }

    pub(crate) fn session(&self) -> SessionId {
        self.node.session()
    }
}
