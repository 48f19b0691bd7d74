//! A node that exists while this program runs.
//!
//! ```text
//!   presence      Presence, its options and its states
//!   keeping       the task that keeps a node in existence, for both kinds of presence
//!   keeper        an ephemeral node, and how it is kept
//!   reservation   the nodes that have a presence in this process
//!   state         states and errors of presences
//! ```

mod keeper;
mod keeping;
mod reservation;
mod state;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Client, Contact, CreateMode, Error, ZnodePath};
use tokio::sync::{mpsc, oneshot, watch};

use crate::watch::presence::keeper::{DataUpdate, PresenceTerms, SessionNode};
use crate::watch::presence::reservation::{InUse, Reservation};

pub(crate) use keeping::{EnterOutcome, KeptNode, PresenceTask, make_parents};
pub(crate) use state::{IsOurs, STUCK_PAUSE, StateSender};
pub use state::{PresenceError, PresenceState, WhenTaken};

/// An update in progress, which continues if this is dropped.
pub(crate) type PendingUpdate = oneshot::Receiver<Result<(), PresenceError>>;

/// The number of session timeouts after which the session of another program's node is assumed to be alive.
const TAKEN_AFTER_TIMEOUTS: f64 = 1.5;

/// Options of a [`Presence`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct PresenceBuilder {
    path: String,
    is_protected: bool,
    terms: PresenceTerms,
}

lockkeeper_client::impl_debug! {
    PresenceBuilder, self => path: self.path, when_taken: self.terms.when_taken
}

