//! A contender: one place in a queue, from before the creation of its node to its deletion.
//!
//! As in the ZooKeeper recipes and Apache Curator, nodes are ephemeral and sequential, and a waiter
//! watches only the closest one ahead. The create and the listing are sent together.

mod in_transaction;
mod parts;

use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, Client, CreateMode, Created, Error, ErrorCode, Listing, Outcome, Watcher, ZnodePath,
};

use crate::attempt::{Attempt, retried, retry_acquire};
use crate::contender::idle;
use crate::contender::order::{Place, QueueTail, Standing, WaitQueue};
use crate::contender::queue_settings::QueueSettings;
use crate::error::AcquireError;
use crate::profile::Kind;

/// A place in a queue.
///
/// It exists before the request that creates its node is sent. Dropping it deletes that node.
#[derive(Debug)]
pub(crate) struct Contender(Box<ContenderInner>);

/// Boxed, because a contender is moved many times on its way to the front.
#[derive(Debug)]
struct ContenderInner {
    client: Client,
    settings: Arc<QueueSettings>,
    /// The beginning of the node's name, unique to this attempt.
    prefix: String,
    /// The data that the node is created with.
    data: Bytes,
    node: Option<Created>,
    /// Whether there may be a node to delete.
    armed: bool,
}

impl Contender {
    /// Creates a node at the end of the queue, and lists the queue. Costs one round trip. With the
    /// `tail` of the last holder of the same handle, it does not list the queue unless another contender has
    /// entered since, which costs one more round trip.
    pub(crate) async fn enter(
        client: &Client,
        settings: &Arc<QueueSettings>,
        kind: Kind,
        data: &Bytes,
        tail: Option<&QueueTail>,
    ) -> Result<(Self, WaitQueue), AcquireError> {
        let attempt = async || Self::attempt(client, settings, kind, data, tail).await;
        let entered = retried(&settings.path, attempt).await?;
        if let Some(node) = &entered.0.0.node {
            client.begin_to_prove_one_service(&node.path, &node.stat);
        }
        settings.warned.look(client, &settings.path).await;
        Ok(entered)
    }

    /// A contender for which no request has been sent yet.
    pub(crate) fn new(
        client: &Client,
        settings: &Arc<QueueSettings>,
        kind: Kind,
        data: &Bytes,
    ) -> Self {
        let prefix = settings.profile.new_prefix(kind, client.unique_id());
        Self::reserve(client, settings, prefix, data)
    }

    /// The same with this prefix, or with the whole name of a node that is created without a sequence number.
    pub(crate) fn reserve(
        client: &Client,
        settings: &Arc<QueueSettings>,
        prefix: String,
        data: &Bytes,
    ) -> Self {
        let (client, settings, data) = (client.clone(), settings.clone(), data.clone());
        Self(Box::new(ContenderInner { client, settings, prefix, data, node: None, armed: true }))
    }

    /// The path to create its node at. The server appends the sequence number.
    pub(crate) fn new_node(&self) -> ZnodePath {
        self.path().child(&self.0.prefix).expect("prefixes are made of letters, digits and dashes")
    }

    async fn attempt(
        client: &Client,
        settings: &Arc<QueueSettings>,
        kind: Kind,
        data: &Bytes,
        tail: Option<&QueueTail>,
    ) -> Result<(Self, WaitQueue), Attempt> {
        let mut contender = Self::new(client, settings, kind, data);
        let name = contender.new_node();
        let old = tail.map(QueueTail::node);

        // The server processes requests in order, so the listing shows the new node.
        let mode = CreateMode::EphemeralSequential;
        let (created, listing) = client.replace(old, &name, data, mode);

        match created.await {
            Ok(created) => contender.0.node = Some(created),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                contender.0.armed = false;
                let ensured = client.ensure(&settings.path, settings.profile.parents()).await;
                ensured.map_err(|error| Attempt::at_entry(&settings.path, error))?;
                return Err(Attempt::Prepared);
            }
            Err(error) => return contender.recover(error).await,
        }

        let Some(listing) = listing else {
            let queue = match tail.and_then(|tail| contender.follow(tail)) {
                Some(queue) => contender.checked(queue),
                None => contender.list().await,
            };
            return contender.entered(queue);
        };

