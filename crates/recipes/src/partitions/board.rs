//! State shared by a member's handle and its task.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use crate::exact::shared_write::lock;
use crate::group::{Member, Membership};
use crate::partitions::assignment::Assignment;
use crate::partitions::book::{Book, ItemLife};
use crate::partitions::error::PartitionsError;

/// State shared by a member's handle and its task.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<BoardState>,
    changed: watch::Sender<()>,
    /// `Some` until the member leaves.
    membership: Mutex<Option<Membership>>,
}

#[derive(Debug)]
pub(super) struct BoardState {
    pub(super) book: Book,
    /// Assignments for the next calls of the handle.
    ready: VecDeque<Assignment>,
    /// An error for the next call of the handle.
    error: Option<PartitionsError>,
    /// The error that ended the task.
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

    /// Takes the membership, so that the caller can end it.
    pub(super) fn take_membership(&self) -> Option<Membership> {
        lock(&self.membership).take()
    }

    /// Waits for the next assignment, or error.
    pub(super) async fn next(&self) -> Result<Assignment, PartitionsError> {
        // Subscribed before the check, so that no change is missed.
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(next) = self.lock().next() {
                return next;
            }
            // This does not fail, because the sender exists.
            let _ = changed.changed().await;
        }
    }

    pub(super) fn offer(&self, assignment: Assignment) {
        self.lock().ready.push_back(assignment);
        self.changed.send_replace(());
    }

    /// Withdraws an assignment that the handle has not received yet.
    pub(super) fn withdraw(&self, ticket: ItemLife) {
        let withdrawn = {
            let ready = &mut self.lock().ready;
            let found = ready.iter().position(|offered| offered.ticket() == ticket);
            found.and_then(|index| ready.remove(index))
        };
        drop(withdrawn);
    }

    /// Reports an error, unless an earlier one was not received yet: a failed action is repeated, and may fail
    /// again.
    pub(super) fn tell(&self, error: PartitionsError) {
        self.lock().error.get_or_insert(error);
        self.changed.send_replace(());
    }

    /// Ends the assignments.
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
