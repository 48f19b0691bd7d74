//! Keeps an ephemeral node in existence.

use std::pin::pin;

use bytes::Bytes;
use lockkeeper_client::retry::{self, LONGEST_PAUSE, TooLong, Unanswered};
use lockkeeper_client::{
    Cleanup, Client, CreateMode, Error, ErrorCode, EventKind, ExpectedNode, Outcome, SessionId,
    Stat, Transaction, TransactionError, Watcher, ZnodePath, Zxid,
};
use tokio::sync::{mpsc, oneshot};

use crate::watch::presence::keeping::{EnterOutcome, KeptNode, make_parents};
use crate::watch::presence::reservation::Reservation;
use crate::watch::presence::state::{
    IsOurs, PresenceError, PresenceState, STUCK_PAUSE, StateSender, WhenTaken,
};

/// The smallest data version of a node that a presence created.
const FIRST_VERSION: i32 = 1;

/// The largest version with which a node starts.
const MAX_FIRST_VERSION: i32 = 4;

/// The node to create.
#[derive(Clone)]
pub(super) struct PresenceTerms {
    pub(super) client: Client,
    pub(super) data: Bytes,
    pub(super) when_taken: WhenTaken,
    pub(super) is_ours: Option<IsOurs>,
    /// Whether the node's version distinguishes it from a node that another program has just created.
    pub(super) is_marked: bool,
    /// The mode of created parents.
    pub(super) parents: CreateMode,
}

/// New data, and the caller that waits for the update.
#[derive(Debug)]
pub(super) struct DataUpdate {
    pub(super) data: Bytes,
    pub(super) done: oneshot::Sender<Result<(), PresenceError>>,
}

/// What is known of this presence's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnNode {
    None,
    /// A create was sent and not answered. Until it is, the data stays unchanged.
    Unknown,
    Made(Zxid),
}

impl OwnNode {
    /// Whether a node of the current session is this presence's. An unanswered create is recognised by its
    /// result, which no other request leaves: a node that was created and written in one transaction.
    /// `Reservation` ensures that no other presence of this client has done that. For an unmarked node, only the
    /// session is compared.
    fn is(self, stat: &Stat, is_marked: bool) -> bool {
        match self {
            Self::None => false,
            Self::Unknown if !is_marked => true,
            Self::Unknown if stat.version == FIRST_VERSION => stat.mzxid == stat.czxid,
            // Other programs have written to it since.
            Self::Unknown => stat.version > FIRST_VERSION,
            Self::Made(czxid) => stat.czxid == czxid,
        }
    }
}

/// What the task waits for.
pub(super) enum Watching {
    SeenNode(SeenNode),
    Other(Watcher),
}

/// This presence's node, as it was last read.
pub(super) struct SeenNode {
    stat: Stat,
    watcher: Watcher,
}

/// An ephemeral node, and what is known of it.
pub(super) struct SessionNode {
    terms: PresenceTerms,
    path: ZnodePath,
    state: StateSender,
    updates: mpsc::UnboundedReceiver<DataUpdate>,
    own_node: OwnNode,
    /// Whether the node has existed. Before that, an existing node may be of an earlier run.
    has_been: bool,
    unanswered: Unanswered,
    /// Released when the node is gone.
    reservation: Option<Reservation>,
}

impl Drop for SessionNode {
    fn drop(&mut self) {
        let Some(target) = self.target() else { return };
        let client = &self.terms.client;
        let deleted = client.clean_up_confirmed(target);
        let reservation = self.reservation.take();
        // The runtime of the caller may be blocked, or there may be none.
        client.tokio_runtime().spawn(async move {
            // A delete that fails permanently, or while no server is reachable for a session timeout, blocks no
            // other presence.
            drop(deleted.await);
            drop(reservation);
        });
    }
}

impl KeptNode for SessionNode {
    type Seen = Watching;

    fn client(&self) -> &Client {
        &self.terms.client
    }

    fn state(&self) -> &StateSender {
        &self.state
    }

    async fn enter(&mut self) -> EnterOutcome<Watching> {
        self.note_all();
        let made = self.born(self.terms.client.transaction(), FIRST_VERSION);
        self.attempt(made, false).await
    }

