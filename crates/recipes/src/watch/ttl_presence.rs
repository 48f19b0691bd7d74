//! [`TtlPresence`]: a node that outlives its program for a limited time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::retry::{TooLong, Unanswered, reachable, retry_anywhere, retry_pause};
use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, SessionId, Stat, TransactionError, ZnodePath, Zxid,
    present,
};
use tokio::sync::watch;

use crate::watch::presence::{
    EnterOutcome, IsOurs, KeptNode, PresenceError, PresenceState, PresenceTask, STUCK_PAUSE,
    StateSender, WhenTaken, make_parents,
};

/// The name of the child that keeps the node alive.
const TOUCH: &str = "touch";

/// How often the node is touched within its time to live.
const TOUCHES_PER_TTL: u32 = 2;

/// Options of a [`TtlPresence`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct TtlPresenceBuilder {
    client: Client,
    path: String,
    ttl: Duration,
    data: Bytes,
    when_taken: WhenTaken,
    is_ours: Option<IsOurs>,
}

lockkeeper_client::impl_debug!(TtlPresenceBuilder, self => path: self.path, ttl: self.ttl);

impl TtlPresenceBuilder {
    lockkeeper_client::setters! {
        /// Sets the node's data. Default: empty.
        pub fn data(self, data: impl Into<Bytes>) => self.data = data.into();

        /// Sets what to do if another program's node exists. Default: [`WhenTaken::Wait`].
        pub fn when_taken(self, what: WhenTaken) => self.when_taken = what;

        /// Recognises, by the data of its node, an earlier run of this program. Such a node is taken over in place,
        /// until this presence has existed once: its data is replaced, and the node always exists. Without this
        /// option, a restarted program waits until the time to live of its last run is over.
        pub fn replaces(self, is_ours: impl Fn(&[u8]) -> bool + Send + Sync + 'static) =>
            self.is_ours = Some(Arc::new(is_ours));
    }

    /// Creates the node, and its missing parents (as containers). Returns when the node exists, or when another
    /// program's node is found and waited for. Costs one round trip (1 write) if the node does not exist, two more to
    /// take over that of an earlier run, and more if parents are missing.
    ///
    /// # Errors
    /// If the path is not valid for a presence; [`PresenceError::NoTtlNodes`] if the servers do not support such
    /// nodes; if the node is refused permanently, or taken with [`WhenTaken::Fail`], or no server can be
    /// reached for a session timeout.
    ///
    /// # Cancel safety
    /// When dropped, a created node is deleted when its time to live is over.
    ///
    /// # Session loss
    /// None.
    pub async fn start(self) -> Result<TtlPresence, PresenceError> {
        let path = PresenceError::check(&self.client, &self.path)?;
        let touch = path.child(TOUCH)?;
        let (state, changes) = StateSender::new(path.clone());
        let id = Bytes::from(self.client.unique_id().to_string());
        let unanswered = Unanswered::default();
        let node = TtlNode { options: self, path, touch, id, state, life: None, unanswered };
        Ok(TtlPresence { changes, keeping: PresenceTask::begin(node).await? })
    }
}

/// A node that outlives its program for a limited time, after which the servers delete it.
///
/// Dropping this leaves the node for the rest of its time to live; [`TtlPresence::end`] deletes it.
///
/// # Guarantees
///
/// - The node exists while its program keeps it alive, also in later sessions. It is touched twice in its
///   time to live, and after an outage as soon as a server is reachable. So outages and restarts that are
///   shorter than half of the time to live do not end it.
/// - If the node is not touched for its time to live, the servers delete it.
/// - Another program's node is never overwritten, kept alive or deleted. The child `touch` identifies the
///   owner. It is read before each write, and each write requires that it is unchanged.
///
/// # Not guaranteed
///
/// - It does not exclude other programs, and has no deadline: a program that was disconnected for longer learns
///   at its next touch that the node is gone, or is another program's.
/// - Between a read and its write, another program may delete the child, and a third one create it again with
///   the same version.
/// - The node does not end with its session: use a [`Presence`](crate::Presence) for that.
///
/// # Znodes
///
/// - `<path>` is a container node, with the given data.
/// - `<path>/touch` has the time to live. Its data identifies the program and its run, as in
///   Curator's `PersistentTtlNode`.
///
/// Servers support such nodes only if they are enabled: `extendedTypesEnabled` for ZooKeeper,
/// `allow_ttl_nodes` for the engine. They look for expired nodes periodically (each minute by default), so the
/// node is deleted up to twice that later. Their wall clocks count.
///
/// # Cost
///
/// - A start costs 1 round trip with 1 write.
/// - Each half of the time to live costs 2 round trips with 1 read and 1 write.
/// - The [end](TtlPresence::end) costs 2 round trips with 1 write.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().allow_ttl_nodes().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use std::time::Duration;
///
/// use lockkeeper::{PresenceState, TtlPresence};
///
/// let ttl = Duration::from_secs(60);
/// let options = TtlPresence::builder(&client, "/cameras/7", ttl).data("10.0.0.7");
/// let presence = options.replaces(|data| data == b"10.0.0.7").start().await?;
/// assert!(matches!(presence.state(), PresenceState::Present { .. }));
/// // The node exists for the next minute, even if this program dies.
/// drop(presence);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "PersistentTtlNode")]
#[must_use = "the node is no longer kept alive when this is dropped"]
#[derive(Debug)]
pub struct TtlPresence {
    changes: watch::Receiver<PresenceState>,
    keeping: PresenceTask,
}

impl TtlPresence {
    /// The options of a presence at a path with a time to live (1 ms to about 34 years; seconds to hours are
    /// sensible).
    pub fn builder(client: &Client, path: &str, ttl: Duration) -> TtlPresenceBuilder {
        TtlPresenceBuilder {
            client: client.clone(),
            path: path.to_owned(),
            ttl,
            data: Bytes::new(),
            when_taken: WhenTaken::default(),
            is_ours: None,
        }
    }

