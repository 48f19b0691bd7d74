//! The claim of an item: its duty to be given back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lockkeeper_client::{Cleanup, ErrorCode, ExpectedNode, ZnodePath};

use crate::queue::commit::{Write, nothing};
use crate::queue::core::Core;

/// A claim that may have been made. If it was, dropping it gives the item back.
pub(super) struct Claim {
    core: Arc<Core>,
    node: ZnodePath,
    /// What tells it from others, if its name is used again.
    mark: Option<Bytes>,
    /// Whether there is a node to delete.
    is_made: AtomicBool,
}

impl Claim {
    /// One that is about to be made.
    pub(super) fn new(core: &Arc<Core>, node: ZnodePath) -> Self {
        Self { core: Arc::clone(core), node, mark: None, is_made: AtomicBool::new(false) }
    }

    /// One whose name is used again, with data that is not.
    pub(super) fn marked(core: &Arc<Core>, node: ZnodePath, mark: Bytes) -> Self {
        let mut claim = Self::new(core, node);
        claim.mark = Some(mark);
        claim
    }

    pub(super) fn node(&self) -> &ZnodePath {
        &self.node
    }

    pub(super) fn made(&self) {
        self.is_made.store(true, Ordering::Release);
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
        let (core, node) = (Arc::clone(&self.core), self.node.clone());
        if let Some(mark) = self.mark.clone() {
            let expected = ExpectedNode::WithData(mark);
            core.client.clean_up(Cleanup::IfExpected { node, expected });
            return;
        }
        self.core.client.tokio_runtime().spawn(async move {
            let entries = &core.places.entries;
            let steps = core.client.transaction().delete(&node, None);
            let steps = steps.set_data(entries, nothing(), None);
            match core.commit(Write { steps, claim: None }).await {
                Ok(_) => {}
                Err(error) if error.refused() == Some((0, ErrorCode::NoNode)) => {}
                // It goes with its session at the latest, and others look then.
                Err(_) => core.client.clean_up(Cleanup::Node(node)),
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
