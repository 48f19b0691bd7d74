//! One place in a queue: a node, from before its creation to its deletion.
//!
//! The algorithm is the one of the ZooKeeper recipes and of Apache Curator (ephemeral sequential
//! nodes, each waiter watches only the closest one ahead), with the create and the listing sent in
//! one go.

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, Client, Contact, CreateMode, Created, Error, ErrorCode, EventKind, Outcome, Stat,
    WatchedReply, Watcher, ZnodePath,
};

use crate::attempt::{Attempt, retried};
use crate::order::{Line, Standing};
use crate::{AcquireError, Kind, Profile};

/// From here on the numbers of a parent are nearly used up: sequence numbers are counted in an
/// `i32`, and libraries disagree on the order after it overflows.
const WARN_AT: i32 = 2_000_000_000;
const REFUSE_AT: i32 = i32::MAX - 100_000;

/// What a queue is like.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) path: ZnodePath,
    pub(crate) profile: Profile,
    /// The kinds of contenders that may be in the queue.
    pub(crate) kinds: &'static [Kind],
}

/// A place in a queue.
///
/// It exists before the request that creates its node is sent, so that wherever an attempt is
/// given up, whatever may have come of it is deleted.
#[derive(Debug)]
pub(crate) struct Contender {
    client: Client,
    path: ZnodePath,
    /// What the node's name begins with; unique to this attempt.
    prefix: String,
    node: Option<Created>,
    /// Whether there may be a node to delete.
    armed: bool,
}

impl Contender {
    /// Creates a node at the end of the queue, and lists the queue. Costs one round trip.
    pub(crate) async fn enter(
        client: &Client,
        terms: &Terms,
        kind: Kind,
        data: &Bytes,
    ) -> Result<(Self, Line), AcquireError> {
        retried(&terms.path, async || Self::attempt(client, terms, kind, data).await).await
    }

    /// A place that nothing was sent for yet.
    pub(crate) fn new(client: &Client, terms: &Terms, kind: Kind) -> Self {
        Self {
            client: client.clone(),
            path: terms.path.clone(),
            prefix: terms.profile.new_prefix(kind),
            node: None,
            armed: true,
        }
    }