    /// The state at the last touch.
    pub fn state(&self) -> PresenceState {
        self.changes.borrow().clone()
    }

    /// The state, now and after every change. States that follow each other quickly may be skipped, but never the
    /// last one, which says that the presence has ended.
    pub fn changes(&self) -> watch::Receiver<PresenceState> {
        self.changes.clone()
    }

    /// Deletes the node, and waits for the confirmation. Another program's node is not deleted. If other programs
    /// have created nodes below it, it is deleted after those. Costs two round trips.
    ///
    /// # Errors
    /// If the delete is refused, or no server can be reached for a session timeout; the node is then deleted when its
    /// time to live is over.
    ///
    /// # Session loss
    /// None: continues with the next session.
    ///
    /// # Cancel safety
    /// When dropped, the delete continues in the background.
    pub async fn end(self) -> Result<(), Error> {
        self.keeping.end().await
    }
}

/// The owner of the node when it was last read.
#[derive(Clone, Copy)]
enum NodeOwner {
    This,
    Other,
}

/// A node that was read.
struct TtlNodeFound {
    data: Bytes,
    stat: Stat,
    /// The data and stat of its child, if it exists.
    touch: Option<(Bytes, Stat)>,
}

/// A node with a time to live, and what is known of it.
struct TtlNode {
    options: TtlPresenceBuilder,
    path: ZnodePath,
    touch: ZnodePath,
    /// The data of the child while the node is this presence's.
    id: Bytes,
    state: StateSender,
    /// The last node of this presence. Before the first one, a node may be of an earlier run.
    life: Option<Zxid>,
    unanswered: Unanswered,
}

// A request may be dropped in flight: each write is bound to a version, and `end` reads the node afterwards.
impl KeptNode for TtlNode {
    type Seen = NodeOwner;

    fn client(&self) -> &Client {
        &self.options.client
    }

    fn state(&self) -> &StateSender {
        &self.state
    }