    async fn stay(&mut self, watching: Watching) -> Result<(), PresenceError> {
        match watching {
            Watching::SeenNode(own) => {
                self.stay_own(own).await;
                self.own_node = OwnNode::None;
                self.state.tell(PresenceState::Absent);
            }
            // Whatever ends the wait, the next read shows the state.
            Watching::Other(mut watcher) => loop {
                tokio::select! {
                    biased;
                    _ = watcher.changed() => break,
                    Some(update) = self.updates.recv() => self.note(update),
                }
            },
        }
        Ok(())
    }

    async fn reach(&mut self) {
        let client = self.terms.client.clone();
        let mut reachable = pin!(retry::reachable(&client));
        loop {
            tokio::select! {
                biased;
                () = &mut reachable => return,
                // The node is created with the new data, and the caller need not wait for the end of the outage.
                Some(update) = self.updates.recv(), if self.own_node == OwnNode::None => {
                    self.note(update);
                }
            }
        }
    }

    async fn rest(&mut self) {
        tokio::select! {
            biased;
            Some(update) = self.updates.recv() => self.note(update),
            () = tokio::time::sleep(STUCK_PAUSE) => {}
        }
    }

    async fn end(mut self) -> Result<(), Error> {
        let Some(target) = self.target() else { return Ok(()) };
        let deleted = self.terms.client.clean_up_confirmed(target).await;
        self.own_node = OwnNode::None;
        match deleted {
            // The node is gone with its session.
            Err(error) if error.is_session_expired() => Ok(()),
            deleted => deleted,
        }
    }
}

impl SessionNode {
    pub(super) fn new(
        terms: PresenceTerms,
        path: ZnodePath,
        state: StateSender,
        updates: mpsc::UnboundedReceiver<DataUpdate>,
        reservation: Reservation,
    ) -> Self {
        let (own_node, unanswered) = (OwnNode::None, Unanswered::default());
        let (has_been, reservation) = (false, Some(reservation));
        Self { terms, path, state, updates, own_node, has_been, unanswered, reservation }
    }

    /// The node that must be deleted.
    fn target(&self) -> Option<Cleanup> {
        let expected = match self.own_node {
            OwnNode::None => return None,
            OwnNode::Unknown => ExpectedNode::WithData(self.terms.data.clone()),
            OwnNode::Made(czxid) => ExpectedNode::CreatedBy(czxid),
        };
        Some(Cleanup::IfExpected { node: self.path.clone(), expected })
    }

    /// Takes the requested updates, unless a node with the earlier data may exist.
    fn note_all(&mut self) {
        while self.own_node == OwnNode::None
            && let Ok(update) = self.updates.try_recv()
        {
            self.note(update);
        }
    }

    /// The node does not exist: it will be created with the new data.
    fn note(&mut self, update: DataUpdate) {
        self.terms.data = update.data;
        // The caller may have stopped waiting.
        let _ = update.done.send(Ok(()));
    }

    // ----- while the node exists ----------------------------------------------------------------

    /// Waits until the node is gone, or the session has ended.
    async fn stay_own(&mut self, mut own: SeenNode) {
        loop {
            let update = tokio::select! {
                biased;
                event = own.watcher.changed() => match event {
                    Ok(event) if event.kind == EventKind::NodeDeleted => return,
                    Err(_) => return,
                    Ok(_) => None,
                },
                Some(update) = self.updates.recv() => Some(update),
            };
            if let Some(update) = update {
                match self.rewrite(&mut own.stat, update).await {
                    true => continue,
                    false => return,
                }
            }

            // The node was written, perhaps by this presence.
            own = loop {
                match self.terms.client.data_watched(&self.path).await {
                    Ok(((_, stat), watcher)) if stat.czxid == own.stat.czxid => {
                        break SeenNode { stat, watcher };
                    }
                    Err(error) if error.is_retryable() => {
                        retry::outlast(&self.terms.client, &error).await;
                    }
                    // It still exists, and may be reported again.
                    Err(error) if is_unreadable(&error) => {
                        tokio::time::sleep(LONGEST_PAUSE).await;
                    }
                    _ => return,
                }
            };
        }
    }

