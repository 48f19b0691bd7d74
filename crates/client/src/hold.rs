//! A node whose existence is proven again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_session::HoldId;

use crate::shared::Shared;

/// Has the session prove, every third of its timeout, that a node exists; see
/// [`Client::hold`](crate::Client::hold). Dropping it ends that.
#[must_use = "the node is no longer proven when this is dropped"]
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
    id: HoldId,
    gone: Arc<AtomicBool>,
}

impl Hold {
    pub(crate) fn new(shared: Arc<Shared>, id: HoldId, gone: Arc<AtomicBool>) -> Self {
        Self { shared, id, gone }
    }

    /// Whether a heartbeat found the node missing. [`Client::status`](crate::Client::status)
    /// changes when this does.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.unhold(self.id);
    }
}
