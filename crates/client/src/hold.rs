//! Hold: a node whose existence the session proves at each heartbeat.

use std::sync::Arc;

use lockkeeper_session::{Binding, Cleanup, HoldId, Instant};
use lockkeeper_wire::{SessionId, Zxid};
use tokio::sync::oneshot;

use crate::binding;
use crate::shared::{Answer, Shared};
use crate::status::HoldState;

/// Makes the session prove a node's existence at each heartbeat; see [`Client::hold`](crate::Client::hold).
/// Dropping it ends the proofs.
#[must_use = "the node is no longer proven when this is dropped"]
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
    id: HoldId,
    /// Binds requests to the hold and its present holder.
    binding: Binding,
    /// Whether the session has recorded the end of the hold.
    ended: bool,
}

impl Hold {
    pub(crate) fn new(shared: Arc<Shared>, id: HoldId) -> Self {
        Self { shared, id, binding: Binding::new(id), ended: false }
    }

    /// The current state of the hold and of the session's lease.
    pub fn state(&self) -> HoldState {
        self.shared.hold_state(self.id)
    }

    /// Whether a heartbeat found the node missing or replaced. [`Client::status`](crate::Client::status)
    /// changes when this changes.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone(self.id)
    }

    /// Makes the hold outlast the lease's deadline. It is then in jeopardy, and continues when the servers
    /// have proven that its node is still the one that the transaction `czxid` created. Returns `false` if a
    /// deadline has already passed or the node is gone.
    pub fn ride_out(&self, czxid: Zxid) -> bool {
        self.shared.ride_out(self.id, czxid)
    }

    /// Makes the hold end at the next deadline, or now if it is in jeopardy.
    pub fn end_at_deadline(&self) {
        self.shared.end_at_deadline(self.id);
    }

    /// Transfers the node to another holder. It stays proven, and requests bound to the previous holder are
    /// no longer sent.
    pub fn hand_over(&mut self) {
        // A hold that has ended gets no new binding, and requests with the old one are refused.
        if let Some(binding) = self.shared.hand_over(self.id) {
            self.binding = binding;
        }
    }

    /// Ends the proofs of the node, and refuses requests bound to it: its holder has learned in another way
    /// that the node is gone. It counts as live until it is dropped.
    pub fn give_up(&self) {
        self.shared.give_up(self.id);
    }

    /// A view of the hold, which does not keep it alive.
    pub fn probe(&self) -> HoldProbe {
        HoldProbe { shared: Arc::clone(&self.shared), id: self.id }
    }

    pub(crate) fn id(&self) -> HoldId {
        self.id
    }

    pub(crate) fn key(&self) -> binding::Key {
        (self.shared.local_id(), self.binding)
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Ends the hold and deletes a node in one step, if the session is still this one.
    pub(crate) fn clean_up(
        mut self,
        session: SessionId,
        target: Cleanup,
    ) -> (HoldState, Option<oneshot::Receiver<Answer>>) {
        self.ended = true;
        self.shared.unhold_and_clean_up(self.id, session, target)
    }
}

/// A view of a [`Hold`], for code that reports on it without holding the node. A hold that has been dropped
/// is not proven.
#[derive(Clone, Debug)]
pub struct HoldProbe {
    shared: Arc<Shared>,
    id: HoldId,
}

impl HoldProbe {
    /// As [`Hold::state`].
    pub fn state(&self) -> HoldState {
        self.shared.hold_state(self.id)
    }

    /// The current time by the clock of its client.
    pub fn now(&self) -> Instant {
        self.shared.now()
    }

    /// Records that the node was found missing or replaced, so that [`Hold::is_gone`] returns true.
    pub fn found_missing(&self) {
        self.shared.found_missing(self.id);
    }
}

/// Runs `work` with all requests that it makes bound to these holds: requests of a hold's client are sent
/// only while the hold is known to be valid. Otherwise they fail, also after they have waited for a
/// connection; see [`Error::is_not_held`](crate::Error::is_not_held). This covers requests made on this
/// thread until `work` returns, so a future must be polled inside it each time. Spawned tasks are not
/// covered.
pub fn bound_to<'a, R>(holds: impl IntoIterator<Item = &'a Hold>, work: impl FnOnce() -> R) -> R {
    binding::within(holds.into_iter().map(Hold::key), work)
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.unhold(self.id);
        }
    }
}
