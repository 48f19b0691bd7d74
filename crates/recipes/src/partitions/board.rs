//! What a member's handle and its task share.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use crate::exact::shared_write::lock;
use crate::group::{Member, Membership};
use crate::partitions::assignment::Assignment;
use crate::partitions::book::{Book, ItemLife};
use crate::partitions::error::PartitionsError;

/// What a member's handle and its task share.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<BoardState>,
    changed: watch::Sender<()>,
    /// There until it leaves.
    membership: Mutex<Option<Membership>>,
}

#[derive(Debug)]
pub(super) struct BoardState {
    pub(super) book: Book,
    /// What the handle has not asked for yet.
    ready: VecDeque<Assignment>,
    /// What has gone wrong and was not told yet.
    error: Option<PartitionsError>,
    /// Why there will be no more.
    ended: Option<PartitionsError>,
    /// The members with other items.
    pub(super) others: Vec<Member>,
}

impl Board {
    pub(super) fn new(book: Book, membership: Membership) -> Self {
        let state = BoardState {
            book,
            ready: VecDeque::new(),
            error: None,
            ended: None,
            others: Vec::new(),
        };
        let membership = Mutex::new(Some(membership));
        Self { state: Mutex::new(state), changed: watch::Sender::new(()), membership }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BoardState> {
        lock(&self.state)
    }

    /// Takes the membership out, for the caller that ends it.
    pub(super) fn take_membership(&self) -> Option<Membership> {
        lock(&self.membership).take()
    }

    /// Waits for the next assignment, or error.
    pub(super) async fn next(&self) -> Result<Assignment, PartitionsError> {
        // Subscribed before the look, so that nothing is missed in between.
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(next) = self.lock().next() {
                return next;
            }
            // It does not fail, as the sender is here.
            let _ = changed.changed().await;
        }
    }

    pub(super) fn offer(&self, assignment: Assignment) {
        self.lock().ready.push_back(assignment);
        self.changed.send_replace(());
    }

    /// Takes back what was offered and not asked for.
    pub(super) fn withdraw(&self, ticket: ItemLife) {
        let withdrawn = {
            let ready = &mut self.lock().ready;
            let found = ready.iter().position(|offered| offered.ticket() == ticket);
            found.and_then(|index| ready.remove(index))
        };
        drop(withdrawn);
    }

    /// Tells an error, unless one was not told yet: what fails is tried again, and may fail again and again.
    pub(super) fn tell(&self, error: PartitionsError) {
        self.lock().error.get_or_insert(error);
        self.changed.send_replace(());
    }

    /// There will be no more assignments.
    pub(super) fn end(&self, why: PartitionsError) {
        self.lock().ended.get_or_insert(why);
        self.changed.send_replace(());
    }
}

impl BoardState {
    fn next(&mut self) -> Option<Result<Assignment, PartitionsError>> {
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        match self.ready.pop_front() {
            Some(assignment) => Some(Ok(assignment)),
            None => self.ended.clone().map(Err),
        }
    }
}
