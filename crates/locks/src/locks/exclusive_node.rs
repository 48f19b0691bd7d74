//! The simplest lock: a single node, which exists while the lock is held. `CreateAttempt` finds out the outcome
//! of a create request whose reply is lost.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, Client, CreateMode, Created, Error, ErrorCode, EventKind, ExpectedNode, NameUse,
    Outcome, SessionId, Watcher, ZnodePath,
};
use serde::Serialize;

use crate::acquire::lock_options::{HolderLabels, LockOptions, lock_options};
use crate::acquire::queue_handle::within;
use crate::acquire::reentry::{OwnerEntry, OwnerHold};
use crate::attempt::{Attempt, out_of_reach, retried, retry_acquire};
use crate::error::{AcquireError, BuildError, ReleaseError};
use crate::exposure::Warned;
use crate::guard::owned_node::OwnedNode;
use crate::guard::{Guard, offers_guard};
use crate::locks::owner::Owner;
use crate::owner_info::OwnerInfo;
use crate::telemetry::acquiring::Acquiring;
use crate::telemetry::metric_kind::MetricKind;

/// The simplest lock: a single node, which exists while the lock is held.
///
/// A [`Mutex`](crate::Mutex) is fair, and scales to many waiters. Each `ExclusiveNode` has an owner:
/// a new one, unless the builder sets one. Cheap to clone; clones have the same owner.
///
/// # Guarantees
///
/// - There is one holder at a time.
/// - Its owner can enter again without a request to a server.
/// - No holder leaves a znode behind.
///
/// # Not guaranteed
///
/// - Waiters are not ordered: the fastest one gets the lock, and others may starve.
/// - A release wakes every waiter. Until n waiters have all had the lock, they cost n(n + 1)/2 events and as many
///   creates. A [`Mutex`](crate::Mutex) wakes one waiter each time. Use this lock
///   where contention is rare, or to share it with other programs that use such a node.
/// - Transactions are not exact, as all holders' nodes have one name; see [`Guard::transaction`].
///
/// # Znodes
///
/// `<path>` itself, ephemeral. Its data is [`OwnerInfo`](crate::OwnerInfo), with the owner's name
/// and the id of the attempt. Its parent is a container node.
///
/// # Cost
///
/// - An acquire costs 1 round trip. Entering again costs none.
/// - When the lock is held, an acquire costs 1 more round trip, and for each release 1 event and
///   1 round trip, or 2 if another waiter was faster.
/// - A held lock costs 1 read with each heartbeat.
/// - A release costs 2 round trips, because a node whose name others use too is read before it is
///   deleted.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::ExclusiveNode;
///
/// let locker1 = ExclusiveNode::new(&client, "/locks/orders")?;
/// let locker2 = ExclusiveNode::new(&client, "/locks/orders")?;
///
/// let guard = locker1.acquire().await?;
/// assert!(locker1.try_acquire().await?.is_some(), "its owner may enter again");
/// assert!(locker2.try_acquire().await?.is_none());
/// guard.release().await?;
/// assert!(locker2.try_acquire().await?.is_some());
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ExclusiveNode {
    client: Client,
    path: ZnodePath,
    owner: Owner,
    labels: HolderLabels,
    waits_for: WaitsFor,
    warned: Warned,
}

lockkeeper_client::shown_by_path!(ExclusiveNode);

/// The nodes that a waiter waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// All nodes: other programs may delete theirs.
    #[default]
    Any,
    /// Ephemeral nodes. Another node is an error, [`AcquireError::NotEphemeral`].
    Ephemeral,
}

/// The data of the node.
#[derive(Serialize)]
struct HolderRecord<'a> {
    #[serde(flatten)]
    info: OwnerInfo,
    owner: &'a str,
    /// Distinguishes this node from other nodes of the same owner.
    attempt: String,
}

/// The options of an [`ExclusiveNode`]. There is no `profile` option, because the node has the name of the
/// lock.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `build`"]
pub struct ExclusiveNodeBuilder {
    options: LockOptions,
    path: String,
    owner: Option<Owner>,
    waits_for: WaitsFor,
    warned: Warned,
}

lock_options!(ExclusiveNodeBuilder: acl, label, user, why);

impl ExclusiveNodeBuilder {
    lockkeeper_client::setters! {
        /// The owner that enters through this handle. It can also enter through other handles. Default: a new
        /// owner. Without a label, the owner's name is the holder's label.
        pub fn owner(self, owner: &Owner) => self.owner = Some(owner.clone());

        pub(crate) fn waits_for(self, nodes: WaitsFor) => self.waits_for = nodes;

        /// Shares the warning of the handle that this lock is a part of, so that the handle warns once and not
        /// for each lock.
        pub(crate) fn warned(self, warned: &Warned) => self.warned = warned.clone();
    }

