//! What recipes of another crate are made of: a place in a line, and the guard of a node that they have made.

use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{Cleanup, Client, Created, ExpectedNode, Instant, NameUse, ZnodePath};

pub use crate::acquire::queue_handle::{LONGEST_TRY, TRIES_ONCE};
pub use crate::attempt::out_of_reach;
pub use crate::beside::beside;
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

/// A line of which only the first does something. Nobody holds anything by it, so nothing proves a place.
#[derive(Debug)]
pub struct Line {
    client: Client,
    settings: Arc<QueueSettings>,
    data: Bytes,
}

impl Line {
    /// The line at a path. No I/O.
    pub fn new(client: &Client, path: ZnodePath) -> Self {
        let settings = QueueSettings::new(path, Profile::Curator, &[Kind::Exclusive]);
        let data = OwnerInfo::current(None).to_data();
        Self { client: client.clone(), settings, data }
    }

    /// Goes to the end of it. Costs one round trip.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Session loss
    /// Goes on with the next session.
    ///
    /// # Cancel safety
    /// The place is left in the background.
    pub async fn enter(&self) -> Result<LinePlace, AcquireError> {
        let entered =
            Contender::enter(&self.client, &self.settings, Kind::Exclusive, &self.data, None);
        let (contender, queue) = entered.await?;
        Ok(LinePlace { contender, queue })
    }
}

/// A place in a [`Line`]. Dropping it leaves the line.
#[derive(Debug)]
pub struct LinePlace {
    contender: Contender,
    queue: WaitQueue,
}

impl LinePlace {
    /// Waits until it is the first. Costs one round trip and an event if it is not.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`](crate::Mutex::acquire), for one that has entered.
    ///
    /// # Session loss
    /// Fails.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn first(&mut self) -> Result<(), AcquireError> {
        self.contender.wait_in(&mut self.queue).await.map(drop)
    }

    /// Its node, for a transaction that leaves the line.
    pub fn node(&self) -> Option<&ZnodePath> {
        self.contender.node().map(|created| &created.path)
    }

    /// A transaction has deleted its node.
    pub fn left(mut self) {
        drop(self.contender.take_node());
    }
}

/// The guard of an ephemeral node that was made for something at `path`, under a name that other nodes can have, or not.
/// The caller deletes the node. Costs a round trip only if the newest proof is old.
///
/// # Errors
/// Same as [`Mutex::acquire`](crate::Mutex::acquire), for one that is at the front.
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

/// The guard of an ephemeral node that was made for something at `path`, with this data, under a name that other nodes have
/// before and after it. The guard deletes it. Costs a round trip only if the newest proof is old.
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

/// Ends a guard, as what it is for was held for too long. Returns until when its node must stay, as the holder
/// may have been told so; `None` if it was lost already.
pub fn end_overdue(guard: &Guard) -> Option<Instant> {
    guard.end(LossReason::HeldTooLong)
}

/// Notes that the node of a guard was found to be missing, and says what that means.
pub fn found_missing(guard: &Guard) -> LossReason {
    guard.found_missing()
}

/// The program that this is, as the data of a node.
pub fn owner_data(owner: &OwnerInfo) -> Bytes {
    owner.to_data()
}