        let listing = listing.await.map_err(|error| {
            Attempt::at_listing(error, |error| Attempt::at_entry(&settings.path, error))
        })?;
        match contender.read_queue(listing) {
            Err(AcquireError::Foreign { .. }) => {
                let queue = contender.list().await;
                contender.entered(queue)
            }
            queue => Ok((contender, queue.map_err(Attempt::Failed)?)),
        }
    }

    /// Fails with a transient error if the node belongs to an older session: no caller relies on the place yet.
    fn entered(self, queue: Result<WaitQueue, AcquireError>) -> Result<(Self, WaitQueue), Attempt> {
        match queue {
            _ if self.session() != self.0.client.session_id() => Err(Attempt::Again),
            Ok(queue) => Ok((self, queue)),
            Err(error) => Err(Attempt::Failed(error)),
        }
    }

    /// The queue with this contender at its end, as the last holder of the same handle knew it. `None` if a
    /// listing is needed.
    fn follow(&self, tail: &QueueTail) -> Option<WaitQueue> {
        let name = self.name()?;
        let (kind, sequence) = self.0.settings.profile.parse(name, self.0.settings.kinds)?;
        tail.with(Place { sequence, kind, name: name.to_owned() })
    }

    /// Finds out whether the node was created, after the reply to the create request was lost.
    async fn recover(mut self, error: Error) -> Result<(Self, WaitQueue), Attempt> {
        let path = self.0.settings.path.clone();
        let again = |error: Error| Attempt::at_entry(&path, error);
        if error.outcome() == Outcome::NotApplied || error.is_session_expired() {
            // The node was not created, or is gone with its session.
            self.0.armed = false;
            return Err(again(error));
        }

        // The new connection may lead to a server that lags behind the one that received the create request.
        let synced = self.0.client.sync(&path);
        let listing = self.0.client.children(&path);
        synced.await.map_err(again)?;
        let listing = listing.await.map_err(|error| Attempt::at_listing(error, again))?;

        let Some(name) = listing.0.iter().find(|name| name.starts_with(&self.0.prefix)) else {
            return Err(Attempt::Again);
        };
        let node = path.child(name).map_err(|_| Attempt::Again)?;

        match self.0.client.exists(&node).await.map_err(again)? {
            // A node of another session will vanish soon, so it is never adopted.
            Some(stat) if stat.ephemeral_owner == self.0.client.session_id() => {
                self.0.node = Some(Created { path: node, stat });
                let queue = self.read_or_list(listing).await;
                self.entered(queue)
            }
            _ => Err(Attempt::Again),
        }
    }

    /// Deletes these children of the lock's node if all of them are nodes of idle locks. Returns
    /// whether all of them are gone.
    pub(crate) async fn clear(&self, names: &[String]) -> bool {
        let QueueSettings { path, profile, .. } = &*self.0.settings;
        idle::clear(&self.0.client, path, *profile, names).await
    }

    /// Reads a listing of the queue.
    pub(crate) fn read_queue(&self, listing: Listing) -> Result<WaitQueue, AcquireError> {
        self.checked(self.0.settings.read(listing)?)
    }

    /// Reads a listing of the queue. If it contains nodes other than contenders, deletes the nodes of idle
    /// locks, and lists the queue again.
    async fn read_or_list(&self, listing: Listing) -> Result<WaitQueue, AcquireError> {
        match self.read_queue(listing) {
            Err(AcquireError::Foreign { .. }) => self.list().await,
            queue => queue,
        }
    }

    /// Fails if the sequence numbers of the queue are used up.
    fn checked(&self, queue: WaitQueue) -> Result<WaitQueue, AcquireError> {
        let own = self.name();
        match queue.places().iter().find(|place| Some(place.name.as_str()) == own) {
            Some(place) => self.0.settings.check_number(place.sequence).map(|()| queue),
            None => Ok(queue),
        }
    }

    /// The front of the queue, if no contender ahead blocks this one now.
    pub(crate) fn at_front(&self, queue: &WaitQueue) -> Result<Option<Front>, AcquireError> {
        match queue.standing(self.name().unwrap_or_default()) {
            Standing::Held => Ok(Some(Front { own: None })),
            Standing::WaitOn(_) | Standing::ListAgain => Ok(None),
            Standing::Gone => Err(self.deleted()),
        }
    }

    /// Hands the node over, together with the duty to delete it.
    pub(crate) fn take_node(&mut self) -> Option<Created> {
        let node = self.0.node.take()?;
        self.0.armed = false;
        Some(node)
    }

    /// Why the node is missing: its session expired or is being closed, or another client deleted it.
    pub(crate) fn deleted(&self) -> AcquireError {
        let client = &self.0.client;
        let is_expired = self.0.node.is_some() && self.session() != client.session_id();
        if is_expired || client.is_closed() {
            return self.session_ended();
        }
        let node = self.0.node.as_ref().map_or(&self.0.settings.path, |node| &node.path);
        AcquireError::NodeDeleted { node: node.clone() }
    }

    /// The same after an event of the deletion. Servers send the events of a session's nodes before they report
    /// the end of the session, and they reply only to a session that is still alive. Costs one round trip.
    pub(crate) async fn deleted_by_event(&self) -> AcquireError {
        while self.session() == self.0.client.session_id() {
            match self.0.client.exists(self.path()).await {
                Ok(_) => break,
                Err(error) => match retry_acquire(self.path(), error).await {
                    Ok(()) => {}
                    Err(error) => return error,
                },
            }
        }
        self.deleted()
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if !self.0.armed {
            return;
        }
        let target = match &self.0.node {
            Some(node) if node.stat.ephemeral_owner != self.0.client.session_id() => return,
            Some(node) => Cleanup::Node(node.path.clone()),
            None => {
                let (parent, prefix) = (self.0.settings.path.clone(), self.0.prefix.clone());
                Cleanup::ByPrefix { parent, prefix }
            }
        };
        self.0.client.clean_up(target);
    }
}

/// What a contender at the front passes to its guard.
#[derive(Debug)]
pub(crate) struct Front {
    /// The watch on its own node, if it has one from its wait.
    pub(crate) own: Option<Watcher>,
}
