//! A node that is there while this program is.
//!
//! ```text
//!   presence      Presence, its options and its states
//!   keeping       the task that keeps a node there, of whichever kind
//!   keeper        a node of the session, as it keeps it
//!   reservation   which nodes have a presence in this process
//!   state         how a presence stands, and why it could not begin or has ended
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

pub(crate) use keeping::{Entered, Keeping, KeptNode, make_parents};
pub(crate) use state::{IsOurs, STUCK_PAUSE, StateSender};
pub use state::{PresenceError, PresenceState, WhenTaken};

/// An update that was begun, and goes on by itself.
pub(crate) type PendingUpdate = oneshot::Receiver<Result<(), PresenceError>>;

/// How many session timeouts another's node is there before its session is taken to live.
const TAKEN: f64 = 1.5;

/// The options of a [`Presence`].
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
        /// The node's data. Default: none.
        pub fn data(self, data: impl Into<Bytes>) => self.terms.data = data.into();

        /// What to do when somebody else's node is there. Default: [`WhenTaken::Wait`].
        pub fn when_taken(self, what: WhenTaken) => self.terms.when_taken = what;

        /// How an earlier life of this program is known by the data of its node, such as by an id of this
        /// machine that no other has. Such a node is replaced, and not waited for: at the start, and also
        /// later, when a node that was waited for has gone. A presence that has been there once replaces
        /// nobody any more: if two programs run that take each other for an earlier life, the one that
        /// started last has the node, and they do not fight over it. If this panics, the presence ends
        /// ([`PresenceError::Stopped`]).
        pub fn replaces(self, is_ours: impl Fn(&[u8]) -> bool + Send + Sync + 'static) =>
            self.terms.is_ours = Some(Arc::new(is_ours));

        /// Puts `_c_` and a number that nobody else has before the name, as Curator's protection does.
        /// The name stays the same over sessions; [`Presence::path`] tells it. For nodes that are found by
        /// listing the one above them: no other's node is ever in the way.
        pub fn protected(self) => self.is_protected = true;

        /// Whether the node's version tells it from one that was just made by others, which a later life of
        /// this program asks for before it [replaces](Self::replaces) it. Else those who watch have one event
        /// in place of two.
        pub(crate) fn marked(self, is_marked: bool) => self.terms.is_marked = is_marked;

        /// What the nodes above are made as, where they are missing.
        pub(crate) fn parents(self, mode: CreateMode) => self.terms.parents = mode;
    }

    /// Makes the node, and whatever is missing above it (as containers). Returns when the node is
    /// there, or is found to be somebody else's that is waited for. If this client had a presence there that
    /// was dropped, or whose end nobody waited for, the node of that is waited for first. Costs one round
    /// trip (1 write and 1 read), one more to replace an earlier life, and more if nodes above are missing.
    ///
    /// # Errors
    /// If the path cannot be that of a presence; if the node is refused for good, or taken under
    /// [`WhenTaken::Fail`], or no server can be reached for a session timeout;
    /// [`PresenceError::TooLong`] if servers close the connection at it; [`PresenceError::InUse`] if this
    /// client has a presence there.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It is made in the next session.
    pub async fn start(self) -> Result<Presence, PresenceError> {
        let path = self.node()?;
        let client = self.terms.client.clone();
        let Some((in_use, reservation)) = Reservation::take(&client, &path).await else {
            return Err(PresenceError::InUse { path });
        };
        let (state, changes) = StateSender::new(path.clone());
        let (updates, asked) = mpsc::unbounded_channel();
        let node = SessionNode::new(self.terms, path.clone(), state, asked, reservation);
        let keeping = Keeping::begin(node).await?;
        Ok(Presence { client, path, changes, updates, keeping, in_use })
    }

    /// The path of the node.
    fn node(&self) -> Result<ZnodePath, PresenceError> {
        let path = PresenceError::check(&self.terms.client, &self.path)?;
        match (self.is_protected, path.parent()) {
            (true, Some(parent)) => {
                // Curator's protection: by its own identity the node is known whose creation was not answered.
                let id = self.terms.client.unique_id();
                Ok(parent.child(&format!("_c_{id}-{}", path.name()))?)
            }
            _ => Ok(path),
        }
    }
}

