//! [`Assignment`]: an item that this member holds.

use std::fmt;
use std::sync::Arc;

use lockkeeper_client::Instant;
use lockkeeper_locks::for_recipes::deleted;
use lockkeeper_locks::{Guard, HolderState, LossReason, ReleaseError};
use tokio::sync::{mpsc, watch};

use crate::partitions::book::ItemLife;
use crate::partitions::command::Command;
use crate::partitions::item_node::ItemNode;

/// An item that this member holds. The rules of [`Guard`] apply: no other member has the item before
/// [`Guard::deadline`], [`Guard::lost`] returns when one may, and [`Guard::token`] grows from owner to owner.
///
/// If the item must move to another member, [`Assignment::moving`] returns the time by which to finish. Then
/// release it, or drop it, which gives it back in the background. An item that is given back without a move is
/// offered to this member again after a second, with another token, because no other member takes it.
#[must_use = "the item is given back when it is dropped"]
pub struct Assignment {
    item: String,
    ticket: ItemLife,
    held: Arc<HeldItem>,
    commands: mpsc::UnboundedSender<Command>,
}

/// A held item.
pub(super) struct HeldItem {
    // Dropped in this order: the guard before the node.
    pub(super) guard: Guard,
    pub(super) claim: ItemNode,
    /// Until when the holder may keep the item, if it moves.
    pub(super) moving: watch::Sender<Option<Instant>>,
}

impl HeldItem {
    pub(super) fn new(guard: Guard, claim: ItemNode) -> Self {
        Self { guard, claim, moving: watch::Sender::new(None) }
    }
}

impl Assignment {
    pub(super) fn new(
        item: String,
        ticket: ItemLife,
        held: Arc<HeldItem>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Self { item, ticket, held, commands }
    }

    /// The item.
    pub fn item(&self) -> &str {
        &self.item
    }

    pub(super) fn ticket(&self) -> ItemLife {
        self.ticket
    }

    /// Waits until the item must move to another member, and returns the time by which to finish: after the
    /// [grace](crate::PartitionsBuilder::grace), the item is [lost](LossReason::HeldTooLong). Never returns while
    /// the item stays, nor if it is lost in another way: wait for [`Guard::lost`] as well. If the members change
    /// back before the item is given back, it stays, and the next call waits again. Makes no request.
    ///
    /// # Session loss
    /// Never returns: the item is lost.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn moving(&self) -> Instant {
        let mut moving = self.held.moving.subscribe();
        loop {
            if let Some(until) = *moving.borrow_and_update() {
                return until;
            }
            // This does not fail, because the sender exists.
            let _ = moving.changed().await;
        }
    }

    /// Gives the item back, and waits until a server has confirmed it. Costs 2 round trips (1 write).
    ///
    /// # Errors
    /// If the item was already lost, which fails at once, or no server could be reached for a session timeout. In
    /// the second case the release continues in the background.
    ///
    /// # Session loss
    /// Fails: the item was lost.
    ///
    /// # Cancel safety
    /// When dropped, the release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        match self.held.guard.state() {
            HolderState::Lost(reason) => return Err(ReleaseError::Lost(reason)),
            HolderState::Jeopardy => return Err(ReleaseError::Lost(LossReason::DeadlinePassed)),
            _ => {}
        }
        let given_back = self.held.claim.give_back();
        drop(self);
        match given_back {
            None => Err(ReleaseError::Lost(LossReason::SessionExpired)),
            Some(reply) => deleted(reply.await),
        }
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        drop(self.held.claim.give_back());
        // Without the member's task, the item is not taken again.
        let _ = self.commands.send(Command::Returned(self.ticket));
    }
}

/// The guard of the item.
impl std::ops::Deref for Assignment {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.held.guard
    }
}

/// Displays the item and its guard.
impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = &self.held.guard;
        f.debug_struct("Assignment").field("item", &self.item).field("guard", guard).finish()
    }
}
