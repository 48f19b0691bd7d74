//! Hold: a node whose existence the session proves at each heartbeat.

use std::sync::Arc;

use lockkeeper_session::{Binding, Cleanup, HoldId, Instant};
use lockkeeper_wire::{SessionId, Zxid};
use tokio::sync::oneshot;

use crate::binding;
use crate::shared::{Answer, Shared};
use crate::status::HoldState;

/// A demand that the session proves a node's existence at each heartbeat; see
/// [`Client::hold`](crate::Client::hold). Dropping it ends the demand.
#[must_use = "the node is no longer proven when this is dropped"]
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
    id: HoldId,
    /// What binds requests to it and its present holder.
    binding: Binding,
    /// Whether the session has been told that it is over.
    ended: bool,
}

impl Hold {
    pub(crate) fn new(shared: Arc<Shared>, id: HoldId) -> Self {
        Self { shared, id, binding: Binding::new(id), ended: false }
    }

    /// The state of the hold and of the session's lease now.
    pub fn state(&self) -> HoldState {
        self.shared.hold_state(self.id)
    }

    /// Whether a heartbeat found the node missing, or another one in its place.
    /// [`Client::status`](crate::Client::status) changes when this does.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone(self.id)
    }

    /// Makes it outlast the lease's deadline: it is in jeopardy then, and goes on when the servers have
    /// proven that its node is still the one that the transaction `czxid` created. Returns whether it
    /// may: not if a deadline has passed already, or the node is gone.
    pub fn ride_out(&self, czxid: Zxid) -> bool {
        self.shared.ride_out(self.id, czxid)
    }

    /// Makes it end at the next deadline, or now if it is in jeopardy.
    pub fn end_at_deadline(&self) {
        self.shared.end_at_deadline(self.id);
    }

    /// Hands the node on to another holder. It stays proven, and what was bound to the holder before is
    /// not sent any more.
    pub fn hand_over(&mut self) {
        // A hold that is over has no new binding, and what has the old one is refused.
        if let Some(binding) = self.shared.hand_over(self.id) {
            self.binding = binding;
        }
    }

    /// Ends the proofs of the node, and sends nothing that is bound to it any more: its holder has found out in
    /// another way that it is gone. It counts as live until it is dropped.
    pub fn give_up(&self) {
        self.shared.give_up(self.id);
    }

    /// A view of it, which does not keep it alive.
    pub fn probe(&self) -> HoldProbe {
        HoldProbe { shared: Arc::clone(&self.shared), id: self.id }
    }

    pub(crate) fn id(&self) -> HoldId {
        self.id
    }

    pub(crate) fn key(&self) -> binding::Key {
        (self.shared.address(), self.binding)
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

/// A view of a [`Hold`], for what reports on it without holding anything. A hold that has been dropped is not
/// proven.
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

    /// The time now, by the clock of its client.
    pub fn now(&self) -> Instant {
        self.shared.now()
    }

    /// Notes that the node was found to be missing, or to be another one, so that [`Hold::is_gone`].
    pub fn found_missing(&self) {
        self.shared.found_missing(self.id);
    }
}

/// Runs something with all requests that it makes bound to these holds: requests of a hold's client
/// are sent only while the hold is known to be good, and else refused, also if they had to wait for
/// a connection; see [`Error::is_not_held`](crate::Error::is_not_held). That covers what is asked on
/// this thread until `work` returns, so a future is to be polled in it each time; what it spawns is
/// not covered.
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
