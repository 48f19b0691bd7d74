//! Deletes an ephemeral node that may have been created.

use bytes::Bytes;
use lockkeeper_client::{Cleanup, Client, ExpectedNode, SessionId, Stat, ZnodePath};

/// An ephemeral node. Dropping this deletes the node.
///
/// It exists before the request that creates the node is sent, so the node is deleted whatever the outcome of the
/// request.
#[derive(Debug)]
pub(crate) struct AttemptNode {
    client: Client,
    cleanup: Option<Cleanup>,
    /// [`SessionId::NONE`] until the node is known to exist.
    session: SessionId,
}

impl AttemptNode {
    /// A node to be created with this data, which no other node has, under a name that other nodes may have.
    pub(crate) fn named(client: &Client, node: ZnodePath, data: Bytes) -> Self {
        let expected = ExpectedNode::WithData(data);
        Self::new(client, Cleanup::IfExpected { node, expected })
    }

    /// A node to be created in this directory, under a name with this prefix, which no other name has.
    pub(crate) fn numbered(client: &Client, parent: ZnodePath, prefix: String) -> Self {
        Self::new(client, Cleanup::ByPrefix { parent, prefix })
    }

    /// A node to be created under a name that no other node has.
    pub(crate) fn once(client: &Client, node: ZnodePath) -> Self {
        Self::new(client, Cleanup::Node(node))
    }

    fn new(client: &Client, cleanup: Cleanup) -> Self {
        Self { client: client.clone(), cleanup: Some(cleanup), session: SessionId::NONE }
    }

    /// Records that the node was created.
    pub(crate) fn made(&mut self, stat: &Stat) {
        self.session = stat.ephemeral_owner;
        if let Some(Cleanup::IfExpected { expected, .. }) = &mut self.cleanup {
            *expected = ExpectedNode::CreatedBy(stat.czxid);
        }
    }

    /// Records the full name of a node whose prefix was known.
    pub(crate) fn found(&mut self, node: ZnodePath) {
        if self.cleanup.is_some() {
            self.cleanup = Some(Cleanup::Node(node));
        }
    }

    /// Records that the node was not created, is deleted, or is deleted by another owner.
    pub(crate) fn gone(&mut self) {
        self.cleanup = None;
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }
}

impl Drop for AttemptNode {
    fn drop(&mut self) {
        // Nodes of other sessions are gone with them.
        let lives_on = [SessionId::NONE, self.client.session_id()].contains(&self.session);
        if let Some(cleanup) = self.cleanup.take().filter(|_| lives_on) {
            self.client.clean_up(cleanup);
        }
    }
}