    async fn attempt(
        client: &Client,
        terms: &Terms,
        kind: Kind,
        data: &Bytes,
    ) -> Result<(Self, Line), Attempt> {
        let mut contender = Self::new(client, terms, kind);
        let name = terms.path.child(&contender.prefix).map_err(|_| Attempt::Again)?;
        // The server answers in order, so the listing shows the new node.
        let created = client.create(&name, data.clone(), CreateMode::EphemeralSequential);
        let listing = client.children(&terms.path);
        match created.await {
            Ok(created) => contender.node = Some(created),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                contender.armed = false;
                let ensured = client.ensure(&terms.path, CreateMode::Container).await;
                ensured.map_err(|error| Attempt::at_entry(&terms.path, error))?;
                return Err(Attempt::Again);
            }
            Err(error) => return contender.recover(error, terms).await,
        }
        let listing = listing.await.map_err(|error| Attempt::at_entry(&terms.path, error))?;
        contender.line(listing.0, terms)
    }

    /// The reply to the create is lost, or never came: looks whether the node exists.
    async fn recover(mut self, error: Error, terms: &Terms) -> Result<(Self, Line), Attempt> {
        let again = |error: Error| Attempt::at_entry(&terms.path, error);
        if error.outcome() == Outcome::NotApplied || error.is_session_expired() {
            // There is no node, or it is gone with its session.
            self.armed = false;
            return Err(again(error));
        }
        // The new connection may be to a server that lags behind the one that took the create.
        let synced = self.client.sync(&terms.path);
        let listing = self.client.children(&terms.path);
        synced.await.map_err(again)?;
        let names = match listing.await {
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Err(Attempt::Again),
            listing => listing.map_err(again)?.0,
        };
        let Some(name) = names.iter().find(|name| name.starts_with(&self.prefix)) else {
            return Err(Attempt::Again);
        };
        let node = terms.path.child(name).map_err(|_| Attempt::Again)?;
        match self.client.exists(&node).await.map_err(again)? {
            // A node of another session is about to vanish: it is never adopted.
            Some(stat) if stat.ephemeral_owner == self.client.session_id() => {
                self.node = Some(Created { path: node, stat });
                self.line(names, terms)
            }
            _ => Err(Attempt::Again),
        }
    }

    fn line(self, names: Vec<String>, terms: &Terms) -> Result<(Self, Line), Attempt> {
        let path = terms.path.clone();
        let line = Line::read(names, terms.profile, terms.kinds).map_err(|foreign| {
            let (path, profile, names) = (path.clone(), terms.profile, foreign.0);
            Attempt::Failed(AcquireError::Foreign { path, profile, names })
        })?;
        let own = line.places().iter().find(|place| Some(place.name.as_str()) == self.name());
        if let Some(place) = own {
            let sequence = place.sequence;
            if sequence.0 < 0 || sequence.0 >= REFUSE_AT {
                return Err(Attempt::Failed(AcquireError::Exhausted { path, sequence }));
            }
            if sequence.0 >= WARN_AT {
                tracing::warn!(%path, %sequence, "the path's sequence numbers are nearly used up");
            }
        }
        Ok((self, line))
    }

    /// Waits until nothing that is ahead is in the way. Costs one round trip for each contender
    /// that it comes to stand behind; a watch for that one, and a watch for its own node.
    pub(crate) async fn reach_front(&self, mut line: Line) -> Result<Front, AcquireError> {
        let mut own = None;
        loop {
            match line.standing(self.name().unwrap_or_default()) {
                Standing::Held => return Ok(Front { own }),
                Standing::Gone => return Err(self.deleted()),
                Standing::WaitOn(name) => {
                    own = Some(self.outwait(&name, own.take()).await?);
                    // Nobody can have come in ahead of us: what we remember, less the one that
                    // has gone, is the line.
                    line.remove(&name);
                }
            }
        }
    }

    /// Waits until the node `ahead` is gone.
    async fn outwait(&self, ahead: &str, own: Option<Watcher>) -> Result<Watcher, AcquireError> {
        let ahead = self.path.child(ahead).map_err(|_| self.deleted())?;
        // Sent before the own watch is asked for, so that both are one round trip.
        let watched = self.client.data_watched(&ahead);
        let mut own = match own {
            Some(own) => own,
            None => self.watch_own().await?,
        };
        let Some(mut watcher) = self.watch(&ahead, watched).await? else { return Ok(own) };
        let mut status = self.client.status();
        loop {
            let out_of_reach = async {
                let lost = |contact| matches!(contact, Contact::Unreachable | Contact::Closed);
                let _ = status.wait_for(|status| lost(status.contact)).await;
            };
            tokio::select! {
                // One order, so that a simulation can be repeated; bad news first.
                biased;
                event = own.changed() => match event.map_err(|_| self.expired())?.kind {
                    EventKind::NodeDeleted => return Err(self.deleted()),
                    _ => own = self.watch_own().await?,
                },
                event = watcher.changed() => {
                    let event = event.map_err(|_| self.expired())?;
                    let again = match event.kind {
                        EventKind::NodeDeleted => None,
                        _ => self.watch(&ahead, self.client.data_watched(&ahead)).await?,
                    };
                    match again {
                        Some(again) => watcher = again,
                        None => return Ok(own),
                    }
                }
                () = out_of_reach => {
                    return Err(AcquireError::Unreachable { path: self.path.clone() });
                }
            }
        }
    }

    /// Watches the own node, so that its deletion by somebody else does not go unnoticed.
    async fn watch_own(&self) -> Result<Watcher, AcquireError> {
        let node = &self.node().ok_or_else(|| self.deleted())?.path;
        let watcher = self.watch(node, self.client.data_watched(node)).await?;
        watcher.ok_or_else(|| self.deleted())
    }

    /// A watch on a node, over lost connections; `None` if the node does not exist.
    ///
    /// By getData and not by exists: it leaves no watch on a node that is gone already.
    async fn watch(
        &self,
        node: &ZnodePath,
        mut asked: WatchedReply<(Bytes, Stat)>,
    ) -> Result<Option<Watcher>, AcquireError> {
        loop {
            match asked.await {
                Ok((_, watcher)) => return Ok(Some(watcher)),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(None),
                // It waits for the next connection, and fails for good when none comes.
                Err(error) if error.is_retryable() && !error.is_unreachable() => {
                    asked = self.client.data_watched(node);
                }
                Err(error) => return Err(AcquireError::from_client(&self.path, error)),
            }
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The lock that the queue is for.
    pub(crate) fn path(&self) -> &ZnodePath {
        &self.path
    }

    pub(crate) fn node(&self) -> Option<&Created> {
        self.node.as_ref()
    }

    /// Leaves the deletion to the caller.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }

    fn name(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.path.name())
    }

    pub(crate) fn deleted(&self) -> AcquireError {
        let node = self.node.as_ref().map_or(&self.path, |node| &node.path);
        AcquireError::NodeDeleted { node: node.clone() }
    }

    pub(crate) fn expired(&self) -> AcquireError {
        AcquireError::SessionExpired { path: self.path.clone() }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let target = match &self.node {
            Some(node) if node.stat.ephemeral_owner != self.client.session_id() => return,
            Some(node) => Cleanup::Node(node.path.clone()),
            None => Cleanup::Child { parent: self.path.clone(), prefix: self.prefix.clone() },
        };
        self.client.clean_up(target);
    }
}

/// What a contender that reached the front brings along.
#[derive(Debug)]
pub(crate) struct Front {
    /// The watch on its own node, if it had to wait.
    pub(crate) own: Option<Watcher>,
}
