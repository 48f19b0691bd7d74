//! [`Barrier`]: programs wait while it is closed.

use std::sync::OnceLock;
use std::time::Duration;

use futures_util::TryFutureExt as _;
use lockkeeper_client::{
    Client, CreateMode, ErrorCode, EventKind, SessionId, ZnodePath, Zxid, present,
};
use lockkeeper_locks::for_recipes::out_of_reach;
use lockkeeper_locks::{ExclusiveGuard, ExclusiveNode, Owner, OwnerInfo};

use crate::barrier::error::BarrierError;
use crate::barrier::layout::Kind;
use crate::barrier::requests::{again, make_parent, outlast};

/// A barrier at which programs wait until it is opened. Cheap to clone.
///
/// # Guarantees
///
/// - A wait ends when the barrier is opened, also if it is closed again at once, or is opened while the
///   connection is lost.
/// - A wait at a barrier that stays closed does not end.
/// - Closing and opening have their effect once, even when replies are lost.
///
/// # Not guaranteed
///
/// - If the barrier is closed while other programs begin to wait, some of them are stopped and others are not.
/// - A wait that ends proves that the barrier was open, not that it still is.
///
/// # Session loss
///
/// A wait continues with the next session. A barrier that is closed by a [guard](Barrier::close_while_held) opens.
///
/// # Znodes
///
/// `<path>`: the barrier is closed while this node exists. The node is persistent, or ephemeral if a guard holds
/// it. Missing parents are created as container nodes. Curator's `DistributedBarrier` and kazoo's `Barrier`
/// interoperate on the same path.
///
/// # Cost
///
/// - Closing and opening cost 1 round trip (1 write).
/// - Waiting costs 1 round trip, and 1 event if the barrier is closed. The event needs no further request.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::Barrier;
///
/// let barrier = Barrier::new(&client, "/barriers/migration")?;
/// barrier.close().await?;
/// let waiter = barrier.clone();
/// let waiting = tokio::spawn(async move { waiter.wait().await });
/// barrier.open().await?;
/// waiting.await??;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "DistributedBarrier")]
#[derive(Clone)]
pub struct Barrier {
    client: Client,
    path: ZnodePath,
}

lockkeeper_client::shown_by_path!(Barrier);

impl Barrier {
    /// A barrier at a path such as `/barriers/migration`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a barrier.
    pub fn new(client: &Client, path: &str) -> Result<Self, BarrierError> {
        let path = BarrierError::check_path(client, path)?;
        // A guard holds the barrier's path as a lock.
        ExclusiveNode::new(client, path.as_str())?;
        Ok(Self { client: client.clone(), path })
    }

    /// The barrier's path.
    pub fn path(&self) -> &ZnodePath {
        &self.path
    }

    /// Closes the barrier until it is [opened](Barrier::open). Closing a closed barrier is not an error; it costs
    /// one round trip more. Costs one round trip (1 write).
    ///
    /// # Errors
    /// [`BarrierError::ClosedByGuard`] if a guard keeps the barrier closed, as it opens when that guard ends;
    /// [`BarrierError::Foreign`]. If a request is refused, or no server can be reached for a session timeout: then
    /// it may be closed.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// When dropped, the barrier may be closed.
    pub async fn close(&self) -> Result<(), BarrierError> {
        loop {
            let created = self.client.create(&self.path, "", CreateMode::Persistent).await;
            match created {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(ErrorCode::NodeExists) => {
                    match present(self.client.data(&self.path).await) {
                        // The barrier was opened in between.
                        Ok(None) => {}
                        Ok(Some((data, stat))) => {
                            ensure_barrier(&self.path, &data)?;
                            return match stat.ephemeral_owner {
                                SessionId::NONE => Ok(()),
                                _ => Err(BarrierError::ClosedByGuard { path: self.path.clone() }),
                            };
                        }
                        Err(error) => again(&self.path, error).await?,
                    }
                }
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    make_parent(&self.client, &self.path).await?;
                }
                Err(error) => again(&self.path, error).await?,
            }
        }
    }

    /// Closes the barrier while the guard is held: it opens when the guard is released or dropped, and when the
    /// guard's session ends. The guard reports if that has happened, or if the barrier was opened by other means.
    /// Costs one round trip (1 write).
    ///
    /// # Errors
    /// [`BarrierError::AlreadyClosed`] if the barrier is closed; as [`ExclusiveNode::try_acquire`].
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// When dropped, a barrier that was closed is opened again in the background.
    pub async fn close_while_held(&self) -> Result<ExclusiveGuard, BarrierError> {
        let enter = |source| BarrierError::enter(&self.path, source);
        // Each guard has its own owner id, because the same owner could close it again.
        let owner = Owner::new(self.client.unique_id().to_string());
        let node =
            ExclusiveNode::builder(&self.client, self.path.as_str()).owner(&owner).build()?;
        let closed = node.try_acquire().await.map_err(enter)?;
        closed.ok_or_else(|| BarrierError::AlreadyClosed { path: self.path.clone() })
    }

    /// Opens the barrier, no matter which program closed it. Opening an open barrier is not an error. Costs one
    /// round trip (1 write).
    ///
    /// # Errors
    /// If a request is refused, or no server can be reached for a session timeout; in that case the barrier may
    /// be open.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// When dropped, the barrier may be open.
    pub async fn open(&self) -> Result<(), BarrierError> {
        loop {
            match present(self.client.delete(&self.path, None).await) {
                Ok(_) => return Ok(()),
                Err(error) => again(&self.path, error).await?,
            }
        }
    }

    /// Whether the barrier is closed. Costs one round trip (1 read). A server of an ensemble may lag behind the
    /// latest writes.
    ///
    /// # Errors
    /// If a request is refused, or no server can be reached for a session timeout.
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn is_closed(&self) -> Result<bool, BarrierError> {
        loop {
            match self.client.exists(&self.path).await {
                Ok(found) => return Ok(found.is_some()),
                Err(error) => again(&self.path, error).await?,
            }
        }
    }

    /// Which program keeps the barrier closed, and since when; `None` if it is open. Costs one round trip (1
    /// read). A server of an ensemble may lag behind the latest writes.
    ///
    /// # Errors
    /// [`BarrierError::Foreign`] if the path has a latch or a double barrier. If a request is refused, or no
    /// server can be reached for a session timeout.
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn inspect(&self) -> Result<Option<ClosedBarrier>, BarrierError> {
        loop {
            match present(self.client.data(&self.path).await) {
                Ok(None) => return Ok(None),
                Ok(Some((data, stat))) => {
                    ensure_barrier(&self.path, &data)?;
                    return Ok(Some(ClosedBarrier {
                        since_unix_ms: u64::try_from(stat.ctime).unwrap_or_default(),
                        session: stat.ephemeral_owner,
                        holder: OwnerInfo::from_data(&data),
                    }));
                }
                Err(error) => again(&self.path, error).await?,
            }
        }
    }

    /// Returns when the barrier is open: at once if it is. Costs one round trip (1 read), and one event if it is
    /// closed.
    ///
    /// # Errors
    /// If a request is refused, no server can be reached for a session timeout, or the client is closed.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// Safe. No watch is left behind.
    pub async fn wait(&self) -> Result<(), BarrierError> {
        let wait = GoneWait::new(&self.client, &self.path);
        wait.gone(ensure_barrier).await.map(drop)
    }

    /// Like [`Barrier::wait`], with a time limit. Returns whether the barrier is open. An outage of the servers
    /// does not end the call. Costs the same.
    ///
    /// # Errors
    /// If a request is refused, or the client is closed.
    ///
    /// # Session loss
    /// Continues with the next session.
    ///
    /// # Cancel safety
    /// Safe. No watch is left behind.
    pub async fn wait_timeout(&self, timeout: Duration) -> Result<bool, BarrierError> {
        let wait = GoneWait::new(&self.client, &self.path);
        within(&self.client, timeout, || wait.gone(ensure_barrier).map_ok(drop)).await
    }
}

