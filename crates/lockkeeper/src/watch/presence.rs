//! A node that is there while this program is.
//!
//! Guarantees  the node belongs to the present session, or [`Presence::state`] says why not; it comes
//!             back with the next session, and when somebody deletes it; it never writes over or
//!             deletes another's node; an earlier life of this program is replaced in one
//!             transaction, so nobody sees a gap.
//! Not         that the node is there at this moment: while the client is cut off, the servers may
//!             have ended its session ([`Client::lease`](crate::Client::lease) says until when not).
//!             Two presences of one client at one path. When an earlier life is replaced: that it was
//!             not itself replaced, within that one round trip, by a third `Presence` on the path.
//! Znodes      the path as it is, ephemeral; data as given (Curator's `PersistentNode`). Its version is
//!             1 from the start, which tells it from a node that was just made by others.
//! Cost        start, and each new session: 1 round trip with 1 write and 1 read. Its end: 2 round
//!             trips and 1 write.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
//! use lockkeeper::{Presence, PresenceState};
//!
//! let presence = Presence::builder(&client, "/workers/7").data("10.0.0.7:80").start().await?;
//! assert!(matches!(presence.state(), PresenceState::Present { .. }));
//! presence.end().await?;
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, Client, CreateMode, Error, ErrorCode, EventKind, ExpectedNode, Outcome, PathError,
    SessionId, Stat, Transaction, TransactionError, Watcher, ZnodePath, Zxid,
};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// The pauses between attempts that servers refuse, or that find no server.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The data version of a node that a presence made.
const BORN: i32 = 1;

/// How a [`Presence`] stands, as far as is known here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PresenceState {
    /// The node is there, and belongs to the present session.
    Present {
        /// The transaction that made it: it grows from one life to the next.
        czxid: Zxid,
    },
    /// The node is not there, and is being made.
    Absent,
    /// Somebody else's node is there. It is waited for to go.
    Taken {
        /// Its session; [`SessionId::NONE`] if it is no ephemeral node, which does not go by itself.
        by: SessionId,
    },
    /// It has ended.
    Ended(PresenceError),
}

/// Why a [`Presence`] could not begin, or has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresenceError {
    /// The path is not one.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Somebody else's node is there, and it was not to be waited for.
    #[error("{path} is taken by {}", owner_of(*by))]
    Taken {
        /// The node.
        path: String,
        /// Its session; [`SessionId::NONE`] if it is no ephemeral node.
        by: SessionId,
    },
    /// A server refused the node for good.
    #[error(transparent)]
    Refused(#[from] TransactionError),
    /// A request failed for good.
    #[error(transparent)]
    Request(#[from] Error),
}

fn owner_of(session: SessionId) -> String {
    match session {
        SessionId::NONE => {
            "a node that does not go by itself; delete it, or choose another name".into()
        }
        session => format!("the session {session}; wait for its end, or choose another name"),
    }
}

/// What a [`Presence`] does when somebody else's node is at its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenTaken {
    /// It waits until the node is gone, and then makes its own.
    #[default]
    Wait,
    /// It ends.
    Fail,
}

type IsOurs = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// The options of a [`Presence`].
#[derive(Clone)]
#[must_use = "nothing is made before `start`"]
pub struct PresenceBuilder {
    client: Client,
    path: String,
    data: Bytes,
    when_taken: WhenTaken,
    is_ours: Option<IsOurs>,
}

impl fmt::Debug for PresenceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PresenceBuilder");
        shown
            .field("path", &self.path)
            .field("when_taken", &self.when_taken)
            .finish_non_exhaustive()
    }
}

impl PresenceBuilder {
    /// The node's data. Default: none.
    pub fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.data = data.into();
        self
    }

    /// What to do when somebody else's node is there. Default: [`WhenTaken::Wait`].
    pub fn when_taken(mut self, what: WhenTaken) -> Self {
        self.when_taken = what;
        self
    }

    /// How an earlier life of this program is known by the data of its node, such as by an id of this
    /// machine that no other has. Such a node is replaced at once, and not waited for.
    pub fn replaces(mut self, is_ours: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        self.is_ours = Some(Arc::new(is_ours));
        self
    }

    /// Makes the node, and whatever is missing above it (as containers). Returns when the node is
    /// there, or is found to be somebody else's that is waited for.
    ///
    /// # Errors
    /// If the node is refused for good, or taken under [`WhenTaken::Fail`], or no server can be
    /// reached for a session timeout.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It is made in the next session.
    pub async fn start(self) -> Result<Presence, PresenceError> {
        let path = ZnodePath::new(&self.path)?;
        let (state, changes) = watch::channel(PresenceState::Absent);
        let mut keeper = Keeper { options: self, path, state, life: Life::None };
        let lookout = loop {
            match keeper.enter().await {
                Entering::Done(lookout) => break lookout,
                Entering::Again { is_unreachable: Some(error) } => return Err(error.into()),
                Entering::Again { .. } => tokio::time::sleep(FIRST_PAUSE).await,
                Entering::Failed(error) => return Err(error),
            }
        };
        let (stop, stopped) = oneshot::channel();
        let client = keeper.options.client.clone();
        let task = tokio::spawn(keeper.run(lookout, stopped));
        Ok(Presence { client, changes, stop, task })
    }
}

