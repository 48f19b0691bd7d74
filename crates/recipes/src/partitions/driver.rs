//! The task of a member: it follows the group, and takes, watches and gives back items.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lockkeeper_client::{Client, Instant, SessionId, Stat, Status, Watcher, ZnodePath, Zxid};
use lockkeeper_locks::for_recipes::{end_overdue, found_missing};
use lockkeeper_locks::{HolderState, OwnerInfo};
use tokio::sync::{mpsc, oneshot, watch};

use crate::group::{GroupError, MemberChanges};
use crate::partitions::assignment::{Assignment, HeldItem};
use crate::partitions::board::Board;
use crate::partitions::book::{ItemLife, Order};
use crate::partitions::command::Command;
use crate::partitions::error::{PartitionsError, TakeError};
use crate::partitions::layout::PartitionNodes;
use crate::partitions::shares::Shares;
use crate::partitions::take::{TakeOutcome, gone, look, take};
use crate::watch::PresenceError;

/// The maximum number of items that one transaction takes.
const MAX_BATCH_ITEMS: usize = 100;

/// The maximum total length of their names, in bytes.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// An event that the task handles.
enum DriverEvent {
    Command(Option<Command>, mpsc::UnboundedReceiver<Command>),
    Viewed(Result<(), GroupError>, MemberChanges),
    Status(watch::Receiver<Status>),
    Looked(ItemLife, Result<Option<(Stat, Watcher)>, TakeError>),
    Gone(ItemLife),
    Took(Vec<(ItemLife, TakeOutcome)>),
    NotThere(PresenceError),
}

/// The member's options.
pub(super) struct MemberTerms {
    pub(super) client: Client,
    pub(super) places: PartitionNodes,
    pub(super) me: String,
    /// The node of each item.
    pub(super) nodes: Arc<[ZnodePath]>,
    /// The digest of the items.
    pub(super) items: u64,
    pub(super) board: Arc<Board>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

/// The task of a member.
pub(super) struct Driver {
    terms: Arc<MemberTerms>,
    session: SessionId,
    /// The program that has the member's name, if it is another one.
    name_holder: Option<OwnerInfo>,
    held: BTreeMap<ItemLife, Arc<HeldItem>>,
    running: FuturesUnordered<BoxFuture<'static, DriverEvent>>,
    /// The items whose nodes must be created.
    wanted: Vec<ItemLife>,
    /// How many are being read, and may be added to these.
    looking: usize,
    /// When to look for items that were lost without an event.
    next_check: Instant,
    is_leaving: bool,
    /// The callers that wait for the end of the task.
    leaving: Vec<oneshot::Sender<()>>,
}

impl Driver {
    /// `is_taken`: completes when another program has the member's name, or the member has ended.
    pub(super) fn new(
        terms: MemberTerms,
        is_taken: impl Future<Output = PresenceError> + Send + 'static,
        changes: MemberChanges,
        asked: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let (terms, running) = (Arc::new(terms), FuturesUnordered::new());
        let client = &terms.client;
        let (session, next_check) = (client.session_id(), client.now());
        running.push(commanded(asked).boxed());
        running.push(is_taken.map(DriverEvent::NotThere).boxed());
        running.push(changed(client.status()).boxed());
        let mut driver = Self {
            terms,
            session,
            name_holder: None,
            held: BTreeMap::new(),
            running,
            wanted: Vec::new(),
            looking: 0,
            next_check,
            is_leaving: false,
            leaving: Vec::new(),
        };
        driver.viewed(changes);
        driver
    }

    /// Runs until the member has left and its items are given back.
    pub(super) async fn run(mut self) {
        loop {
            self.follow_orders();
            if self.is_leaving && self.terms.board.lock().book.is_clear() {
                for waiter in self.leaving.drain(..) {
                    // The caller may have gone.
                    let _ = waiter.send(());
                }
                return;
            }

            let due = self.due();
            tokio::select! {
                // A fixed order makes simulations reproducible.
                biased;
                happened = self.running.next() => happened.into_iter().for_each(|it| self.on(it)),
                () = sleep_until(&self.terms.client, due) => {}
            }
            // Events that have arrived together are handled together.
            while let Some(Some(happened)) = self.running.next().now_or_never() {
                self.on(happened);
            }
            self.on_time();
        }
    }

    /// When the next action is due at the latest.
    fn due(&self) -> Option<Instant> {
        let check = (!self.held.is_empty()).then_some(self.next_check);
        self.terms.board.lock().book.due().into_iter().chain(check).min()
    }

    fn on_time(&mut self) {
        let now = self.terms.client.now();
        self.terms.board.lock().book.tick(now);
        if !self.held.is_empty() && self.next_check <= now {
            self.check();
        }
    }