/// The state of a closed [`Barrier`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClosedBarrier {
    /// When it was closed, in milliseconds since 1970 by the clock of the servers.
    pub since_unix_ms: u64,
    /// The session at whose end it opens; [`SessionId::NONE`] if it stays closed until it is [opened](Barrier::open).
    pub session: SessionId,
    /// The program whose [guard](Barrier::close_while_held) keeps it closed, if that guard is Lockkeeper's.
    pub holder: Option<OwnerInfo>,
}

/// Limits the total time of a wait, which continues over outages and starts again after one. Returns whether the
/// wait has ended in time.
pub(super) async fn within<F>(
    client: &Client,
    timeout: Duration,
    wait: impl Fn() -> F,
) -> Result<bool, BarrierError>
where
    F: Future<Output = Result<(), BarrierError>>,
{
    let over_outages = async {
        loop {
            match wait().await {
                Ok(()) => return Ok(true),
                Err(error) => outlast(client, error).await?,
            }
        }
    };
    tokio::time::timeout(timeout, over_outages).await.unwrap_or(Ok(false))
}

/// Waits until a node is gone, over lost connections and ended sessions.
#[derive(Debug)]
pub(super) struct GoneWait<'a> {
    client: &'a Client,
    path: &'a ZnodePath,
    /// The transaction that created the node that was seen first.
    first: OnceLock<Zxid>,
}

impl<'a> GoneWait<'a> {
    pub(super) fn new(client: &'a Client, path: &'a ZnodePath) -> Self {
        Self { client, path, first: OnceLock::new() }
    }

    /// Returns when the node is missing, or was missing at some time since the first call, and whether it existed
    /// at all. Reads its data first.
    pub(super) async fn gone(
        &self,
        check: fn(&ZnodePath, &[u8]) -> Result<(), BarrierError>,
    ) -> Result<bool, BarrierError> {
        let Self { client, path, first } = self;
        loop {
            // A server that lags may show an older node first.
            let (synced, seen) = tokio::join!(biased; client.sync(path), client.data_watched(path));
            let ((data, stat), mut watcher) = match synced.and_then(|()| present(seen)) {
                Ok(None) => return Ok(first.get().is_some()),
                Ok(Some(seen)) => seen,
                Err(error) => {
                    again(path, error).await?;
                    continue;
                }
            };

            check(path, &data)?;
            // Another node: the first one was deleted in between.
            if *first.get_or_init(|| stat.czxid) != stat.czxid {
                return Ok(true);
            }

            tokio::select! {
                biased;
                event = watcher.changed() => {
                    if event.is_ok_and(|event| event.kind == EventKind::NodeDeleted) {
                        return Ok(true);
                    }
                }
                error = out_of_reach(client, path) => {
                    return Err(BarrierError::enter(path, error));
                }
            }
        }
    }
}

/// Fails if a node is a latch or a double barrier. Curator and kazoo may write any data.
fn ensure_barrier(path: &ZnodePath, data: &[u8]) -> Result<(), BarrierError> {
    match Kind::of(data) {
        None => Ok(()),
        Some(kind) => {
            let found = format!("a {}", kind.shown());
            Err(BarrierError::Foreign { path: path.clone(), kind: "barrier", found })
        }
    }
}