/// A node that is there while this is, over reconnects and sessions. Dropping it deletes the node in
/// the background.
#[doc(alias = "PersistentNode")]
#[doc(alias = "PersistentEphemeralNode")]
#[doc(alias = "GroupMember")]
#[must_use = "the node is deleted when this is dropped"]
#[derive(Debug)]
pub struct Presence {
    client: Client,
    changes: watch::Receiver<PresenceState>,
    /// Dropping it stops the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<Option<Cleanup>>,
}

impl Presence {
    /// A presence at a path, with options.
    pub fn builder(client: &Client, path: &str) -> PresenceBuilder {
        PresenceBuilder {
            client: client.clone(),
            path: path.to_owned(),
            data: Bytes::new(),
            when_taken: WhenTaken::default(),
            is_ours: None,
        }
    }

    /// How it stands.
    pub fn state(&self) -> PresenceState {
        self.changes.borrow().clone()
    }

    /// How it stands, now and with every change. States that follow each other quickly may be left
    /// out, the last one never.
    pub fn changes(&self) -> watch::Receiver<PresenceState> {
        self.changes.clone()
    }

    /// Deletes the node, and waits until that is certain. Another's is not touched.
    ///
    /// # Errors
    /// If the delete is refused, or the client is closed. If the session is over, so is the node.
    ///
    /// # Cancel safety
    /// The node is deleted in the background.
    pub async fn end(self) -> Result<(), Error> {
        // It is gone only if it has ended by itself.
        let _ = self.stop.send(());
        // It fails only if its runtime has ended, which has begun the delete.
        let Ok(Some(target)) = self.task.await else { return Ok(()) };
        match self.client.clean_up_confirmed(target).await {
            Err(error) if error.is_session_expired() => Ok(()),
            result => result,
        }
    }
}

/// What there may be of a node of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    None,
    /// A create was sent, and no answer says what came of it.
    Unknown,
    Made(Zxid),
}

/// What comes of an attempt.
enum Entering {
    Done(Lookout),
    Again { is_unreachable: Option<Error> },
    Failed(PresenceError),
}

/// What is waited for now.
enum Lookout {
    Own { czxid: Zxid, watcher: Watcher },
    Other(Watcher),
}

/// Keeps a node there.
struct Keeper {
    options: PresenceBuilder,
    path: ZnodePath,
    state: watch::Sender<PresenceState>,
    life: Life,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(target) = self.target() {
            self.options.client.clean_up(target);
        }
    }
}

impl Keeper {
    /// What has to be deleted.
    fn target(&self) -> Option<Cleanup> {
        let expected = match self.life {
            Life::None => return None,
            Life::Unknown => ExpectedNode::WithData(self.options.data.clone()),
            Life::Made(czxid) => ExpectedNode::CreatedBy(czxid),
        };
        Some(Cleanup::IfExpected { node: self.path.clone(), expected })
    }

    /// Until it is stopped: gives what is left to delete.
    async fn run(mut self, first: Lookout, stopped: oneshot::Receiver<()>) -> Option<Cleanup> {
        let is_asked_for = tokio::select! {
            error = self.keep(first) => {
                self.state.send_replace(PresenceState::Ended(error));
                return None;
            }
            asked = stopped => asked.is_ok(),
        };
        if !is_asked_for {
            // Nobody waits for the end of it.
            return None;
        }
        let target = self.target();
        self.life = Life::None;
        target
    }

