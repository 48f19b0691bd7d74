//! The duty to delete an ephemeral node, from before its creation.

use bytes::Bytes;
use lockkeeper_client::{Cleanup, Client, ExpectedNode, SessionId, Stat, ZnodePath};

/// An ephemeral node. It is deleted when this goes away.
///
/// It exists before the request is sent that creates the node, so whatever may come of that is deleted.
#[derive(Debug)]
pub(crate) struct AttemptNode {
    client: Client,
    cleanup: Option<Cleanup>,
    /// [`SessionId::NONE`] until it is known to be created.
    session: SessionId,
}

impl AttemptNode {
    /// One that is about to be created with this data, which no other node has, under a name that others have.
    pub(crate) fn named(client: &Client, node: ZnodePath, data: Bytes) -> Self {
        let expected = ExpectedNode::WithData(data);
        Self::new(client, Cleanup::IfExpected { node, expected })
    }

    /// One that is about to be created in this directory under a name that begins like this, as that of no other does.
    pub(crate) fn numbered(client: &Client, parent: ZnodePath, prefix: String) -> Self {
        Self::new(client, Cleanup::ByPrefix { parent, prefix })
    }

    /// One that is about to be created, under a name that no other node has.
    pub(crate) fn once(client: &Client, node: ZnodePath) -> Self {
        Self::new(client, Cleanup::Node(node))
    }

    fn new(client: &Client, cleanup: Cleanup) -> Self {
        Self { client: client.clone(), cleanup: Some(cleanup), session: SessionId::NONE }
    }

    /// It was created.
    pub(crate) fn made(&mut self, stat: &Stat) {
        self.session = stat.ephemeral_owner;
        if let Some(Cleanup::IfExpected { expected, .. }) = &mut self.cleanup {
            *expected = ExpectedNode::CreatedBy(stat.czxid);
        }
    }

    /// It has this name, of which the beginning was known.
    pub(crate) fn found(&mut self, node: ZnodePath) {
        if self.cleanup.is_some() {
            self.cleanup = Some(Cleanup::Node(node));
        }
    }

    /// It was not created, is deleted, or another one sees to that.
    pub(crate) fn gone(&mut self) {
        self.cleanup = None;
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }
}

impl Drop for AttemptNode {
    fn drop(&mut self) {
        // Those of other sessions went with them.
        let lives_on = [SessionId::NONE, self.client.session_id()].contains(&self.session);
        if let Some(cleanup) = self.cleanup.take().filter(|_| lives_on) {
            self.client.clean_up(cleanup);
        }
    }
}
