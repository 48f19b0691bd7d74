//! The state of each item for one member, and the resulting actions. No I/O.
//!
//! ```text
//!            is mine        no node        made
//!   Away ──────────▶ Looking ─────▶ Creating ────▶ Held ◀──────▶ Moving ──────▶ Ending
//!                       │              ▲            │  is another's │ grace is over  │ may be deleted
//!                       ▼ a node       │ it is gone ▼               ▼                ▼
//!                     Waiting ─────────┘         Returning ◀─────────────────────────┘
//!                                                    │ its node is gone
//!                                                    ▼
//!                                              Resting, or Away
//! ```

use std::time::Duration;

use lockkeeper_client::{Instant, SessionId};

use crate::discovery::rendezvous::digest;
use crate::partitions::shares::Shares;

/// After what time an item is taken again that its holder gave back, or that could not be taken.
pub(super) const RETAKE_DELAY: Duration = Duration::from_secs(1);

/// After how many settling times the items move although the group has not settled.
const MAX_SETTLE_FACTOR: u32 = 10;

/// One life of an item with this member. Messages about an earlier life are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemLife {
    pub(super) index: usize,
    life: u64,
}

/// An action for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Read whether its node exists.
    Look(ItemLife),
    /// Create its node.
    Create(ItemLife),
    /// Report to its holder by when to finish, or (`None`) that the item stays.
    Move(ItemLife, Option<Instant>),
    /// End it for its holder; [`Book::ended`] says until when the node must stay.
    End(ItemLife),
    /// Delete its node, which is not held any more.
    GiveBack(ItemLife),
    /// Its node is gone: the item is lost.
    Lost(ItemLife),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Away,
    /// Its node is being read.
    Looking,
    /// Waits until the node of this session is gone.
    Waiting(SessionId),
    Creating,
    Held,
    /// Its holder has until this time.
    Moving(Instant),
    /// Its holder has lost it, and may rely on it until this time.
    Ending(Instant),
    /// Its node is being deleted. It is not taken again before this time.
    Returning(Option<Instant>),
    /// It is not taken before this time.
    Resting(Instant),
}

#[derive(Debug)]
struct BookEntry {
    name: String,
    digest: u64,
    life: u64,
    slot: Slot,
    /// Whether it belongs to this member in the current view.
    is_mine: bool,
}

/// Shares that are applied later.
#[derive(Debug)]
struct PendingShares {
    shares: Shares,
    /// When the first of the unapplied changes came.
    since: Instant,
    due: Instant,
}

/// All items of one member.
#[derive(Debug)]
pub(super) struct Book {
    me: String,
    entries: Vec<BookEntry>,
    shares: Shares,
    unsettled: Option<PendingShares>,
    /// Whether the member is in the group, in the current session.
    is_present: bool,
    is_leaving: bool,
    grace: Duration,
    settle: Duration,
    orders: Vec<Order>,
    /// A time that is not later than the first one at which an action is due.
    due: Option<Instant>,
}

impl Book {
    /// For items that are sorted and distinct.
    pub(super) fn new(me: &str, items: &[String], grace: Duration, settle: Duration) -> Self {
        let entry = |name: &String| BookEntry {
            name: name.clone(),
            digest: digest(name.as_bytes()),
            life: 0,
            slot: Slot::Away,
            is_mine: false,
        };
        Self {
            me: me.to_owned(),
            entries: items.iter().map(entry).collect(),
            shares: Shares::default(),
            unsettled: None,
            is_present: false,
            is_leaving: false,
            grace,
            settle,
            orders: Vec::new(),
            due: None,
        }
    }

    pub(super) fn name(&self, ticket: ItemLife) -> &str {
        &self.entries[ticket.index].name
    }

    /// The items that this member has, in their order.
    pub(super) fn owned(&self) -> impl Iterator<Item = &str> {
        let is_owned = |entry: &&BookEntry| matches!(entry.slot, Slot::Held | Slot::Moving(_));
        self.entries.iter().filter(is_owned).map(|entry| entry.name.as_str())
    }

    /// The items that belong to this member and have another member's node, with its session.
    pub(super) fn waited(&self) -> impl Iterator<Item = (&str, SessionId)> {
        self.entries.iter().filter(|entry| entry.is_mine).filter_map(|entry| match entry.slot {
            Slot::Waiting(by) => Some((entry.name.as_str(), by)),
            _ => None,
        })
    }

