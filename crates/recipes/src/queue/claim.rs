//! The claim of an item, which gives the item back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lockkeeper_client::retry::{outlast, pause, reachable};
use lockkeeper_client::{Cleanup, Contact, ErrorCode, ExpectedNode, ZnodePath, present};

use crate::queue::commit::{Answer, Committed, Committer, Write, WriteObserver};

/// A claim that may have been made. If it was, dropping it gives the item back.
pub(super) struct Claim {
    committer: Arc<Committer<Claim>>,
    node: ZnodePath,
    /// Nodes that are created and deleted together with the claim's node, so that one consumer has all of them.
    beside: Vec<ZnodePath>,
    /// The data of its node, which differs from that of other consumers.
    mark: Bytes,
    /// Whether other nodes can have the same name.
    is_name_shared: bool,
    /// Whether a node must be deleted.
    is_made: AtomicBool,
}

pub(super) type ClaimWrite = Write<Claim>;
pub(super) type ClaimCommitted = Committed<Claim>;
pub(super) type ClaimAnswer = Answer<Claim>;

impl WriteObserver for Claim {
    fn made(&self) {
        self.is_made.store(true, Ordering::Release);
    }

    /// If the session lives on, the node may too, although no consumer has the item.
    fn in_doubt(self) {
        let client = self.committer.client.clone();
        client.tokio_runtime().clone().spawn(async move {
            loop {
                match present(client.data(&self.node).await) {
                    Ok(found) => {
                        if found.is_some_and(|(data, _)| data == self.mark) {
                            self.made();
                        }
                        // Dropping it gives the item back, and wakes a waiting consumer.
                        return;
                    }
                    Err(error) if error.is_session_expired() => return,
                    Err(_) if client.contact() == Contact::Closed => return,
                    Err(error) => outlast(&client, &error).await,
                }
            }
        });
    }
}

impl Claim {
    /// A claim that is about to be made, with this data. `is_name_shared`: whether other nodes can have the same
    /// name.
    pub(super) fn new(
        committer: &Arc<Committer<Self>>,
        node: ZnodePath,
        mark: Bytes,
        is_name_shared: bool,
    ) -> Self {
        let committer = Arc::clone(committer);
        let is_made = AtomicBool::new(false);
        Self { committer, node, beside: Vec::new(), mark, is_name_shared, is_made }
    }

    /// The same claim, together with these nodes.
    pub(super) fn with(mut self, beside: Vec<ZnodePath>) -> Self {
        self.beside = beside;
        self
    }

    pub(super) fn beside(&self) -> &[ZnodePath] {
        &self.beside
    }

    pub(super) fn node(&self) -> &ZnodePath {
        &self.node
    }

    /// Its node is gone, or about to be. Returns whether that was unknown.
    pub(super) fn over(&self) -> bool {
        self.is_made.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_over(&self) -> bool {
        !self.is_made.load(Ordering::Acquire)
    }

    /// Gives the item back in the background, and wakes a waiting consumer.
    pub(super) fn give_back(&self) {
        if !self.over() {
            return;
        }
        let (committer, node) = (Arc::clone(&self.committer), self.node.clone());
        if self.is_name_shared {
            let expected = ExpectedNode::WithData(self.mark.clone());
            committer.client.clean_up(Cleanup::IfExpected { node, expected });
            return;
        }

        let beside = self.beside.clone();
        self.committer.client.tokio_runtime().spawn(async move {
            let client = &committer.client;
            loop {
                let steps = client.transaction().delete(&node, None);
                let steps = beside.iter().fold(steps, |steps, node| steps.delete(node, None));
                match committer.commit(Write::new(steps).ringing()).await {
                    Ok(_) => return,
                    // An earlier try was applied with its ring, or others have noticed the end of the session.
                    Err(error) if error.refused() == Some((0, ErrorCode::NoNode)) => return,
                    Err(error) if error.is_session_expired() => return,
                    // The session may outlive an outage, and then no consumer would look for the item.
                    Err(error) if error.may_pass() => {
                        reachable(client).await;
                        pause().await;
                    }
                    // The node is deleted with its session at the latest, and others look then.
                    Err(_) => return client.clean_up(Cleanup::Node(node)),
                }
            }
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({})", self.node)
    }
}
