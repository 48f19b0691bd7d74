//! Asking holders to give a lock back, and taking it by force.
//!
//! # Guarantees
//!
//! Every holder is asked that can be: see [`revoke`]. With force, each holder is told so, and loses the lock after the grace time.
//!
//! # Not guaranteed
//!
//! - A holder that ignores the loss may not stop; see `docs/guarantees.md`. A lock that is taken by force
//!   is free while its last holder may still act.
//! - The lock may not stay free.
//! - Behind a Curator `LeaderLatch`, nobody may lead any more: see [`revoke`].
//!
//! # Znodes
//!
//! The data of the holder's node becomes `__REVOKE__`, as Apache Curator's `Revoker` sets it and its
//! `InterProcessMutex.makeRevocable` sees it. With a [`Revocation`] that says who asks or why, the data of a
//! node that one of our programs made is `__REVOKE__` and then a JSON object with `by` and `reason`. A guard that sees the mark writes back what the node said of
//! its owner, so that people see who ignores it.
//!
//! # Cost
//!
//! A look costs 2 round trips, and asking 1 more. By force, each holder costs 1 more to watch, and 1 to
//! delete.
//!
//! # Examples
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
//! use lockkeeper::{Mutex, revoke};
//!
//! let lock = Mutex::new(&client, "/locks/orders")?;
//! let guard = lock.acquire().await?;
//!
//! let asked = revoke::revoke(&client, lock.path()).await?;
//! assert_eq!(asked, [guard.node().clone()]);
//!
//! guard.revoke_requested().await?;
//! guard.release().await?;
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use lockkeeper_client::retry::retry_pause;
use lockkeeper_client::{Client, Error, ErrorCode, EventKind, Stat, ZnodePath, Zxid, present};

use crate::admin::inspect::{Entry, LockQueue};
use crate::guard::revocation;
use crate::owner_info::{RevokeRequest, bounded};
use crate::token::FencingToken;

pub use crate::guard::revocation::REQUEST;

/// How a holder that was asked to go went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RevokeOutcome {
    /// By itself.
    GaveWay,
    /// Its node was deleted.
    Forced,
    /// It has not gone in time.
    Stayed,
}

/// A request to the holders of a lock that says who asks, and why.
///
/// Holders on this library read both with [`Guard::revoke_request`](crate::Guard::revoke_request). Holders
/// on other libraries, and those whose node has no [`OwnerInfo`](crate::OwnerInfo), get the plain request.
#[derive(Clone, Debug)]
#[must_use = "no holder is asked before `ask`, `wait` or `force_after`"]
pub struct Revocation {
    client: Client,
    path: ZnodePath,
    request: RevokeRequest,
    only: Option<(ZnodePath, FencingToken)>,
}

impl Revocation {
    /// A request to those who hold the lock at `path`. Sends nothing yet.
    pub fn new(client: &Client, path: &ZnodePath) -> Self {
        let request = RevokeRequest::default();
        Self { client: client.clone(), path: path.clone(), request, only: None }
    }

    lockkeeper_client::setters! {
        /// Says who asks, such as `ann on db1`. An empty text is none, and a long one is cut after 1,024
        /// bytes.
        pub fn by(self, by: impl Into<String>) => self.request.by = bounded(by);

        /// Says why. An empty text is none, and a long one is cut after 1,024 bytes.
        pub fn reason(self, reason: impl Into<String>) => self.request.reason = bounded(reason);

        /// Asks only the holder that was seen with this node and [`token`](Entry::token), and no other if another one
        /// holds the lock by then. For people who decide by what they see.
        pub fn only(self, node: ZnodePath, token: FencingToken) => self.only = Some((node, token));
    }

    /// Asks as [`revoke`] does. Returns the nodes of those who were asked. Costs what [`revoke`] costs.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Fails, as a [`Reply`](lockkeeper_client::Reply) does; some may have been asked.
    ///
    /// # Cancel safety
    /// Some may have been asked.
    pub async fn ask(&self) -> Result<Vec<ZnodePath>, Error> {
        let holders = self.ask_holders().await?;
        let asked = holders.into_iter().filter(|holder| holder.is_asked);
        Ok(asked.map(|holder| holder.node).collect())
    }