    /// Whether no item has a node of this member, or may get one.
    pub(super) fn is_clear(&self) -> bool {
        let has_none =
            |slot| matches!(slot, Slot::Away | Slot::Looking | Slot::Waiting(_) | Slot::Resting(_));
        self.entries.iter().all(|entry| has_none(entry.slot))
    }

    /// Takes the actions that are due.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// When to call [`Book::tick`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Handles a new view. `is_present`: whether this member is in it, with its current session.
    pub(super) fn view(&mut self, shares: Shares, is_present: bool, now: Instant) {
        let was_present = std::mem::replace(&mut self.is_present, is_present);
        if shares == self.shares {
            // The change is undone: a member came back before any item moved.
            self.unsettled = None;
        } else if self.settle.is_zero() {
            return self.apply(shares, now);
        } else if self.unsettled.as_ref().is_none_or(|unsettled| unsettled.shares != shares) {
            let since = self.unsettled.as_ref().map_or(now, |unsettled| unsettled.since);
            let due =
                (now + self.settle).min(since + self.settle.saturating_mul(MAX_SETTLE_FACTOR));
            self.unsettled = Some(PendingShares { shares, since, due });
            self.wake_at(due);
        }
        if was_present != is_present {
            self.review(now);
        }
    }

    /// The member leaves: no item belongs to it any more.
    pub(super) fn leave(&mut self, now: Instant) {
        self.is_leaving = true;
        self.review(now);
    }

    /// A new session has begun, in which this member has no items and is not in the group yet.
    pub(super) fn session_ended(&mut self, now: Instant) {
        self.is_present = false;
        self.orders.clear();
        for entry in &mut self.entries {
            entry.slot = Slot::Away;
            entry.life += 1;
        }
        self.review(now);
    }

    /// The node of an item was read: `by` is its session. Returns whether to watch it.
    pub(super) fn looked(&mut self, ticket: ItemLife, by: Option<SessionId>, now: Instant) -> bool {
        if self.slot(ticket) != Some(Slot::Looking) {
            return false;
        }
        match by {
            _ if !self.entries[ticket.index].is_mine => self.away(ticket.index, now),
            None => self.create(ticket),
            Some(by) => {
                self.entries[ticket.index].slot = Slot::Waiting(by);
                return true;
            }
        }
        false
    }

    /// The watched node is gone.
    pub(super) fn gone(&mut self, ticket: ItemLife, now: Instant) {
        let is_mine = self.entries[ticket.index].is_mine;
        match self.slot(ticket) {
            Some(Slot::Waiting(_)) if is_mine => self.create(ticket),
            Some(Slot::Waiting(_)) => self.away(ticket.index, now),
            Some(Slot::Held | Slot::Moving(_) | Slot::Ending(_)) => {
                self.orders.push(Order::Lost(ticket));
                self.away(ticket.index, now);
            }
            Some(Slot::Returning(Some(until))) if is_mine && until > now => {
                self.rest(ticket.index, until);
            }
            Some(Slot::Returning(_)) => self.away(ticket.index, now),
            _ => {}
        }
    }

    /// Its node was created. Returns whether it is held now; if not, its node must be deleted.
    pub(super) fn made(&mut self, ticket: ItemLife) -> bool {
        if self.slot(ticket) != Some(Slot::Creating) {
            return false;
        }
        let entry = &mut self.entries[ticket.index];
        entry.slot = if entry.is_mine { Slot::Held } else { Slot::Returning(None) };
        entry.is_mine
    }

    /// Another member has created its node.
    pub(super) fn taken(&mut self, ticket: ItemLife) {
        if self.slot(ticket) == Some(Slot::Creating) {
            self.entries[ticket.index].slot = Slot::Looking;
            self.orders.push(Order::Look(ticket));
        }
    }

    /// The node could not be read or created. It is tried again later.
    pub(super) fn failed(&mut self, ticket: ItemLife, now: Instant) {
        if let Some(Slot::Looking | Slot::Creating) = self.slot(ticket) {
            self.rest(ticket.index, now + RETAKE_DELAY);
            self.turn(ticket.index, now);
        }
    }