    /// Writes new data into the node. If the node does not exist, it will be created with the data. Returns whether
    /// the node exists.
    async fn rewrite(&mut self, stat: &mut Stat, update: DataUpdate) -> bool {
        let DataUpdate { data, done } = update;
        let before = std::mem::replace(&mut self.terms.data, data.clone());
        let (is_there, told) = match self.write(stat, &data).await {
            Ok(is_there) => (is_there, Ok(())),
            Err(error) => {
                self.terms.data = before;
                (true, Err(error))
            }
        };
        // The caller may have stopped waiting.
        let _ = done.send(told);
        is_there
    }

    async fn write(&mut self, stat: &mut Stat, data: &Bytes) -> Result<bool, PresenceError> {
        let client = self.terms.client.clone();
        let mut unanswered = Unanswered::default();
        loop {
            let (mut too_long, begun) = (None, client.now());
            // In a later session, another program's node may be at the path.
            let write = client.transaction().in_session(stat.ephemeral_owner);
            let write = write.set_data(&self.path, data.clone(), Some(stat.version));
            match write.commit().await {
                Ok(_) => {
                    stat.version += 1;
                    return Ok(true);
                }
                Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }) => return Ok(false),
                Err(TransactionError::Failed { code: ErrorCode::BadVersion, .. }) => {}
                Err(TransactionError::Request(error)) if error.is_session_expired() => {
                    return Ok(false);
                }
                Err(TransactionError::Request(error)) if error.is_retryable() => {
                    let size = (data.len(), begun);
                    too_long = unanswered.one_more(&client, &error, size);
                    retry::outlast(&client, &error).await;
                }
                Err(refusal) => return Err(refusal.into()),
            }