impl PresenceBuilder {
    lockkeeper_client::setters! {
        /// Sets the node's data. Default: empty.
        pub fn data(self, data: impl Into<Bytes>) => self.terms.data = data.into();

        /// Sets what to do if another program's node exists. Default: [`WhenTaken::Wait`].
        pub fn when_taken(self, what: WhenTaken) => self.terms.when_taken = what;

        /// Recognises, by the data of its node, an earlier run of this program: for example by an id that is unique
        /// to this machine. Such a node is replaced instead of waited for, at the start, and also later, when a
        /// node that was waited for has gone. A presence that has existed once does not replace other nodes any
        /// more: if two programs take each other for an earlier run, the one that started last keeps the node, and
        /// they do not fight over it. If the closure panics, the presence ends ([`PresenceError::Stopped`]).
        pub fn replaces(self, is_ours: impl Fn(&[u8]) -> bool + Send + Sync + 'static) =>
            self.terms.is_ours = Some(Arc::new(is_ours));

        /// Prefixes the name with `_c_` and a unique id, as Curator's protection does. The name stays the same over
        /// sessions; [`Presence::path`] returns it. For nodes that are found by listing their parent: no other
        /// program's node has the same name.
        pub fn protected(self) => self.is_protected = true;

        /// Whether the node's version distinguishes it from a node that another program has just created, which a
        /// later run of this program requires before it [replaces](Self::replaces) it. Without it, watchers get one
        /// event instead of two.
        pub(crate) fn marked(self, is_marked: bool) => self.terms.is_marked = is_marked;

        /// Sets the mode in which missing parents are created.
        pub(crate) fn parents(self, mode: CreateMode) => self.terms.parents = mode;
    }

    /// Creates the node, and its missing parents (as containers). Returns when the node exists, or when another
    /// program's node is found and waited for. If this client has dropped a presence at this path, or ended it
    /// without waiting, the call first waits until that one's node is gone. Costs one round trip (1 write and 1
    /// read), one more to replace an earlier run, and more if parents are missing.
    ///
    /// # Errors
    /// If the path is not valid for a presence; if the node is refused permanently, or taken with
    /// [`WhenTaken::Fail`], or no server can be reached for a session timeout;
    /// [`PresenceError::TooLong`] if the connection is lost at each attempt; [`PresenceError::InUse`] if this
    /// client has a presence at this path.
    ///
    /// # Cancel safety
    /// When dropped, leaves no node behind.
    ///
    /// # Session loss
    /// Creates the node in the next session.
    pub async fn start(self) -> Result<Presence, PresenceError> {
        let path = self.node()?;
        let client = self.terms.client.clone();
        let Some((in_use, reservation)) = Reservation::take(&client, &path).await else {
            return Err(PresenceError::InUse { path });
        };
        let (state, changes) = StateSender::new(path.clone());
        let (updates, asked) = mpsc::unbounded_channel();
        let node = SessionNode::new(self.terms, path.clone(), state, asked, reservation);
        let keeping = PresenceTask::begin(node).await?;
        Ok(Presence { client, path, changes, updates, keeping, in_use })
    }

    /// The path of the node.
    fn node(&self) -> Result<ZnodePath, PresenceError> {
        let path = PresenceError::check(&self.terms.client, &self.path)?;
        match (self.is_protected, path.parent()) {
            (true, Some(parent)) => {
                // As in Curator, the id identifies the node even if the reply to its creation is lost.
                let id = self.terms.client.unique_id();
                Ok(parent.child(&format!("_c_{id}-{}", path.name()))?)
            }
            _ => Ok(path),
        }
    }
}

/// A node that exists as long as this value, over reconnects and sessions. Dropping it deletes the node in
/// the background.
///
/// # Guarantees
///
/// - The node belongs to the current session, or [`Presence::state`] says why not.
/// - It comes back with the next session, and after it was deleted by another program.
/// - It never overwrites or deletes another program's node.
/// - An earlier run of this program is [replaced](PresenceBuilder::replaces) in one transaction, without a
///   moment in which no node exists.
///
/// # Not guaranteed
///
/// - The node may not exist at this moment: while the client is disconnected, the servers may have
///   ended its session. [`Client::lease`](lockkeeper_client::Client::lease) says until when they have not.
/// - When an earlier run is replaced, or the data is updated, the written node may be a newer one than the
///   node that was read, if another program deletes it and a third `Presence` creates it again within that one
///   round trip.
///
/// # Znodes
///
/// The node has the given path, or with [`PresenceBuilder::protected`] the prefix `_c_<uuid>-` in its name.
/// It is ephemeral, and has the given data, as Curator's `PersistentNode` without and with protection.
///
/// Its version starts at 1, which distinguishes it from a node that another program has just created; or at
/// up to 4, so that it differs from the node of the run that it replaces. This requires an access control
/// list that lets the presence WRITE to its own node. Members of a [`Group`](crate::Group) that replace no
/// earlier run do not need it: their version starts at 0.
///
/// # Cost
///
/// - A start costs 1 round trip with 1 write and 1 read, and so does each new session.
/// - An update costs 1 round trip with 1 write, and 1 event and 1 read after it.
/// - The [end](Presence::end) costs 2 round trips and 1 write.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Presence, PresenceState};
///
/// let presence = Presence::builder(&client, "/workers/7").data("10.0.0.7:80").start().await?;
/// assert!(matches!(presence.state(), PresenceState::Present { .. }));
/// presence.end().await?;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "PersistentNode")]
#[doc(alias = "PersistentEphemeralNode")]
#[doc(alias = "GroupMember")]
#[must_use = "the node is deleted when this is dropped"]
#[derive(Debug)]
pub struct Presence {
    client: Client,
    path: ZnodePath,
    changes: watch::Receiver<PresenceState>,
    updates: mpsc::UnboundedSender<DataUpdate>,
    keeping: PresenceTask,
    in_use: InUse,
}

impl Presence {
    /// A presence at a path, with options.
    pub fn builder(client: &Client, path: &str) -> PresenceBuilder {
        let terms = PresenceTerms {
            client: client.clone(),
            data: Bytes::new(),
            when_taken: WhenTaken::default(),
            is_ours: None,
            is_marked: true,
            parents: CreateMode::Container,
        };
        PresenceBuilder { path: path.to_owned(), is_protected: false, terms }
    }

    /// The path of the node.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// The state of the node.
    pub fn state(&self) -> PresenceState {
        self.changes.borrow().clone()
    }

    /// The state, now and after every change. States that follow each other quickly may be skipped, but never the
    /// last one, which says that the presence has ended.
    pub fn changes(&self) -> watch::Receiver<PresenceState> {
        self.changes.clone()
    }

