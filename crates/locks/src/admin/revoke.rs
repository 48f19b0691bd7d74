//! Asking holders to release a lock, and taking the lock by force.
//!
//! # Guarantees
//!
//! Every holder that supports it gets the request: see [`revoke`]. With force, each holder loses the lock after
//! the grace time, and its guard reports the loss.
//!
//! # Not guaranteed
//!
//! - A holder that ignores the loss may continue to act, although the lock is free; see `docs/guarantees.md`.
//! - Another contender may acquire the lock.
//! - In an election with a Curator `LeaderLatch`, a revocation can leave the election without a leader: see [`revoke`].
//!
//! # Znodes
//!
//! The data of the holder's node becomes `__REVOKE__`, as Apache Curator's `Revoker` sets it and its
//! `InterProcessMutex.makeRevocable` reads it. If a [`Revocation`] has a requester or a reason, the data of a
//! node created by a Lockkeeper program is `__REVOKE__` followed by a JSON object with `by` and `reason`. A guard that
//! sees the request writes the owner's data back, with a note of the request, so that operators see which holders
//! ignore it.
//!
//! # Cost
//!
//! Finding the holders costs 2 round trips, and asking them 1 more. With force, each holder costs 1 more to
//! watch, and 1 to delete.
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

/// How a holder reacted to a request to release the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RevokeOutcome {
    /// The holder released the lock.
    GaveWay,
    /// The holder's node was deleted by force.
    Forced,
    /// The holder did not release the lock in time.
    Stayed,
}

/// A request to the holders of a lock, with a requester and a reason.
///
/// Holders on this library read both with [`Guard::revoke_request`](crate::Guard::revoke_request). Holders
/// on other libraries, and those whose node does not contain [`OwnerInfo`](crate::OwnerInfo), get the plain request.
#[derive(Clone, Debug)]
#[must_use = "no holder is asked before `ask`, `wait` or `force_after`"]
pub struct Revocation {
    client: Client,
    path: ZnodePath,
    request: RevokeRequest,
    only: Option<(ZnodePath, FencingToken)>,
}

impl Revocation {
    /// Creates a request to the holders of the lock at `path`. No I/O.
    pub fn new(client: &Client, path: &ZnodePath) -> Self {
        let request = RevokeRequest::default();
        Self { client: client.clone(), path: path.clone(), request, only: None }
    }

    lockkeeper_client::setters! {
        /// Sets the requester, such as `ann on db1`. An empty text is ignored, and text beyond 1,024 bytes is cut
        /// off.
        pub fn by(self, by: impl Into<String>) => self.request.by = bounded(by);

        /// Sets the reason. An empty text is ignored, and text beyond 1,024 bytes is cut off.
        pub fn reason(self, reason: impl Into<String>) => self.request.reason = bounded(reason);

        /// Asks only the holder that was seen with this node and [`token`](Entry::token), and no other if another one
        /// holds the lock by then. For people who decide by what they see.
        pub fn only(self, node: ZnodePath, token: FencingToken) => self.only = Some((node, token));
    }

    /// Sends the request to each holder, like [`revoke`]. Returns the nodes of these holders. Costs the same as
    /// [`revoke`].
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Fails like any [`Reply`](lockkeeper_client::Reply). Some holders may have been asked.
    ///
    /// # Cancel safety
    /// Some holders may have been asked.
    pub async fn ask(&self) -> Result<Vec<ZnodePath>, Error> {
        let holders = self.ask_holders().await?;
        let asked = holders.into_iter().filter(|holder| holder.is_asked);
        Ok(asked.map(|holder| holder.node).collect())
    }

    /// Asks the holders, and waits until they have released the lock, for at most `limit` if it is given. Returns how
    /// each one reacted; a holder that cannot be asked is left out. Costs the same as [`revoke`],
    /// and one more round trip to watch each holder.
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Fails if a request is still unanswered, and otherwise keeps waiting in the next session. Requests to
    /// holders are not withdrawn.
    ///
    /// # Cancel safety
    /// Requests to holders are not withdrawn.
    pub async fn wait(
        &self,
        limit: Option<Duration>,
    ) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
        let mut holders = self.ask_holders().await?;
        holders.retain(|holder| holder.is_asked);
        self.wait_until_gone(holders, limit, AfterTimeout::Stay).await
    }

    /// Asks the holders, and takes the lock from those that have not released it within `grace`, like
    /// [`revoke_within`]. Returns how each one reacted. Costs the same as [`revoke_within`].
    ///
    /// # Errors
    /// If a request fails.
    ///
    /// # Session loss
    /// Same as [`revoke_within`].
    ///
    /// # Cancel safety
    /// Requests to holders are not withdrawn. Holders whose grace time is over may have lost the lock.
    pub async fn force_after(
        &self,
        grace: Duration,
    ) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
        let holders = self.ask_holders().await?;
        self.wait_until_gone(holders, Some(grace), AfterTimeout::Forced).await
    }

    /// Asks the holders that can be asked. Holders that have left in the meantime are left out.
    async fn ask_holders(&self) -> Result<Vec<Holder>, Error> {
        let Self { client, path, request, only } = self;
        loop {
            let Some(queue) = LockQueue::inspect(client, path).await? else {
                return Ok(Vec::new());
            };
            let is_node = queue.is_node();
            let ask = |entry: &Entry| {
                let created = (is_node && entry.is_readable).then_some(entry.token.zxid());
                // The name may belong to another holder by now.
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

    /// Waits until the holders have left, and handles those that have not left in time.
    async fn wait_until_gone(
        &self,
        holders: Vec<Holder>,
        limit: Option<Duration>,
        after_timeout: AfterTimeout,
    ) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
        let client = &self.client;
        // One time limit for all of them.
        let end = client.now() + limit.unwrap_or(Duration::MAX);
        let mut went = Vec::with_capacity(holders.len());
        for holder in holders {
            let left = end.since(client.now());
            let outcome = match tokio::time::timeout(left, gone(client, &holder)).await {
                Ok(result) => result.map(|()| RevokeOutcome::GaveWay)?,
                Err(_) if after_timeout == AfterTimeout::Stay => RevokeOutcome::Stayed,
                // The node is already gone: the holder released the lock itself.
                Err(_) if !force(client, &holder).await? => RevokeOutcome::GaveWay,
                Err(_) => RevokeOutcome::Forced,
            };
            went.push((holder.node, outcome));
        }
        Ok(went)
    }
}

/// What happens to holders that have not left in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterTimeout {
    Stay,
    Forced,
}

