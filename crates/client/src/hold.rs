//! A node whose existence is proven again and again.

use std::sync::Arc;

use lockkeeper_session::{Cleanup, HoldId};
use lockkeeper_wire::SessionId;
use tokio::sync::oneshot;

use crate::shared::{Answer, Shared};
use crate::status::HoldState;

/// Has the session prove again and again that a node exists; see
/// [`Client::hold`](crate::Client::hold). Dropping it ends that.
#[must_use = "the node is no longer proven when this is dropped"]
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
    id: HoldId,
    /// Whether the session has been told that it is over.
    ended: bool,
}

impl Hold {
    pub(crate) fn new(shared: Arc<Shared>, id: HoldId) -> Self {
        Self { shared, id, ended: false }
    }

    /// How it stands now.
    pub fn state(&self) -> HoldState {
        self.shared.hold_state(self.id)
    }

    /// Whether a heartbeat found the node missing. [`Client::status`](crate::Client::status)
    /// changes when this does.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone(self.id)
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Ends it and has something deleted, in one step, if the session is still this one.
    pub(crate) fn clean_up(
        mut self,
        session: SessionId,
        target: Cleanup,
    ) -> (HoldState, Option<oneshot::Receiver<Answer>>) {
        self.ended = true;
        self.shared.unhold_and_clean_up(self.id, session, target)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.unhold(self.id);
        }
    }
}
