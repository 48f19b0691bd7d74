//! A node that is there while this program is.
//!
//! ```text
//!   presence   Presence, its options and its states
//!   keeper     the task that keeps the node there
//!   post       which nodes have a presence in this process
//! ```
//!
//! Guarantees  the node belongs to the present session, or [`Presence::state`] says why not; it comes
//!             back with the next session, and when somebody deletes it; it never writes over or
//!             deletes another's node; an earlier life of this program is replaced in one
//!             transaction, so nobody sees a gap.
//! Not         that the node is there at this moment: while the client is cut off, the servers may
//!             have ended its session ([`Client::lease`](crate::Client::lease) says until when not).
//!             When an earlier life is replaced, or the data is updated: that the node was not
//!             deleted by somebody and made anew by a third `Presence` within that one round trip.
//! Znodes      the path as it is, or with [`PresenceBuilder::protected`] `_c_<uuid>-` before its name;
//!             ephemeral; data as given (Curator's `PersistentNode`, without and with protection). Its
//!             version is 1 from the start, which tells it from a node that was just made by others; or
//!             up to 4, so that it is another one than that of the life that it replaces.
//! Cost        start, and each new session: 1 round trip with 1 write and 1 read. An update: 1 round
//!             trip with 1 write, and 1 event and 1 read after it. Its end: 2 round trips and 1 write.
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

mod keeper;
mod post;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, Client, CreateMode, Error, PathError, SessionId, TransactionError, ZnodePath, Zxid,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::profile::protected_name;
use crate::watch::presence::keeper::{Keeper, Update};
use crate::watch::presence::post::Post;

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
    /// This client has a presence there already.
    #[error("{path} has a presence of this client already; end that one first, or share it")]
    InUse {
        /// The node.
        path: ZnodePath,
    },
    /// The servers keep no nodes with a time to live.
    #[error(
        "{path} needs a time to live, which the servers do not offer: ZooKeeper does with \
         extendedTypesEnabled=true, Lockkeeper's engine with allow_ttl_nodes"
    )]
    NoTtlNodes {
        /// The node.
        path: ZnodePath,
    },
    /// A server refused the node for good.
    #[error(transparent)]
    Refused(#[from] TransactionError),
    /// The runtime that kept the node there has ended.
    #[error(
        "the runtime that kept {path} there has ended; keep it running as long as the presence"
    )]
    Stopped {
        /// The node.
        path: ZnodePath,
    },
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
    is_protected: bool,
    /// Whether the node's version tells it from one that was just made by others.
    is_marked: bool,
    /// What is made of the nodes that are missing above it.
    parents: CreateMode,
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
    /// machine that no other has. Such a node is replaced at the start, and not waited for. A presence
    /// that has been there once replaces nobody any more: if two programs run that take each other for
    /// an earlier life, the one that started last has the node, and they do not fight over it.
    pub fn replaces(mut self, is_ours: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        self.is_ours = Some(Arc::new(is_ours));
        self
    }

    /// Puts `_c_` and a number that nobody else has before the name, as Curator's protection does.
    /// The name stays the same over sessions; [`Presence::path`] tells it. For nodes that are found by
    /// listing the one above them: no other's node is ever in the way.
    pub fn protected(mut self) -> Self {
        self.is_protected = true;
        self
    }

    /// Whether the node's version tells it from one that was just made by others, which a later life of
    /// this program asks for before it [replaces](Self::replaces) it. Else those who watch have one event
    /// in place of two.
    pub(crate) fn marked(mut self, is_marked: bool) -> Self {
        self.is_marked = is_marked;
        self
    }

    /// What the nodes above are made as, where they are missing.
    pub(crate) fn parents(mut self, mode: CreateMode) -> Self {
        self.parents = mode;
        self
    }

    /// Makes the node, and whatever is missing above it (as containers). Returns when the node is
    /// there, or is found to be somebody else's that is waited for.
    ///
    /// # Errors
    /// If the node is refused for good, or taken under [`WhenTaken::Fail`], or no server can be
    /// reached for a session timeout; [`PresenceError::InUse`] if this client has a presence there.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It is made in the next session.
    pub async fn start(self) -> Result<Presence, PresenceError> {
        let path = self.node()?;
        let Some(post) = Post::take(&self.client, &path) else {
            return Err(PresenceError::InUse { path });
        };
        let client = self.client.clone();
        let (state, changes) = watch::channel(PresenceState::Absent);
        let (updates, asked) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(self, path.clone(), state, asked);
        let lookout = keeper.begin().await?;

        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keeper.run(lookout, stopped));
        Ok(Presence { client, path, changes, updates, stop, task, _post: post })
    }

    /// The path of the node.
    fn node(&self) -> Result<ZnodePath, PathError> {
        let path = ZnodePath::new(&self.path)?;
        match (self.is_protected, path.parent()) {
            (true, Some(parent)) => {
                parent.child(&protected_name(self.client.unique_id(), path.name()))
            }
            _ => Ok(path),
        }
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
    path: ZnodePath,
    changes: watch::Receiver<PresenceState>,
    updates: mpsc::UnboundedSender<Update>,
    /// Dropping it stops the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<Option<Cleanup>>,
    _post: Post,
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
            is_protected: false,
            is_marked: true,
            parents: CreateMode::Container,
        }
    }

    /// The path of the node.
    pub fn path(&self) -> &ZnodePath {
        &self.path
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

    /// Changes the node's data, now and for every time that the node is made anew. Nobody sees a gap:
    /// the node stays the same. Returns when a server has confirmed it, or at once while the node is
    /// not there, which is then made with this data. Costs one round trip.
    ///
    /// # Errors
    /// If it is refused for good, such as for its length, and the data stays as it was; or if the
    /// presence has ended.
    ///
    /// # Session loss
    /// The node is made with the new data in the next session.
    ///
    /// # Cancel safety
    /// It is changed in the background.
    pub async fn update(&self, data: impl Into<Bytes>) -> Result<(), PresenceError> {
        let (done, told) = oneshot::channel();
        // Both fail only when the task has ended, and then it has said why.
        let _ = self.updates.send(Update { data: data.into(), done });
        if let Ok(result) = told.await {
            return result;
        }
        match self.state() {
            PresenceState::Ended(error) => Err(error),
            _ => Err(PresenceError::Stopped { path: self.path.clone() }),
        }
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