            // Another program has written, or this one has, and its reply was lost.
            if too_long.is_some() {
                // A read behind a `sync` is final: it is not that of a lagging server.
                let _ = client.sync(&self.path).await;
            }
            match client.data(&self.path).await {
                Ok((_, seen)) if seen.czxid != stat.czxid => return Ok(false),
                Ok((found, seen)) => {
                    *stat = seen;
                    match too_long {
                        _ if found == *data => return Ok(true),
                        Some(why) => return Err(PresenceError::too_long(&self.path, why)),
                        None => {}
                    }
                }
                Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(false),
                Err(error) if error.is_session_expired() => return Ok(false),
                Err(error) if error.is_retryable() => retry::outlast(&client, &error).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    // ----- while it does not --------------------------------------------------------------------

    /// Creates a node of this presence with this version, or an unmarked one, as the last part of a transaction.
    /// Its data is sent once.
    fn born(&self, before: Transaction, version: i32) -> Transaction {
        let data = self.terms.data.clone();
        if !self.terms.is_marked {
            return before.create(&self.path, data, CreateMode::Ephemeral);
        }

        let mut made = before.create(&self.path, Bytes::new(), CreateMode::Ephemeral);
        for before in 0..version - 1 {
            made = made.set_data(&self.path, Bytes::new(), Some(before));
        }
        made.set_data(&self.path, data, Some(version - 1))
    }

    /// `replaces`: the transaction deletes a node of an earlier run first.
    async fn attempt(
        &mut self,
        transaction: Transaction,
        replaces: bool,
    ) -> EnterOutcome<Watching> {
        let client = self.terms.client.clone();
        let size = (self.terms.data.len(), client.now());
        let earlier = std::mem::replace(&mut self.own_node, OwnNode::Unknown);
        // Pipelined: the read follows the write.
        let look = async { client.data_watched(&self.path).await };
        let (made, seen) = tokio::join!(transaction.commit_numbered(), look);

        let refusal = match made {
            Ok((_, czxid)) => {
                (self.own_node, self.has_been) = (OwnNode::Made(czxid), true);
                self.unanswered = Unanswered::default();
                return match seen {
                    Ok(((_, stat), watcher)) if stat.czxid == czxid => self.present(stat, watcher),
                    Err(error) if is_unreadable(&error) => EnterOutcome::Failed(error.into()),
                    // The next read finds that it is this presence's, or gone.
                    _ => EnterOutcome::AGAIN,
                };
            }
            Err(TransactionError::Request(error)) => {
                if error.outcome() == Outcome::NotApplied {
                    self.own_node = earlier;
                }
                return match self.unanswered.one_more(&client, &error, size) {
                    Some(why) => self.give_up(why).await,
                    None => EnterOutcome::passing(error),
                };
            }
            Err(refusal) => refusal,
        };

        // This write was refused, but an earlier one may have been applied.
        (self.own_node, self.unanswered) = (earlier, Unanswered::default());
        let TransactionError::Failed { code, .. } = &refusal else {
            return EnterOutcome::Failed(refusal.into());
        };
        match (*code, seen) {
            (ErrorCode::NodeExists, Ok(((data, stat), watcher))) => {
                Box::pin(self.found(&data, stat, watcher, replaces)).await
            }
            (ErrorCode::NodeExists, Err(error)) if is_unreadable(&error) => {
                EnterOutcome::Failed(error.into())
            }
            (ErrorCode::NoNode, _) if !replaces => {
                make_parents(&client, &self.path, self.terms.parents).await
            }
            // The node, or another one, existed and is gone.
            (ErrorCode::NodeExists | ErrorCode::BadVersion | ErrorCode::NoNode, _) => {
                EnterOutcome::AGAIN
            }
            _ => EnterOutcome::Failed(refusal.into()),
        }
    }

    /// Servers seem to close the connection at the data, unless the node was created and only the answer was lost.
    async fn give_up(&mut self, why: TooLong) -> EnterOutcome<Watching> {
        let client = self.terms.client.clone();
        // A read behind a `sync` is final, on a later connection too.
        let look = async { client.data_watched(&self.path).await };
        let (synced, seen) = tokio::join!(client.sync(&self.path), look);

        match (synced, seen) {
            (Ok(_), Ok(((_, stat), watcher))) if self.is_own(&stat) => {
                (self.own_node, self.unanswered) =
                    (OwnNode::Made(stat.czxid), Unanswered::default());
                return self.present(stat, watcher);
            }
            (Ok(_), Ok(_)) => {}
            (Ok(_), Err(error)) if error.code() == Some(ErrorCode::NoNode) => {}
            (Err(error), _) | (_, Err(error)) => return EnterOutcome::passing(error),
        }

        self.own_node = OwnNode::None;
        EnterOutcome::Failed(PresenceError::too_long(&self.path, why))
    }

    /// Whether a node is this presence's, in the current session.
    fn is_own(&self, stat: &Stat) -> bool {
        let is_of_session = stat.ephemeral_owner == self.terms.client.session_id();
        is_of_session && self.own_node.is(stat, self.terms.is_marked)
    }

    /// The path already has a node.
    async fn found(
        &mut self,
        data: &[u8],
        stat: Stat,
        watcher: Watcher,
        has_tried: bool,
    ) -> EnterOutcome<Watching> {
        let (client, owner) = (self.terms.client.clone(), stat.ephemeral_owner);
        if self.is_own(&stat) {
            self.own_node = OwnNode::Made(stat.czxid);
            return self.present(stat, watcher);
        }

        // The refused write used the newest connection, and no older one can follow it.
        self.own_node = OwnNode::None;

        let may_replace = !has_tried && !self.has_been;
        let is_ours = self.terms.is_ours.as_ref().is_some_and(|is_ours| is_ours(data));
        let is_earlier_life = owner != SessionId::NONE && owner != client.session_id();
        if may_replace && is_ours && is_earlier_life && stat.version >= FIRST_VERSION {
            let gone = client.transaction().delete(&self.path, Some(stat.version));
            // The earlier run may not have noticed yet: its writes must not match the version of the new node.
            let version =
                if stat.version < MAX_FIRST_VERSION { stat.version + 1 } else { FIRST_VERSION };
            let replaced = self.born(gone, version);
            return self.attempt(replaced, true).await;
        }

        if self.terms.when_taken == WhenTaken::Fail {
            let path = self.path.to_string();
            return EnterOutcome::Failed(PresenceError::Taken { path, by: owner });
        }
        self.state.tell(PresenceState::Taken { by: owner });
        EnterOutcome::Done(Watching::Other(watcher))
    }

    fn present(&mut self, stat: Stat, watcher: Watcher) -> EnterOutcome<Watching> {
        self.has_been = true;
        self.state.tell(PresenceState::Present { czxid: stat.czxid });
        EnterOutcome::Done(Watching::SeenNode(SeenNode { stat, watcher }))
    }
}

/// Whether the node exists, but may not be read, or is too long.
fn is_unreadable(error: &Error) -> bool {
    error.code() == Some(ErrorCode::NoAuth) || error.answer_too_long().is_some()
}