    /// Builds the lock. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn build(self) -> Result<ExclusiveNode, BuildError> {
        let LockOptions { client, labels, .. } = self.options;
        let path = BuildError::check(&client, &self.path)?;
        let owner = self.owner.unwrap_or_default();
        let (waits_for, warned) = (self.waits_for, self.warned);
        Ok(ExclusiveNode { client, path, owner, labels, waits_for, warned })
    }
}

impl ExclusiveNode {
    /// The lock at a path such as `/locks/orders`, with an owner of its own. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of a lock.
    pub fn builder(client: &Client, path: &str) -> ExclusiveNodeBuilder {
        let (options, path) = (LockOptions::new(client), path.to_owned());
        let (waits_for, warned) = (WaitsFor::default(), Warned::default());
        ExclusiveNodeBuilder { options, path, owner: None, waits_for, warned }
    }

    /// The lock's path, which is also the path of its node.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// The owner that enters through this handle.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Waits until the lock is free and acquires it, unless another waiter is faster; then it waits again. The owner of
    /// a held lock enters again at once. Also waits for a node that is not ephemeral, as other programs may
    /// delete theirs. Costs one round trip if the lock is free. Entering again makes no request.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire), except the errors of a queue. In addition,
    /// [`AcquireError::OwnerLost`] if the owner has entries into a lost hold.
    ///
    /// # Session loss
    /// A waiter does not have a node to lose, so it continues with the next session. If the session ends right after
    /// the node was created, it fails with [`AcquireError::SessionExpired`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. A node that was created is deleted in the background.
    pub async fn acquire(&self) -> Result<ExclusiveGuard, AcquireError> {
        self.owner_hold().enter(self.take()).await.map(ExclusiveGuard)
    }

    /// [`ExclusiveNode::acquire`] with a time limit: `timeout` covers the whole call. A limit below 10 ms makes a
    /// single try, like [`Mutex::acquire_timeout`](crate::Mutex::acquire_timeout). Costs the same as
    /// [`ExclusiveNode::acquire`].
    ///
    /// # Errors
    /// Same as [`ExclusiveNode::acquire`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`ExclusiveNode::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`ExclusiveNode::acquire`].
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<ExclusiveGuard, AcquireError> {
        within(&self.client, &self.path, timeout, || self.acquire(), self.try_acquire()).await
    }