    /// Its holder has given it back, and it is being deleted. It is not taken again for a moment, because the
    /// holder may do the same again.
    pub(super) fn returned(&mut self, ticket: ItemLife, now: Instant) {
        if let Some(Slot::Held | Slot::Moving(_) | Slot::Ending(_)) = self.slot(ticket) {
            self.entries[ticket.index].slot = Slot::Returning(Some(now + RETAKE_DELAY));
        }
    }

    /// It was lost, although the session lives: its node may still exist.
    pub(super) fn lost(&mut self, ticket: ItemLife) {
        if let Some(Slot::Held | Slot::Moving(_)) = self.slot(ticket) {
            self.give_back(ticket);
        }
    }

    /// It has ended for its holder. If it was held, its node stays until then.
    pub(super) fn ended(&mut self, ticket: ItemLife, until: Option<Instant>) {
        if let Some(Slot::Moving(_)) = self.slot(ticket) {
            match until {
                Some(until) => {
                    self.entries[ticket.index].slot = Slot::Ending(until);
                    self.wake_at(until);
                }
                None => self.give_back(ticket),
            }
        }
    }

    /// Handles the passing of time.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        if let Some(unsettled) = self.unsettled.take_if(|unsettled| unsettled.due <= now) {
            self.apply(unsettled.shares, now);
        }
        if let Some(due) = self.unsettled.as_ref().map(|unsettled| unsettled.due) {
            self.wake_at(due);
        }

        for index in 0..self.entries.len() {
            let ticket = self.ticket(index);
            match self.entries[index].slot {
                Slot::Moving(until) if until <= now => self.orders.push(Order::End(ticket)),
                Slot::Ending(until) if until <= now => self.give_back(ticket),
                Slot::Resting(until) if until <= now => self.away(index, now),
                Slot::Moving(until) | Slot::Ending(until) | Slot::Resting(until) => {
                    self.wake_at(until);
                }
                _ => {}
            }
        }
    }

    fn ticket(&self, index: usize) -> ItemLife {
        ItemLife { index, life: self.entries[index].life }
    }

    /// The state of an item; `None` if this life of it is over.
    fn slot(&self, ticket: ItemLife) -> Option<Slot> {
        let entry = &self.entries[ticket.index];
        (entry.life == ticket.life).then_some(entry.slot)
    }

    fn wake_at(&mut self, time: Instant) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    fn apply(&mut self, shares: Shares, now: Instant) {
        (self.shares, self.unsettled) = (shares, None);
        self.review(now);
    }

    /// Determines which items belong to this member.
    fn review(&mut self, now: Instant) {
        let may_own = self.is_present && !self.is_leaving;
        for index in 0..self.entries.len() {
            let owner = self.shares.owner(self.entries[index].digest);
            self.entries[index].is_mine = may_own && owner == Some(self.me.as_str());
            self.turn(index, now);
        }
    }

    /// Acts on the owner of an item.
    fn turn(&mut self, index: usize, now: Instant) {
        let entry = &mut self.entries[index];
        match (entry.slot, entry.is_mine) {
            (Slot::Away, true) => {
                entry.life += 1;
                entry.slot = Slot::Looking;
                let ticket = self.ticket(index);
                self.orders.push(Order::Look(ticket));
            }
            (Slot::Resting(_), false) => entry.slot = Slot::Away,
            (Slot::Held, false) => {
                let until = now + self.grace;
                entry.slot = Slot::Moving(until);
                self.wake_at(until);
                let ticket = self.ticket(index);
                self.orders.push(Order::Move(ticket, Some(until)));
            }
            (Slot::Moving(_), true) => {
                entry.slot = Slot::Held;
                let ticket = self.ticket(index);
                self.orders.push(Order::Move(ticket, None));
            }
            _ => {}
        }
    }

    fn away(&mut self, index: usize, now: Instant) {
        self.entries[index].slot = Slot::Away;
        self.turn(index, now);
    }

    fn rest(&mut self, index: usize, until: Instant) {
        self.entries[index].slot = Slot::Resting(until);
        self.wake_at(until);
    }

    fn create(&mut self, ticket: ItemLife) {
        self.entries[ticket.index].slot = Slot::Creating;
        self.orders.push(Order::Create(ticket));
    }

    fn give_back(&mut self, ticket: ItemLife) {
        self.entries[ticket.index].slot = Slot::Returning(None);
        self.orders.push(Order::GiveBack(ticket));
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