    async fn enter(&mut self) -> EnterOutcome<NodeOwner> {
        let TtlPresenceBuilder { client, data, ttl, .. } = &self.options;
        let (mode, id) = (CreateMode::PersistentTtl, self.id.clone());
        let size = (data.len(), client.now());
        let make = client.transaction().create(&self.path, data.clone(), CreateMode::Container);
        let made = make.create_ttl(&self.touch, id, mode, *ttl).commit_numbered().await;

        let refusal = match made {
            Ok((_, czxid)) => return self.present(czxid),
            Err(TransactionError::Request(error)) => {
                return match self.unanswered.one_more(client, &error, size) {
                    Some(why) => self.give_up(why).await,
                    None => EnterOutcome::passing(error),
                };
            }
            Err(refusal) => refusal,
        };
        self.unanswered = Unanswered::default();
        match &refusal {
            TransactionError::Failed { code: ErrorCode::NodeExists, .. } => self.look().await,
            TransactionError::Failed { code: ErrorCode::NoNode, .. } => {
                make_parents(client, &self.path, CreateMode::Container).await
            }
            _ => EnterOutcome::Failed(self.refused(refusal)),
        }
    }

    /// Touches the node, or waits until another program's node is gone.
    async fn stay(&mut self, owner: NodeOwner) -> Result<(), PresenceError> {
        loop {
            tokio::time::sleep(self.options.ttl / TOUCHES_PER_TTL).await;
            loop {
                // A touch is overdue after an outage: less than half of the time may be left.
                reachable(&self.options.client).await;
                if let NodeOwner::Other = owner {
                    return Ok(());
                }
                match self.try_touch().await {
                    Ok(true) => break,
                    Ok(false) => return Ok(()),
                    Err(error) if error.is_unreachable() => {}
                    Err(error) => retry_anywhere(error).await?,
                }
            }
        }
    }

    async fn reach(&mut self) {
        reachable(&self.options.client).await;
    }

    async fn rest(&mut self) {
        tokio::time::sleep(STUCK_PAUSE.max(self.options.ttl / TOUCHES_PER_TTL)).await;
    }

    async fn end(self) -> Result<(), Error> {
        loop {
            match self.try_delete().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.is_session_expired() => {}
                Err(error) => retry_pause(error).await?,
            }
        }
    }
}

