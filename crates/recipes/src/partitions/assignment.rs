//! [`Assignment`]: an item that this member has.

use std::fmt;
use std::sync::Arc;

use lockkeeper_client::Instant;
use lockkeeper_locks::for_recipes::deleted;
use lockkeeper_locks::{Guard, LossReason, ReleaseError, State};
use tokio::sync::{mpsc, watch};

use crate::partitions::book::ItemLife;
use crate::partitions::command::Command;
use crate::partitions::item_node::ItemNode;

/// An item that this member has. What its holder may believe and do is described at [`Guard`]: no other member has the item
/// before [`Guard::deadline`], [`Guard::lost`] returns when one may, and [`Guard::token`] grows from owner to owner.
///
/// If the item is to go to another member, [`Assignment::moving`] returns until when to finish. Then release it, or drop it,
/// which gives it back in the background. One that is given back without that is offered to this member again after a
/// second, with another token, as no other member takes it.
#[must_use = "the item is given back when it is dropped"]
pub struct Assignment {
    item: String,
    ticket: ItemLife,
    held: Arc<HeldItem>,
    commands: mpsc::UnboundedSender<Command>,
}

/// An item that is held.
pub(super) struct HeldItem {
    // Ended before its node is deleted: dropped in this order.
    pub(super) guard: Guard,
    pub(super) claim: ItemNode,
    /// Until when its holder may finish, if it moves.
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

    /// Waits until the item is to go to another member, and says until when it may be used: after the
    /// [grace](crate::PartitionsBuilder::grace), it is [lost](LossReason::HeldTooLong). So it never returns while the item
    /// stays, nor when it is lost in another way: wait for [`Guard::lost`] as well. If the members change back before
    /// it is given back, the item stays, and this waits again. Makes no request.
    ///
    /// # Session loss
    /// Waits for ever: the item is lost.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn moving(&self) -> Instant {
        let mut moving = self.held.moving.subscribe();
        loop {
            if let Some(until) = *moving.borrow_and_update() {
                return until;
            }
            // It does not fail, as the sender is here.
            let _ = moving.changed().await;
        }
    }

    /// Gives the item back, and waits until a server has confirmed it. Costs 2 round trips (1 write).
    ///
    /// # Errors
    /// If it had been lost before, which fails at once, or no server could be reached for a session timeout. In the
    /// second case the release continues in the background.
    ///
    /// # Session loss
    /// Fails: the item was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        match self.held.guard.state() {
            State::Lost(reason) => return Err(ReleaseError::Lost(reason)),
            State::Jeopardy => return Err(ReleaseError::Lost(LossReason::DeadlinePassed)),
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
        // Without its task, nothing takes it again.
        let _ = self.commands.send(Command::Returned(self.ticket));
    }
}

/// The same as a guard.
impl std::ops::Deref for Assignment {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.held.guard
    }
}

/// The item, and how it stands.
impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = &self.held.guard;
        f.debug_struct("Assignment").field("item", &self.item).field("guard", guard).finish()
    }
}