    /// Returns when another program's node has been at the path for one and a half session timeouts, with its
    /// session: a session that has ended would be gone by then, if its timeout is not longer than that of this
    /// client. This finds two programs that run under one name. The presence itself still waits for the node. The
    /// time starts over whenever this client is disconnected, because it would not see a deletion then. Makes no
    /// request.
    ///
    /// Returns why the presence has ended, if it has.
    ///
    /// # Session loss
    /// The time starts over.
    ///
    /// # Cancel safety
    /// Safe; the time starts over.
    pub async fn taken(&self) -> PresenceError {
        self.is_taken().await
    }

    /// [`Presence::taken`], for a task that does not own the presence.
    pub(crate) fn is_taken(&self) -> impl Future<Output = PresenceError> + Send + use<> {
        taken(self.client.clone(), self.path.clone(), self.changes())
    }

    /// Changes the node's data, also for all later creations of the node. The node is changed in place. Returns
    /// when a server has confirmed it, or at once while the node does not exist; it is created with this data
    /// then. Costs one round trip.
    ///
    /// # Errors
    /// If it is refused permanently, for example for its length ([`PresenceError::TooLong`] if the connection is lost
    /// at each attempt), and the data stays unchanged; or if the presence has ended.
    ///
    /// # Session loss
    /// The node is created with the new data in the next session.
    ///
    /// # Cancel safety
    /// When dropped, the update continues in the background.
    pub async fn update(&self, data: impl Into<Bytes>) -> Result<(), PresenceError> {
        self.finish_update(self.begin_update(data.into())).await
    }

    /// Begins an update, after those that were begun before.
    pub(crate) fn begin_update(&self, data: Bytes) -> PendingUpdate {
        let (done, told) = oneshot::channel();
        // This fails only when the task has ended, and the state has the reason then.
        let _ = self.updates.send(DataUpdate { data, done });
        told
    }

    /// The result of an update.
    pub(crate) async fn finish_update(&self, update: PendingUpdate) -> Result<(), PresenceError> {
        if let Ok(result) = update.await {
            return result;
        }
        match self.state() {
            PresenceState::Ended(error) => Err(error),
            _ => Err(PresenceError::Stopped { path: self.path.clone() }),
        }
    }

    /// Deletes the node, and waits for the confirmation. Another program's node is not deleted. Costs two round
    /// trips.
    ///
    /// # Errors
    /// If the delete is refused, or the client is closed; or if no server could be reached for a session
    /// timeout: then the delete continues in the background.
    ///
    /// # Session loss
    /// Ends the wait: the node is gone with its session.
    ///
    /// # Cancel safety
    /// When dropped, the node is deleted in the background.
    pub async fn end(self) -> Result<(), Error> {
        // A new presence at this path waits from now on.
        drop(self.in_use);
        self.keeping.end().await
    }
}

/// Returns when another program's node has been at the path for long, or the presence has ended.
async fn taken(
    client: Client,
    path: ZnodePath,
    mut changes: watch::Receiver<PresenceState>,
) -> PresenceError {
    let is_alive = client.session_timeout().mul_f64(TAKEN_AFTER_TIMEOUTS);
    let is_told = |state: &PresenceState| {
        matches!(state, PresenceState::Taken { .. } | PresenceState::Ended(_))
    };

    loop {
        let taken = match changes.wait_for(is_told).await.map(|state| state.clone()) {
            Err(_) => return PresenceError::Stopped { path },
            Ok(PresenceState::Ended(error)) => return error,
            Ok(taken) => taken,
        };

        // Only a connected client would see the node's deletion.
        let differs = changes.wait_for(|state| *state != taken);
        let is_over = tokio::select! {
            biased;
            _ = differs => false,
            is_over = is_connected_for(&client, is_alive) => is_over,
        };
        if is_over && let PresenceState::Taken { by } = taken {
            return PresenceError::Taken { path: path.to_string(), by };
        }
    }
}

/// Waits until the client is connected, and then for this time; returns false if the connection is lost before.
async fn is_connected_for(client: &Client, time: Duration) -> bool {
    let mut status = client.status();
    // Neither call fails while the client exists.
    let _ = status.wait_for(|status| status.contact == Contact::Connected).await;
    let cut_off = status.wait_for(|status| status.contact != Contact::Connected);
    tokio::time::timeout(time, cut_off).await.is_err()
}
