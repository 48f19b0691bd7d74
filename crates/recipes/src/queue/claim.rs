//! The claim of an item: its duty to be given back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lockkeeper_client::{Cleanup, ErrorCode, ExpectedNode, ZnodePath};

use crate::queue::commit::{Answer, Committed, Committer, Duty, Write, nothing};

/// A claim that may have been made. If it was, dropping it gives the item back.
pub(super) struct Claim {
    committer: Arc<Committer<Claim>>,
    /// What is written to when it is given back, so that somebody looks.
    ring: ZnodePath,
    node: ZnodePath,
    /// What tells it from others, if its name is used again.
    mark: Option<Bytes>,
    /// Whether there is a node to delete.
    is_made: AtomicBool,
}

pub(super) type ClaimWrite = Write<Claim>;
pub(super) type ClaimCommitted = Committed<Claim>;
pub(super) type ClaimAnswer = Answer<Claim>;

impl Duty for Claim {
    fn made(&self) {
        self.is_made.store(true, Ordering::Release);
    }
}

impl Claim {
    /// One that is about to be made. `mark`: its data, if its name is used again and that is not.
    pub(super) fn new(
        committer: &Arc<Committer<Self>>,
        ring: &ZnodePath,
        node: ZnodePath,
        mark: Option<Bytes>,
    ) -> Self {
        let (committer, ring) = (Arc::clone(committer), ring.clone());
        Self { committer, ring, node, mark, is_made: AtomicBool::new(false) }
    }

    pub(super) fn node(&self) -> &ZnodePath {
        &self.node
    }

    /// Its node is gone, or about to go. Says whether that was not known.
    pub(super) fn over(&self) -> bool {
        self.is_made.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_over(&self) -> bool {
        !self.is_made.load(Ordering::Acquire)
    }

    /// Gives the item back in the background, and wakes whoever waits for one.
    pub(super) fn give_back(&self) {
        if !self.over() {
            return;
        }
        let (committer, node) = (Arc::clone(&self.committer), self.node.clone());
        if let Some(mark) = self.mark.clone() {
            let expected = ExpectedNode::WithData(mark);
            committer.client.clean_up(Cleanup::IfExpected { node, expected });
            return;
        }
        let steps = committer.client.transaction().delete(&node, None);
        let steps = steps.set_data(&self.ring, nothing(), None);
        self.committer.client.tokio_runtime().spawn(async move {
            match committer.commit(Write { steps, claim: None }).await {
                Ok(_) => {}
                Err(error) if error.refused() == Some((0, ErrorCode::NoNode)) => {}
                // It goes with its session at the latest, and others look then.
                Err(_) => committer.client.clean_up(Cleanup::Node(node)),
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