/// Asks every holder of the lock at `path` to release it. Returns the nodes of the holders that were
/// asked; empty if the lock is free. Costs two round trips to find them, and one to ask all of them.
///
/// The request replaces the data of the holder's node. If the node at the path is itself the lock
/// ([`LockQueue::is_node`]), its holder is asked only if a Lockkeeper program created it: another program may need
/// the data, and does not know this request. Only [`revoke_within`] can end such a hold.
///
/// Do not use `revoke` or [`revoke_within`] on an election in which Curator's `LeaderLatch` takes part. A
/// latch sets one watch on the data of the node ahead, and reacts only to its deletion. The request triggers
/// the watch, and the latch does not notice when that node is deleted later. To end the term of a leader there,
/// delete its node ([`Leader::node`](crate::Leader)). This follows from the source of Curator 5.9, and is not tested.
///
/// # Errors
/// If a request fails.
///
/// # Session loss
/// Fails like any [`Reply`](lockkeeper_client::Reply). Some holders may have been asked.
///
/// # Cancel safety
/// Some holders may have been asked.
pub async fn revoke(client: &Client, path: &ZnodePath) -> Result<Vec<ZnodePath>, Error> {
    Revocation::new(client, path).ask().await
}

/// A holder that has to release the lock.
struct Holder {
    node: ZnodePath,
    /// The transaction that created its node, if later nodes can have the same name.
    created: Option<Zxid>,
    is_asked: bool,
}

/// Whether a Lockkeeper program created the node.
fn is_ours(entry: &Entry) -> bool {
    entry.owner.is_some() || entry.is_revoked()
}

/// Asks the contender with this node to release its lock, or to leave the queue. Returns
/// whether the node exists. Costs one round trip.
///
/// # Errors
/// If the request fails.
///
/// # Session loss
/// Fails like any [`Reply`](lockkeeper_client::Reply). The contender may have been asked.
///
/// # Cancel safety
/// The contender may have been asked.
pub async fn revoke_node(client: &Client, node: &ZnodePath) -> Result<bool, Error> {
    applied(client.set_data(node, REQUEST, None).await)
}

/// Asks every holder of the lock at `path` to release it, and deletes the nodes of the holders that
/// have not done so within `grace`. These lose the lock with
/// [`LossReason::Revoked`](crate::LossReason::Revoked). Also deletes the node of a holder that
/// [`revoke`] cannot ask. Returns how each one reacted. Costs the same as [`revoke`], one round trip to watch,
/// and one to delete, or two if the node at the path is itself the lock. Do not use it where [`revoke`] must not
/// be used.
///
/// # Errors
/// If a request fails.
///
/// # Session loss
/// Fails if a request is still unanswered, and otherwise keeps waiting in the next session. Requests to holders are not
/// withdrawn.
///
/// # Cancel safety
/// Requests to holders are not withdrawn. Holders whose grace time is over may have lost the lock.
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
                // The watch ended with its session. The next read shows the state.
                _ => {}
            },
            Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(()),
            Err(error) => retry_pause(error).await?,
        }
    }
}

/// Deletes a holder's node. Returns whether the node existed.
async fn force(client: &Client, holder: &Holder) -> Result<bool, Error> {
    let node = &holder.node;
    if holder.created.is_none() {
        return applied(client.delete(node, None).await);
    }
    // The node of a later holder has the same name. The version protects it unless it was written equally
    // often and the holder changed between the two requests.
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
    /// Whether this is the stat of its node, and not of a later node with the same name.
    fn is(&self, stat: &Stat) -> bool {
        self.created.is_none_or(|created| created == stat.czxid)
    }
}

/// Whether a write found the node.
fn applied<T>(result: Result<T, Error>) -> Result<bool, Error> {
    present(result).map(|found| found.is_some())
}