    /// Gives back items that their holders have lost although their nodes may exist, for example after a deadline.
    fn check(&mut self) {
        let client = &self.terms.client;
        self.next_check = client.now() + client.session_timeout() / 3;
        let book = &mut self.terms.board.lock().book;
        for (ticket, held) in &self.held {
            if matches!(held.guard.state(), HolderState::Lost(_)) {
                book.lost(*ticket);
            }
        }
    }

    fn on(&mut self, happened: DriverEvent) {
        let (board, now) = (Arc::clone(&self.terms.board), self.terms.client.now());
        match happened {
            DriverEvent::Command(command, asked) => {
                self.running.push(commanded(asked).boxed());
                self.command(command);
            }
            DriverEvent::Viewed(Ok(()), changes) => self.viewed(changes),
            DriverEvent::Viewed(Err(error), _) => {
                board.end(PartitionsError::View(error));
                self.leave();
            }
            DriverEvent::Status(status) => {
                self.running.push(changed(status).boxed());
                self.check_session();
                self.check();
            }
            DriverEvent::Looked(ticket, found) => {
                self.looking -= 1;
                match found {
                    Ok(found) => self.looked(ticket, found),
                    Err(source) => self.failed(ticket, source),
                }
            }
            DriverEvent::Gone(ticket) => board.lock().book.gone(ticket, now),
            DriverEvent::Took(taken) => {
                taken.into_iter().for_each(|(ticket, taken)| self.took(ticket, taken));
            }
            DriverEvent::NotThere(error @ PresenceError::Taken { .. }) => {
                let owner = self.name_holder.clone().map(Box::new);
                board.tell(PartitionsError::Taken { owner, source: error });
            }
            DriverEvent::NotThere(error) if !self.is_leaving => {
                board.end(PartitionsError::Join(GroupError::Join(error)));
                self.leave();
            }
            DriverEvent::NotThere(_) => {}
        }
    }

    fn command(&mut self, command: Option<Command>) {
        let (board, now) = (&self.terms.board, self.terms.client.now());
        match command {
            Some(Command::Returned(ticket)) => {
                board.lock().book.returned(ticket, now);
                self.held.remove(&ticket);
            }
            Some(Command::Leave(waiter)) => {
                self.leaving.extend(waiter);
                self.leave();
            }
            None => {}
        }
    }

    /// Leaves the group, and gives its items back: their holders have the grace to finish.
    fn leave(&mut self) {
        // The next owners wait for its items from now on, and get them without delay.
        drop(self.terms.board.take_membership());
        self.is_leaving = true;
        let left = PartitionsError::Left(self.terms.places.path.clone());
        self.terms.board.end(left);
        self.terms.board.lock().book.leave(self.terms.client.now());
    }

    /// In a new session, all items are lost.
    fn check_session(&mut self) {
        let client = &self.terms.client;
        if client.session_id() == self.session {
            return;
        }
        self.session = client.session_id();
        self.wanted.clear();
        self.terms.board.lock().book.session_ended(client.now());
        for (ticket, _) in std::mem::take(&mut self.held) {
            self.terms.board.withdraw(ticket);
        }
    }

    /// Handles a view, and waits for the next one.
    fn viewed(&mut self, changes: MemberChanges) {
        // The member's state in it is that of the current session.
        self.check_session();
        let MemberTerms { client, me, items, board, .. } = self.terms.as_ref();
        let view = changes.view();
        let other = view.member(me).filter(|own| own.session != self.session);
        self.name_holder = other.and_then(|other| OwnerInfo::from_data(&other.data));
        // A view without this member does not move items: the member lives, so it comes back.
        if let Some(own) = view.member(me) {
            let (shares, others) = Shares::of(view.members(), *items);
            let is_present = own.session == self.session;
            let state = &mut board.lock();
            state.others = others;
            state.book.view(shares, is_present, client.now());
        }
        self.running.push(next_view(changes).boxed());
    }

    fn looked(&mut self, ticket: ItemLife, found: Option<(Stat, Watcher)>) {
        let by = found.as_ref().map(|(stat, _)| stat.ephemeral_owner);
        let now = self.terms.client.now();
        let waits = self.terms.board.lock().book.looked(ticket, by, now);
        if let Some((stat, watcher)) = found.filter(|_| waits) {
            self.watch(ticket, stat.czxid, Some(watcher));
        }
    }

    fn took(&mut self, ticket: ItemLife, taken: TakeOutcome) {
        let board = Arc::clone(&self.terms.board);
        match taken {
            TakeOutcome::Made(held) => {
                let is_held = board.lock().book.made(ticket);
                self.watch(ticket, held.guard.token().zxid(), None);
                if !is_held {
                    return;
                }
                self.held.insert(ticket, Arc::clone(&held));
                let item = board.lock().book.name(ticket).to_owned();
                let commands = self.terms.commands.clone();
                board.offer(Assignment::new(item, ticket, held, commands));
            }
            TakeOutcome::ByOthers => board.lock().book.taken(ticket),
            // The status shows it.
            TakeOutcome::SessionOver => {}
            TakeOutcome::Failed(source) => self.failed(ticket, source),
        }
    }

