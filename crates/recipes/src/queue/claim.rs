//! The claim of an item: its duty to be given back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lockkeeper_client::retry::{pause, reachable};
use lockkeeper_client::{Cleanup, Contact, ErrorCode, ZnodePath, present};

use crate::queue::commit::{Write, nothing};
use crate::queue::core::Core;

/// A claim that may have been made. If it was, dropping it gives the item back.
pub(super) struct Claim {
    core: Arc<Core>,
    node: ZnodePath,
    /// The data of its node, which tells it from another consumer's.
    mark: Bytes,
    /// Whether there is a node to delete.
    is_made: AtomicBool,
}

impl Claim {
    /// One that is about to be made.
    pub(super) fn new(core: &Arc<Core>, node: ZnodePath, mark: Bytes) -> Self {
        Self { core: Arc::clone(core), node, mark, is_made: AtomicBool::new(false) }
    }

    pub(super) fn node(&self) -> &ZnodePath {
        &self.node
    }

    pub(super) fn made(&self) {
        self.is_made.store(true, Ordering::Release);
    }

    /// It is unknown whether it was made. If the session lives on, so may its node, although nobody has the item.
    pub(super) fn in_doubt(self) {
        let runtime = self.core.client.tokio_runtime().clone();
        runtime.spawn(async move {
            loop {
                match present(self.core.client.data(&self.node).await) {
                    Ok(found) => {
                        if found.is_some_and(|(data, _)| data == self.mark) {
                            self.made();
                        }
                        // Dropped, it is given back, and whoever waits is woken.
                        return;
                    }
                    Err(error) if error.is_session_expired() => return,
                    Err(_) if self.core.client.contact() == Contact::Closed => return,
                    Err(_) => {
                        reachable(&self.core.client).await;
                        pause().await;
                    }
                }
            }
        });
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
