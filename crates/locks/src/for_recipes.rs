//! Building blocks for recipes in other crates: a place in a queue, and the guard of a node that the recipe has
//! created.

use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{Cleanup, Client, Created, ExpectedNode, Instant, NameUse, ZnodePath};

pub use crate::acquire::queue_handle::{LONGEST_TRY, TRIES_ONCE};
pub use crate::attempt::out_of_reach;
use crate::contender::node::Contender;
use crate::contender::order::WaitQueue;
use crate::contender::queue_settings::QueueSettings;
use crate::error::{AcquireError, LossReason};
use crate::guard::Guard;
use crate::guard::owned_node::OwnedNode;
pub use crate::guard::owned_node::deleted;
pub use crate::locks::{key_of, node_of};
use crate::owner_info::OwnerInfo;
use crate::profile::{Kind, Profile};
pub use crate::siblings::sibling;

/// A queue whose first contender takes the next turn. Its places are not locks, so they are not proven.
#[derive(Debug)]
pub struct TurnQueue {
    client: Client,
    settings: Arc<QueueSettings>,
    data: Bytes,
}

impl TurnQueue {
    /// The queue at a path. No I/O.
    pub fn new(client: &Client, path: ZnodePath) -> Self {
        let settings = QueueSettings::new(path, Profile::Curator, &[Kind::Exclusive]);
        let data = OwnerInfo::current(None).to_data();
        Self { client: client.clone(), settings, data }
    }

    /// Enters the queue at its end. Costs one round trip.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// The place is given up in the background.
    pub async fn enter(&self) -> Result<TurnPlace, AcquireError> {
        let entered =
            Contender::enter(&self.client, &self.settings, Kind::Exclusive, &self.data, None);
        let (contender, queue) = entered.await?;
        Ok(TurnPlace { contender, queue })
    }
}

/// A place in a [`TurnQueue`]. Dropping it leaves the queue.
#[derive(Debug)]
pub struct TurnPlace {
    contender: Contender,
    queue: WaitQueue,
}

impl TurnPlace {
    /// Waits until this place is the first. Costs one round trip and an event if it is not.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire), for a contender that has entered the queue.
    ///
    /// # Session loss
    /// Fails.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn first(&mut self) -> Result<(), AcquireError> {
        self.contender.wait_in(&mut self.queue).await.map(drop)
    }

    /// The node of this place, for a transaction that leaves the queue.
    pub fn node(&self) -> Option<&ZnodePath> {
        self.contender.node().map(|created| &created.path)
    }

    /// Notes that a transaction has deleted the node of this place.
    pub fn left(mut self) {
        drop(self.contender.take_node());
    }
}

/// Returns the guard of an ephemeral node that the caller has created for a recipe at `path`. `name`: whether
/// other nodes can have the same name. The caller deletes the node. Costs a round trip only if the newest proof is
/// old.
///
/// # Errors
/// Same as [`Mutex::acquire`](crate::Mutex::acquire), for a contender at the front.
///
/// # Session loss
/// Fails.
///
/// # Cancel safety
/// Safe.
pub async fn grant(
    client: &Client,
    path: &ZnodePath,
    node: Created,
    name: NameUse,
) -> Result<Guard, AcquireError> {
    let (client, path, data) = (client.clone(), path.clone(), Bytes::new());
    Guard::confirm(OwnedNode { client, path, node, data, name, cleanup: None }, None).await
}

/// Returns the guard of an ephemeral node that the caller has created with this data for a recipe at `path`.
/// Other nodes can have the same name before and after it. The guard deletes the node. Costs a round trip only if
/// the newest proof is old.
///
/// # Errors
/// Same as [`grant`].
///
/// # Session loss
/// Fails.
///
/// # Cancel safety
/// The node is deleted in the background.
pub async fn grant_owned(
    client: &Client,
    path: &ZnodePath,
    node: Created,
    data: Bytes,
) -> Result<Guard, AcquireError> {
    let (client, path, czxid) = (client.clone(), path.clone(), node.stat.czxid);
    let expected = ExpectedNode::CreatedBy(czxid);
    let cleanup = Some(Cleanup::IfExpected { node: node.path.clone(), expected });
    let name = NameUse::Reused(czxid);
    Guard::confirm(OwnedNode { client, path, node, data, name, cleanup }, None).await
}

/// Ends a guard that was held for too long. Returns the instant until which its node must stay, because the holder
/// may rely on that deadline; `None` if the guard was already lost.
pub fn end_overdue(guard: &Guard) -> Option<Instant> {
    guard.end(LossReason::HeldTooLong)
}

/// Notes that the node of a guard is missing, and returns the reason of the loss.
pub fn found_missing(guard: &Guard) -> LossReason {
    guard.found_missing()
}

/// The description of this program, as the data of a node.
pub fn owner_data(owner: &OwnerInfo) -> Bytes {
    owner.to_data()
}