    fn failed(&mut self, ticket: ItemLife, source: TakeError) {
        let board = &self.terms.board;
        // The view shows it.
        if self.terms.client.is_closed() {
            return;
        }
        let item = board.lock().book.name(ticket).to_owned();
        board.lock().book.failed(ticket, self.terms.client.now());
        board.tell(PartitionsError::Take { item, source });
    }

    fn watch(&self, ticket: ItemLife, czxid: Zxid, watcher: Option<Watcher>) {
        let terms = Arc::clone(&self.terms);
        let gone = async move {
            gone(&terms.client, &terms.nodes[ticket.index], czxid, watcher).await;
            DriverEvent::Gone(ticket)
        };
        self.running.push(gone.boxed());
    }

    /// Carries out the book's orders until none are left.
    fn follow_orders(&mut self) {
        loop {
            let orders = self.terms.board.lock().book.take_orders();
            if orders.is_empty() {
                break;
            }
            for order in orders {
                match order {
                    Order::Look(ticket) => self.look(ticket),
                    Order::Create(ticket) => self.wanted.push(ticket),
                    Order::Move(ticket, until) => {
                        if until.is_some() {
                            self.terms.board.withdraw(ticket);
                        }
                        if let Some(held) = self.held.get(&ticket) {
                            held.moving.send_replace(until);
                        }
                    }
                    Order::End(ticket) => {
                        let held = self.held.get(&ticket);
                        let until = held.and_then(|held| end_overdue(&held.guard));
                        self.terms.board.lock().book.ended(ticket, until);
                    }
                    Order::GiveBack(ticket) => {
                        self.terms.board.withdraw(ticket);
                        if let Some(held) = self.held.remove(&ticket) {
                            debug_assert!(!held.guard.is_held(), "it is still held");
                            drop(held.claim.give_back());
                        }
                    }
                    Order::Lost(ticket) => {
                        self.terms.board.withdraw(ticket);
                        if let Some(held) = self.held.remove(&ticket) {
                            found_missing(&held.guard);
                            drop(held.claim.give_back());
                        }
                    }
                }
            }
        }
        self.take();
    }

    fn look(&mut self, ticket: ItemLife) {
        self.looking += 1;
        let terms = Arc::clone(&self.terms);
        let look = async move {
            let found = look(&terms.client, &terms.nodes[ticket.index]).await;
            DriverEvent::Looked(ticket, found)
        };
        self.running.push(look.boxed());
    }

    /// Creates the nodes of items, a part of them at a time, and the last part when no more arrive at once.
    fn take(&mut self) {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for ticket in std::mem::take(&mut self.wanted) {
            let more = self.terms.nodes[ticket.index].as_str().len();
            if part.len() == MAX_BATCH_ITEMS || (bytes + more > MAX_BATCH_BYTES && bytes > 0) {
                self.take_part(std::mem::take(&mut part));
                bytes = 0;
            }
            bytes += more;
            part.push(ticket);
        }
        match self.looking {
            0 if part.is_empty() => {}
            0 => self.take_part(part),
            _ => self.wanted = part,
        }
    }

    fn take_part(&self, tickets: Vec<ItemLife>) {
        let (terms, session) = (Arc::clone(&self.terms), self.session);
        let took = async move {
            let MemberTerms { client, places, me, nodes, .. } = terms.as_ref();
            let nodes = tickets.iter().map(|ticket| nodes[ticket.index].clone()).collect();
            let taken = take(client, places, me, session, nodes).await;
            DriverEvent::Took(tickets.into_iter().zip(taken).collect())
        };
        self.running.push(took.boxed());
    }
}

/// Callers stop waiting however the task ends.
impl Drop for Driver {
    fn drop(&mut self) {
        let path = self.terms.places.path.clone();
        self.terms.board.end(PartitionsError::Stopped { path });
    }
}

async fn commanded(mut asked: mpsc::UnboundedReceiver<Command>) -> DriverEvent {
    let command = asked.recv().await;
    DriverEvent::Command(command, asked)
}

async fn next_view(mut changes: MemberChanges) -> DriverEvent {
    let viewed = changes.next().await.map(drop);
    DriverEvent::Viewed(viewed, changes)
}

async fn changed(mut status: watch::Receiver<Status>) -> DriverEvent {
    if status.changed().await.is_err() {
        // The client is closed, which the view shows.
        std::future::pending::<()>().await;
    }
    DriverEvent::Status(status)
}

async fn sleep_until(client: &Client, due: Option<Instant>) {
    match due {
        // Timers use another clock than leases.
        Some(due) => tokio::time::sleep(due.since(client.now())).await,
        None => std::future::pending().await,
    }
}