    /// Asks, and waits until those who were asked have gone: for at most `limit`, or until they have if there
    /// is none. Returns how each one went; a holder that cannot be asked is left out. Costs what [`revoke`]
    /// costs, and one round trip to watch each.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Fails if a request has no answer yet, and else waits on in the next session. Those who were asked stay
    /// asked.
    ///
    /// # Cancel safety
    /// Those who were asked stay asked.
    pub async fn wait(
        &self,
        limit: Option<Duration>,
    ) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
        let mut holders = self.ask_holders().await?;
        holders.retain(|holder| holder.is_asked);
        self.see_off(holders, limit, Stayers::Stay).await
    }

    /// Asks, and takes the lock from those who have not gone within `grace`, as [`revoke_within`] does.
    /// Returns how each one went. Costs what [`revoke_within`] costs.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// As [`revoke_within`].
    ///
    /// # Cancel safety
    /// Those who were asked stay asked. Those whose grace time is over may have been forced.
    pub async fn force_after(
        &self,
        grace: Duration,
    ) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
        let holders = self.ask_holders().await?;
        self.see_off(holders, Some(grace), Stayers::Forced).await
    }

    /// Asks the holders of a lock that can be asked. Those who have gone meanwhile are left out.
    async fn ask_holders(&self) -> Result<Vec<Holder>, Error> {
        let Self { client, path, request, only } = self;
        loop {
            let Some(queue) = LockQueue::inspect(client, path).await? else {
                return Ok(Vec::new());
            };
            let is_node = queue.is_node();
            let ask = |entry: &Entry| {
                let created = (is_node && entry.is_readable).then_some(entry.token.zxid());
                // The name may be another holder's by now.
                let version = is_node.then_some(entry.version);
                let data = revocation::ask(entry.owner.as_ref(), request);
                let ask = || client.set_data(&entry.node, data, version);
                let asked = (!is_node || is_ours(entry)).then(ask);
                (entry.node.clone(), created, asked)
            };
            let is_meant = |entry: &&Entry| {
                only.as_ref()
                    .is_none_or(|(node, token)| entry.node == *node && entry.token == *token)
            };
            let asked: Vec<_> = queue.holders().filter(is_meant).map(ask).collect();

            let mut holders = Vec::with_capacity(asked.len());
            let mut has_changed = false;
            for (node, created, asked) in asked {
                let is_asked = asked.is_some();
                let is_there = match asked {
                    None => true,
                    Some(reply) => match reply.await {
                        Err(error) if error.code() == Some(ErrorCode::BadVersion) => {
                            has_changed = true;
                            false
                        }
                        answer => applied(answer)?,
                    },
                };
                if is_there {
                    holders.push(Holder { node, created, is_asked });
                }
            }
            if !has_changed {
                return Ok(holders);
            }
        }
    }

    /// Waits until they have gone, and sees to those who have not.
    async fn see_off(
        &self,
        holders: Vec<Holder>,
        limit: Option<Duration>,
        stayers: Stayers,
    ) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
        let client = &self.client;
        // One time for all, however many there are.
        let end = client.now() + limit.unwrap_or(Duration::MAX);
        let mut went = Vec::with_capacity(holders.len());
        for holder in holders {
            let left = end.since(client.now());
            let outcome = match tokio::time::timeout(left, gone(client, &holder)).await {
                Ok(result) => result.map(|()| RevokeOutcome::GaveWay)?,
                Err(_) if stayers == Stayers::Stay => RevokeOutcome::Stayed,
                // Gone in the meantime: by itself, as nobody else would.
                Err(_) if !force(client, &holder).await? => RevokeOutcome::GaveWay,
                Err(_) => RevokeOutcome::Forced,
            };
            went.push((holder.node, outcome));
        }
        Ok(went)
    }
}

/// What becomes of those who have not gone in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stayers {
    Stay,
    Forced,
}