/// A node that is there while this is, over reconnects and sessions. Dropping it deletes the node in
/// the background.
///
/// # Guarantees
///
/// - The node belongs to the present session, or [`Presence::state`] says why not.
/// - It comes back with the next session, and when somebody deletes it.
/// - It never writes over or deletes another's node.
/// - An earlier life of this program is [replaced](PresenceBuilder::replaces) in one transaction,
///   so nobody sees a gap.
///
/// # Not guaranteed
///
/// - The node may not be there at this moment: while the client is cut off, the servers may have
///   ended its session. [`Client::lease`](lockkeeper_client::Client::lease) says until when they have not.
/// - When an earlier life is replaced, or the data is updated, the node may be another one than was
///   read, if within that one round trip somebody deletes it and a third `Presence` makes it anew.
///
/// # Znodes
///
/// The node is at the path as it is, or with [`PresenceBuilder::protected`] has `_c_<uuid>-` before
/// its name. It is ephemeral, and has the data that it is given, as Curator's `PersistentNode`
/// without and with protection.
///
/// Its version is 1 from the start, which tells it from a node that was just made by others; or up
/// to 4, so that it is another one than that of the life that it replaces. For that, an access
/// control list must let the presence WRITE to its own node. Members of a [`Group`](crate::Group)
/// that replace no earlier life do without: they begin with 0.
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
    keeping: Keeping,
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

    /// How it stands.
    pub fn state(&self) -> PresenceState {
        self.changes.borrow().clone()
    }

    /// How it stands, now and with every change. States that follow each other quickly may be left
    /// out, the last one never: that it has ended.
    pub fn changes(&self) -> watch::Receiver<PresenceState> {
        self.changes.clone()
    }

    /// Waits until somebody else's node has been in the place for one and a half session timeouts, and says
    /// whose: a session that has ended would be gone by then, if its timeout is no longer than that of this
    /// client. Two programs that run with one name are found so. What comes then is the same as without this:
    /// it is waited for. The time begins anew whenever this client is cut off, as it does not see then
    /// whether the node goes. Makes no request.
    ///
    /// Gives why the presence has ended, if it has.
    ///
    /// # Session loss
    /// The time begins anew.
    ///
    /// # Cancel safety
    /// Safe; the time begins anew.
    pub async fn taken(&self) -> PresenceError {
        self.is_taken().await
    }

    /// [`Presence::taken`], for a task that does not have it.
    pub(crate) fn is_taken(&self) -> impl Future<Output = PresenceError> + Send + use<> {
        taken(self.client.clone(), self.path.clone(), self.changes())
    }

    /// Changes the node's data, now and for every time that the node is made anew. Nobody sees a gap:
    /// the node stays the same. Returns when a server has confirmed it, or at once while the node is
    /// not there, which is then made with this data. Costs one round trip.
    ///
    /// # Errors
    /// If it is refused for good, such as for its length ([`PresenceError::TooLong`] where servers close
    /// the connection at it), and the data stays as it was; or if the presence has ended.
    ///
    /// # Session loss
    /// The node is made with the new data in the next session.
    ///
    /// # Cancel safety
    /// It is changed in the background.
    pub async fn update(&self, data: impl Into<Bytes>) -> Result<(), PresenceError> {
        self.finish_update(self.begin_update(data.into())).await
    }

    /// Begins an update, after those that were begun before.
    pub(crate) fn begin_update(&self, data: Bytes) -> PendingUpdate {
        let (done, told) = oneshot::channel();
        // This fails only when the task has ended, and then it has said why.
        let _ = self.updates.send(DataUpdate { data, done });
        told
    }

    /// What came of an update.
    pub(crate) async fn finish_update(&self, update: PendingUpdate) -> Result<(), PresenceError> {
        if let Ok(result) = update.await {
            return result;
        }
        match self.state() {
            PresenceState::Ended(error) => Err(error),
            _ => Err(PresenceError::Stopped { path: self.path.clone() }),
        }
    }

    /// Deletes the node, and waits until that is certain. Another's is not touched. Costs two round trips.
    ///
    /// # Errors
    /// If the delete is refused, or the client is closed; or if no server could be reached for a session
    /// timeout: it goes on in the background then.
    ///
    /// # Session loss
    /// Ends the wait: the node has gone with its session.
    ///
    /// # Cancel safety
    /// The node is deleted in the background.
    pub async fn end(self) -> Result<(), Error> {
        // Who starts the next one waits from now on.
        drop(self.in_use);
        self.keeping.end().await
    }
}

/// Waits until somebody else's node has been in the place of this one for long, or it has ended.
async fn taken(
    client: Client,
    path: ZnodePath,
    mut changes: watch::Receiver<PresenceState>,
) -> PresenceError {
    let is_alive = client.session_timeout().mul_f64(TAKEN);
    let is_told = |state: &PresenceState| {
        matches!(state, PresenceState::Taken { .. } | PresenceState::Ended(_))
    };

    loop {
        let taken = match changes.wait_for(is_told).await.map(|state| state.clone()) {
            Err(_) => return PresenceError::Stopped { path },
            Ok(PresenceState::Ended(error)) => return error,
            Ok(taken) => taken,
        };

        // Only a connected client would see the node go.
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

/// Waits until the client is connected, and then for so long, or until it is cut off; says whether it was not.
async fn is_connected_for(client: &Client, time: Duration) -> bool {
    let mut status = client.status();
    // Neither fails while there is a client.
    let _ = status.wait_for(|status| status.contact == Contact::Connected).await;
    let cut_off = status.wait_for(|status| status.contact != Contact::Connected);
    tokio::time::timeout(time, cut_off).await.is_err()
}
