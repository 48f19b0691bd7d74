//! The node of an item, which deletes itself.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lockkeeper_client::{Cleanup, Client, ExpectedNode, Reply, SessionId, ZnodePath};

/// The node of an item, which may have been created. Dropping this deletes the node.
#[derive(Debug)]
pub(super) struct ItemNode {
    client: Client,
    node: ZnodePath,
    session: SessionId,
    /// Its data, which is unique.
    data: Bytes,
    is_over: AtomicBool,
}

impl ItemNode {
    /// A node to be created in this session, with data that no other node of this name has.
    pub(super) fn new(client: &Client, node: ZnodePath, session: SessionId, data: Bytes) -> Self {
        Self { client: client.clone(), node, session, data, is_over: AtomicBool::new(false) }
    }

    pub(super) fn node(&self) -> &ZnodePath {
        &self.node
    }

    pub(super) fn data(&self) -> &Bytes {
        &self.data
    }

    /// The node was not created, or is gone: nothing must be deleted.
    pub(super) fn over(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Deletes the node, retrying over lost connections. `None` if there is nothing to delete.
    pub(super) fn give_back(&self) -> Option<Reply<()>> {
        let was_over = self.is_over.swap(true, Ordering::AcqRel);
        // With its session, the node is gone.
        if was_over || self.client.session_id() != self.session {
            return None;
        }
        let (node, expected) = (self.node.clone(), ExpectedNode::WithData(self.data.clone()));
        Some(self.client.clean_up_confirmed(Cleanup::IfExpected { node, expected }))
    }
}

impl Drop for ItemNode {
    fn drop(&mut self) {
        drop(self.give_back());
    }
}