/// Asks everyone who holds the lock at `path` to give it back. Returns the nodes of those who were
/// asked; none if nobody holds it. Costs two round trips to find them, and one to ask all of them.
///
/// The request replaces the data of the holder's node. If the node at the path is itself the lock
/// ([`LockQueue::is_node`]), its holder is asked only if one of our programs made it: another program may need
/// the data, and knows no such request. Only [`revoke_within`] can end such a hold.
///
/// Do not use it, nor [`revoke_within`], on an election in which Curator's `LeaderLatch` takes part. A
/// latch watches the data of the node ahead, once, and looks only for its deletion: the request uses
/// the watch up, and the latch does not notice when that node goes. To end the term of a leader there,
/// delete its node ([`Leader::node`](crate::Leader)). By reading only (Curator 5.9).
///
/// # Errors
/// If a request fails.
///
/// # Session loss
/// Fails, as a [`Reply`](lockkeeper_client::Reply) does; some may have been asked.
///
/// # Cancel safety
/// Some may have been asked.
pub async fn revoke(client: &Client, path: &ZnodePath) -> Result<Vec<ZnodePath>, Error> {
    Revocation::new(client, path).ask().await
}

/// A holder that is to go.
struct Holder {
    node: ZnodePath,
    /// The transaction that created its node, if the name of the node is used again and again.
    created: Option<Zxid>,
    is_asked: bool,
}

/// Whether one of our programs made a node.
fn is_ours(entry: &Entry) -> bool {
    entry.owner.is_some() || entry.is_revoked()
}

/// Asks the one whose node this is to give its lock back, or its place in the queue. Returns
/// whether there is such a node. Costs one round trip.
///
/// # Errors
/// If the request fails.
///
/// # Session loss
/// Fails, as a [`Reply`](lockkeeper_client::Reply) does; it may have been asked.
///
/// # Cancel safety
/// It may have been asked.
pub async fn revoke_node(client: &Client, node: &ZnodePath) -> Result<bool, Error> {
    applied(client.set_data(node, REQUEST, None).await)
}

/// Asks everyone who holds the lock at `path` to give it back, and deletes the nodes of those who
/// have not done so within `grace`: they lose the lock, and are told
/// [`LossReason::Revoked`](crate::LossReason::Revoked). Also deletes the node of a holder that
/// [`revoke`] cannot ask. Returns how each one went. Costs what [`revoke`] costs, one round trip to watch,
/// and one to delete, or two if the node at the path is itself the lock. Do not use it where [`revoke`] must not
/// be used.
///
/// # Errors
/// If a request fails.
///
/// # Session loss
/// Fails if a request has no answer yet, and else waits on in the next session. Those who were asked stay
/// asked.
///
/// # Cancel safety
/// Those who were asked stay asked. Those whose grace time is over may have been forced.
pub async fn revoke_within(
    client: &Client,
    path: &ZnodePath,
    grace: Duration,
) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
    Revocation::new(client, path).force_after(grace).await
}

/// Waits until a holder's node is gone.
async fn gone(client: &Client, holder: &Holder) -> Result<(), Error> {
    loop {
        match client.data_watched(&holder.node).await {
            Ok(((_, stat), _)) if !holder.is(&stat) => return Ok(()),
            Ok((_, mut watcher)) => match watcher.changed().await {
                Ok(event) if event.kind == EventKind::NodeDeleted => return Ok(()),
                // A watch that ended with its session: the next look tells more.
                _ => {}
            },
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(()),
            Err(error) => retry_pause(error).await?,
        }
    }
}

/// Deletes a holder's node. Returns whether it was there.
async fn force(client: &Client, holder: &Holder) -> Result<bool, Error> {
    let node = &holder.node;
    if holder.created.is_none() {
        return applied(client.delete(node, None).await);
    }
    // The node of a later holder has the same name. It has the same version only if it was written to as
    // often, so what is left is a holder that changes between the two requests.
    loop {
        let Some((_, stat)) = present(client.data(node).await)? else { return Ok(false) };
        if !holder.is(&stat) {
            return Ok(false);
        }
        match client.delete(node, Some(stat.version)).await {
            Err(error) if error.code() == Some(ErrorCode::BadVersion) => {}
            result => return applied(result),
        }
    }
}

impl Holder {
    /// Whether this is the stat of its node, and not of a later one with the same name.
    fn is(&self, stat: &Stat) -> bool {
        self.created.is_none_or(|created| created == stat.czxid)
    }
}

/// Whether a write found its node.
fn applied<T>(result: Result<T, Error>) -> Result<bool, Error> {
    present(result).map(|found| found.is_some())
}