    /// Acquires the lock only if it is free or the owner already holds it; `None` if another owner holds
    /// it. Costs one round trip. Entering again makes no request.
    ///
    /// # Errors
    /// Same as [`ExclusiveNode::acquire`], except the errors of waiting.
    ///
    /// # Session loss
    /// Same as [`ExclusiveNode::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`ExclusiveNode::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<ExclusiveGuard>, AcquireError> {
        Ok(self.owner_hold().try_enter(self.try_take()).await?.map(ExclusiveGuard))
    }

    fn owner_hold(&self) -> std::sync::Arc<OwnerHold<Guard>> {
        self.owner.nodes().owner_hold(&self.client, &self.path)
    }

    async fn take(&self) -> Result<Guard, AcquireError> {
        let call = pin!(async {
            loop {
                match self.take_once().await? {
                    Some(guard) => return Ok(guard),
                    None => self.outwait().await?,
                }
            }
        });
        self.acquiring().settle(call).await
    }

    async fn try_take(&self) -> Result<Option<Guard>, AcquireError> {
        self.acquiring().settle(pin!(self.take_once())).await
    }

    fn acquiring(&self) -> Acquiring<'_> {
        Acquiring::new(&self.client, &self.path, MetricKind::Node)
    }

    async fn take_once(&self) -> Result<Option<Guard>, AcquireError> {
        let made = retried(&self.path, || self.attempt()).await?;
        self.warned.look(&self.client, &self.path).await;
        match made {
            Some(owned) => Guard::confirm(owned, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// Creates the node; `None` if it already exists.
    async fn attempt(&self) -> Result<Option<OwnedNode>, Attempt> {
        // The attempt exists before the request is sent, so that any node that it creates is deleted.
        let mut attempt = CreateAttempt { lock: self, data: Some(self.record()) };
        let data = attempt.data.clone().unwrap_or_default();

        match self.client.create(&self.path, data.clone(), CreateMode::Ephemeral).await {
            Ok(created) => Ok(Some(attempt.taken(created))),
            Err(error) if error.code() == Some(ErrorCode::NodeExists) => {
                attempt.data = None;
                Ok(None)
            }
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                attempt.data = None;
                self.make_parent().await.map_err(|error| Attempt::at_entry(&self.path, error))?;
                Err(Attempt::Prepared)
            }
            Err(error) if error.outcome() == Outcome::NotApplied || error.is_session_expired() => {
                attempt.data = None;
                Err(Attempt::at_entry(&self.path, error))
            }
            Err(_) => attempt.find(&data).await,
        }
    }

    async fn make_parent(&self) -> Result<(), Error> {
        match self.path.parent() {
            Some(parent) => self.client.ensure(&parent, CreateMode::Container).await,
            None => Ok(()),
        }
    }

    /// Waits until the node is gone.
    async fn outwait(&self) -> Result<(), AcquireError> {
        tokio::select! {
            // A fixed order makes simulations repeatable.
            biased;
            result = self.node_gone() => result,
            error = out_of_reach(&self.client, &self.path) => Err(error),
        }
    }

    async fn node_gone(&self) -> Result<(), AcquireError> {
        loop {
            // Uses getData and not exists, which would leave a watch on a node that is already gone.
            let mut watcher: Watcher = match self.client.data_watched(&self.path).await {
                Ok(((_, stat), _))
                    if stat.ephemeral_owner == SessionId::NONE
                        && self.waits_for == WaitsFor::Ephemeral =>
                {
                    let (path, node) = (self.path.clone(), self.path.clone());
                    return Err(AcquireError::NotEphemeral { path, node });
                }
                Ok((_, watcher)) => watcher,
                Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(()),
                Err(error) if error.is_session_expired() => continue,
                Err(error) => {
                    retry_acquire(&self.path, error).await?;
                    continue;
                }
            };

            // A watch that ended with its session is set again in the next session.
            if watcher.changed().await.is_ok_and(|event| event.kind == EventKind::NodeDeleted) {
                return Ok(());
            }
        }
    }

    fn record(&self) -> Bytes {
        let mut labels = self.labels.clone();
        labels.label.get_or_insert_with(|| self.owner.to_string());
        let record = HolderRecord {
            info: labels.owner(),
            owner: self.owner.name(),
            attempt: self.client.unique_id().to_string(),
        };
        serde_json::to_vec(&record).map_or_else(|_| Bytes::new(), Bytes::from)
    }
}

/// An attempt to create the node. It exists before the request is sent. Dropping it deletes the node that
/// may have been created.
struct CreateAttempt<'a> {
    lock: &'a ExclusiveNode,
    /// The data of the node; `None` if it is certain that there is no node to delete.
    data: Option<Bytes>,
}

impl CreateAttempt<'_> {
    fn taken(mut self, node: Created) -> OwnedNode {
        let data = self.data.take().unwrap_or_default();
        let czxid = node.stat.czxid;
        let expected = ExpectedNode::CreatedBy(czxid);
        let cleanup = Some(Cleanup::IfExpected { node: node.path.clone(), expected });
        let (client, path) = (self.lock.client.clone(), self.lock.path.clone());
        OwnedNode { client, path, node, data, name: NameUse::Reused(czxid), cleanup }
    }

    /// Finds out which attempt created the node, after the reply to the create request was lost.
    async fn find(self, data: &Bytes) -> Result<Option<OwnedNode>, Attempt> {
        let (client, path) = (&self.lock.client, &self.lock.path);
        let again = |error| Attempt::at_entry(path, error);
        // The new connection may lead to a server that lags behind the one that received the create request.
        let synced = client.sync(path);
        let found = client.data(path);
        synced.await.map_err(again)?;

        match found.await {
            // A node of another session will vanish soon, so it is never adopted.
            Ok((found, stat)) if found == *data && stat.ephemeral_owner == client.session_id() => {
                let path = path.clone();
                Ok(Some(self.taken(Created { path, stat })))
            }
            Ok(_) => Ok(None),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => Err(Attempt::Again),
            Err(error) => Err(again(error)),
        }
    }
}

impl Drop for CreateAttempt<'_> {
    fn drop(&mut self) {
        if let Some(data) = self.data.take() {
            let (node, expected) = (self.lock.path.clone(), ExpectedNode::WithData(data));
            self.lock.client.clean_up(Cleanup::IfExpected { node, expected });
        }
    }
}

/// One entry into an [`ExclusiveNode`]. What a holder may believe and do is described at
/// [`Guard`]; it is the same for all entries of one owner.
#[must_use = "the entry ends when the guard is dropped"]
pub struct ExclusiveGuard(OwnerEntry<Guard>);

impl ExclusiveGuard {
    /// Ends this entry. The last one releases the lock, which costs two round trips.
    ///
    /// # Errors
    /// Same as [`Guard::release`].
    ///
    /// # Session loss
    /// The release fails, because the lock was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.0.leave().await
    }
}

offers_guard!(ExclusiveGuard, self => self.0.guard());