impl TtlNode {
    /// Returns whether the node is still this presence's, as far as known.
    async fn try_touch(&self) -> Result<bool, Error> {
        let client = &self.options.client;
        // The version alone does not distinguish the child from one that another program has created since.
        let version = match present(client.data(&self.touch).await)? {
            Some((id, stat)) if id == self.id => stat.version,
            _ => return Ok(false),
        };
        match client.set_data(&self.touch, self.id.clone(), Some(version)).await {
            Ok(_) => Ok(true),
            // The child is gone, or was written by others, or by a request of this one whose reply was lost.
            Err(error)
                if matches!(error.code(), Some(ErrorCode::NoNode | ErrorCode::BadVersion)) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads whose node exists.
    async fn look(&mut self) -> EnterOutcome<NodeOwner> {
        let TtlNodeFound { data, stat, touch } = match self.read().await {
            Ok(Some(found)) => found,
            Ok(None) => return EnterOutcome::AGAIN,
            Err(error) => return EnterOutcome::passing(error),
        };
        if touch.as_ref().is_some_and(|(id, _)| *id == self.id) {
            return self.present(stat.czxid);
        }

        let is_ours = self.options.is_ours.as_ref().is_some_and(|is_ours| is_ours(&data));
        let is_earlier_life = is_ours && self.life.is_none();
        // The servers have deleted its child, but not yet the node.
        let is_orphan = touch.is_none() && self.life == Some(stat.czxid);
        if (is_earlier_life || is_orphan) && stat.ephemeral_owner == SessionId::NONE {
            return self.take_over(&stat, touch.map(|(_, touch)| touch)).await;
        }

        let by = stat.ephemeral_owner;
        if self.options.when_taken == WhenTaken::Fail {
            return EnterOutcome::Failed(PresenceError::Taken { path: self.path.to_string(), by });
        }
        self.state.tell(PresenceState::Taken { by });
        EnterOutcome::Done(NodeOwner::Other)
    }

    /// Reads the node and its child; `None` if the node does not exist.
    async fn read(&self) -> Result<Option<TtlNodeFound>, Error> {
        let client = &self.options.client;
        let (node, touch) = (client.data(&self.path), client.data(&self.touch));
        let Some((data, stat)) = present(node.await)? else { return Ok(None) };
        Ok(Some(TtlNodeFound { data, stat, touch: present(touch.await)? }))
    }

    /// Takes over the node of an earlier run, or one that has lost its child, if it is unchanged since it was read.
    async fn take_over(&mut self, stat: &Stat, touch: Option<Stat>) -> EnterOutcome<NodeOwner> {
        let TtlPresenceBuilder { client, data, ttl, .. } = &self.options;
        let steps = client.transaction().set_data(&self.path, data.clone(), Some(stat.version));
        let steps = match &touch {
            Some(touch) => steps.set_data(&self.touch, self.id.clone(), Some(touch.version)),
            None => {
                let (mode, id) = (CreateMode::PersistentTtl, self.id.clone());
                steps.create_ttl(&self.touch, id, mode, *ttl)
            }
        };

        match steps.commit().await {
            Ok(_) => self.present(stat.czxid),
            Err(TransactionError::Request(error)) => EnterOutcome::passing(error),
            Err(TransactionError::Failed {
                code: ErrorCode::BadVersion | ErrorCode::NoNode | ErrorCode::NodeExists,
                ..
            }) => EnterOutcome::AGAIN,
            Err(refusal) => EnterOutcome::Failed(self.refused(refusal)),
        }
    }

    fn refused(&self, refusal: TransactionError) -> PresenceError {
        match &refusal {
            TransactionError::Failed { code: ErrorCode::Unimplemented, .. } => {
                PresenceError::NoTtlNodes { path: self.path.clone() }
            }
            _ => refusal.into(),
        }
    }

    fn present(&mut self, czxid: Zxid) -> EnterOutcome<NodeOwner> {
        (self.life, self.unanswered) = (Some(czxid), Unanswered::default());
        self.state.tell(PresenceState::Present { czxid });
        EnterOutcome::Done(NodeOwner::This)
    }

    /// Returns whether nothing is left to delete.
    async fn try_delete(&self) -> Result<bool, Error> {
        let client = &self.options.client;
        // A create may be in flight whose caller has gone. A read behind a `sync` is not older, on a later connection
        // either.
        let (synced, found) = tokio::join!(client.sync(&self.path), self.read());
        synced?;
        let Some(TtlNodeFound { stat, touch, .. }) = found? else { return Ok(true) };
        let version = match touch {
            Some((id, touch)) if id == self.id => touch.version,
            // The servers have begun to delete it.
            None if self.life == Some(stat.czxid) => {
                return is_settled(client.delete(&self.path, Some(stat.version)).await);
            }
            _ => return Ok(true),
        };

        let steps = client.transaction().delete(&self.touch, Some(version));
        match steps.delete(&self.path, None).commit().await {
            Ok(_) => Ok(true),
            Err(TransactionError::Request(error)) => Err(error),
            Err(TransactionError::Failed {
                code: ErrorCode::NoNode | ErrorCode::BadVersion,
                ..
            }) => Ok(false),
            // Other programs have created nodes below it.
            Err(TransactionError::Failed { code: ErrorCode::NotEmpty, .. }) => {
                is_settled(client.delete(&self.touch, Some(version)).await)
            }
            // The single request is refused again, with the reason.
            Err(TransactionError::Failed { index: 0, .. }) => {
                client.delete(&self.touch, Some(version)).await.map(|()| false)
            }
            Err(_) => client.delete(&self.path, Some(stat.version)).await.map(|()| false),
        }
    }

    /// Servers seem to close the connection at the data, unless the node was created and only the answer was lost.
    async fn give_up(&mut self, why: TooLong) -> EnterOutcome<NodeOwner> {
        // A read behind a `sync` is final, on a later connection too.
        if let Err(error) = self.options.client.sync(&self.path).await {
            return EnterOutcome::passing(error);
        }
        match self.look().await {
            EnterOutcome::Done(NodeOwner::Other) | EnterOutcome::Again { is_unreachable: None } => {
                EnterOutcome::Failed(PresenceError::too_long(&self.path, why))
            }
            looked => looked,
        }
    }
}

/// Whether a delete has left nothing to do: the node is gone, or other programs have nodes below it.
fn is_settled(deleted: Result<(), Error>) -> Result<bool, Error> {
    let Err(error) = deleted else { return Ok(true) };
    match error.code() {
        Some(ErrorCode::NoNode | ErrorCode::NotEmpty) => Ok(true),
        Some(ErrorCode::BadVersion) => Ok(false),
        _ => Err(error),
    }
}