    async fn keep(&mut self, first: Lookout) -> PresenceError {
        let mut lookout = first;
        loop {
            match lookout {
                Lookout::Own { czxid, watcher } => {
                    self.stay(czxid, watcher).await;
                    self.life = Life::None;
                    self.state.send_replace(PresenceState::Absent);
                }
                // Whatever ends it, the next look says how it is.
                Lookout::Other(mut watcher) => drop(watcher.changed().await),
            }
            let mut pause = FIRST_PAUSE;
            lookout = loop {
                match self.enter().await {
                    Entering::Done(next) => break next,
                    Entering::Failed(error) => return error,
                    Entering::Again { .. } => tokio::time::sleep(pause).await,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            };
        }
    }

    /// Waits until the node is gone, or the session over.
    async fn stay(&self, czxid: Zxid, mut watcher: Watcher) {
        loop {
            match watcher.changed().await {
                Ok(event) if event.kind == EventKind::NodeDeleted => return,
                Err(_) => return,
                Ok(_) => {}
            }
            watcher = loop {
                match self.options.client.data_watched(&self.path).await {
                    Ok(((_, stat), watcher)) if stat.czxid == czxid => break watcher,
                    Err(error) if error.is_retryable() => tokio::time::sleep(FIRST_PAUSE).await,
                    _ => return,
                }
            };
        }
    }

    /// Makes the node, if it is not there, and watches what is there.
    async fn enter(&mut self) -> Entering {
        let made = self.born(self.options.client.transaction());
        self.attempt(made, true).await
    }

    /// A node of ours, as the last part of a transaction.
    fn born(&self, before: Transaction) -> Transaction {
        let data = &self.options.data;
        let created = before.create(&self.path, data.clone(), CreateMode::Ephemeral);
        created.set_data(&self.path, data.clone(), Some(BORN - 1))
    }

    async fn attempt(&mut self, transaction: Transaction, may_replace: bool) -> Entering {
        let client = self.options.client.clone();
        let earlier = self.life;
        self.life = Life::Unknown;
        // Both are sent at once, and the look is taken after the write.
        let look = async { client.data_watched(&self.path).await };
        let (made, seen) = tokio::join!(transaction.commit_numbered(), look);

        let refusal = match made {
            Ok((_, czxid)) => {
                self.life = Life::Made(czxid);
                return match seen {
                    Ok(((_, stat), watcher)) if stat.czxid == czxid => self.present(czxid, watcher),
                    // It is looked at again, and found to be our own or gone.
                    _ => {
                        self.life = Life::Unknown;
                        Entering::Again { is_unreachable: None }
                    }
                };
            }
            Err(TransactionError::Request(error)) => {
                if error.outcome() == Outcome::NotApplied {
                    self.life = earlier;
                }
                return passing(error);
            }
            Err(refusal) => refusal,
        };

        // This one was refused, but one before it may have been applied.
        self.life = earlier;
        let TransactionError::Failed { code, .. } = &refusal else {
            return Entering::Failed(refusal.into());
        };
        match (*code, seen) {
            (ErrorCode::NodeExists, Ok(((data, stat), watcher))) => {
                Box::pin(self.found(&data, stat, watcher, may_replace)).await
            }
            (ErrorCode::NoNode, _) if may_replace => self.make_parents().await,
            // It was there, or another one was, and is not any more.
            (ErrorCode::NodeExists | ErrorCode::BadVersion | ErrorCode::NoNode, _) => {
                Entering::Again { is_unreachable: None }
            }
            _ => Entering::Failed(refusal.into()),
        }
    }

    /// A node is there already.
    async fn found(
        &mut self,
        data: &[u8],
        stat: Stat,
        watcher: Watcher,
        may_replace: bool,
    ) -> Entering {
        let (client, owner) = (self.options.client.clone(), stat.ephemeral_owner);
        if self.life == Life::Unknown && owner == client.session_id() {
            self.life = Life::Made(stat.czxid);
            return self.present(stat.czxid, watcher);
        }

        let is_ours = self.options.is_ours.as_ref().is_some_and(|is_ours| is_ours(data));
        let is_earlier_life = owner != SessionId::NONE && owner != client.session_id();
        if may_replace && is_ours && is_earlier_life && stat.version >= BORN {
            let gone = client.transaction().delete(&self.path, Some(stat.version));
            let replaced = self.born(gone);
            return self.attempt(replaced, false).await;
        }

        if self.options.when_taken == WhenTaken::Fail {
            let path = self.path.to_string();
            return Entering::Failed(PresenceError::Taken { path, by: owner });
        }
        self.state.send_replace(PresenceState::Taken { by: owner });
        Entering::Done(Lookout::Other(watcher))
    }

    fn present(&self, czxid: Zxid, watcher: Watcher) -> Entering {
        self.state.send_replace(PresenceState::Present { czxid });
        Entering::Done(Lookout::Own { czxid, watcher })
    }

    async fn make_parents(&self) -> Entering {
        let Some(parent) = self.path.parent() else {
            return Entering::Again { is_unreachable: None };
        };
        match self.options.client.ensure(&parent, CreateMode::Container).await {
            Ok(()) => Entering::Again { is_unreachable: None },
            Err(error) => passing(error),
        }
    }
}

/// An attempt that came to nothing, for now or for good.
fn passing(error: Error) -> Entering {
    if error.is_unreachable() {
        return Entering::Again { is_unreachable: Some(error) };
    }
    match error.is_retryable() || error.is_session_expired() {
        true => Entering::Again { is_unreachable: None },
        false => Entering::Failed(error.into()),
    }
}
