//! [`TreeCache`]: a part of the tree in memory. `follow.rs` reads it.

use std::sync::Arc;

use lockkeeper_client::{Client, Contact, Instant, ZnodePath};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::watch::backlog::{ReaderId, Unread};
use crate::watch::error::CacheError;
use crate::watch::follow::Follower;
use crate::watch::published::Published;
use crate::watch::snapshot::{Change, Snapshot};
use crate::watch::view::{Filter, Scope};

/// Options of a [`TreeCache`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct TreeCacheBuilder {
    client: Client,
    each_node: bool,
    scope: Scope,
}

impl TreeCacheBuilder {
    lockkeeper_client::setters! {
        /// Sets the maximum number of nodes. Default: 1,000,000.
        pub fn max_nodes(self, nodes: usize) => self.scope.max_nodes = nodes;

        /// Sets the maximum total size of names and data, in bytes. Default: 1 GiB. Each node takes about 500 bytes
        /// of memory more.
        pub fn max_bytes(self, bytes: usize) => self.scope.max_bytes = bytes;

        /// Sets how many levels below the path are cached; 0 is the node itself, 1 its children too.
        /// Default: all.
        pub fn max_depth(self, levels: usize) => self.scope.max_depth = levels;

        /// Tracks the last change of the children of the path itself: the larger one of its `pzxid` and the
        /// last creation among them. A deleted child then costs a read of the path instead of its own.
        pub(crate) fn knows_pzxid(self) => self.scope.knows_pzxid = true;
    }

    /// Excludes the nodes for whose full path `wanted` is false, and everything below them. `wanted` must
    /// always return the same for a path. If it panics, the cache ends with [`CacheError::Stopped`].
    pub fn filter(mut self, wanted: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let wanted: Filter = Arc::new(wanted);
        self.scope.filter = Some(wanted);
        self
    }

    lockkeeper_client::setters! {
        /// Leaves out the nodes that may not be read, or are longer than the client's
        /// [limit](lockkeeper_client::ClientBuilder::max_frame), with everything below them:
        /// [`Snapshot::unreadable`] lists them. Otherwise one such node ends the cache; a node of more than 16
        /// MiB does so in any case, because the connection is lost. No event reports when a node becomes readable
        /// again, so such nodes are read again after 1 s, 2 s and so on up to 30 s, at the cost of two reads each
        /// (with others, and alone). Newer servers send no events for such nodes: a node that becomes unreadable
        /// later is found after the next reconnect, or when it is written after it is readable again. The node at
        /// the path of the cache itself must be readable.
        pub fn skip_unreadable(self) => self.scope.skips_unreadable = true;

        /// Publishes each node as it is read, instead of the whole tree at one moment. For trees that are
        /// written without a pause. [`Snapshot::is_exact`] is false then: the nodes of a snapshot may be of
        /// different moments, and one transaction may appear in parts. Each single node only goes forward.
        pub fn each_node(self) => self.each_node = true;
    }

    /// Reads the tree. A path that does not exist gives an empty snapshot, and is watched. Costs
    /// [two round trips](TreeCache#cost) for each level that has children, with one or two reads for each node.
    ///
    /// # Errors
    /// If the tree has more nodes or bytes than allowed, a node may not be read, or no server can be
    /// reached for a session timeout.
    ///
    /// # Cancel safety
    /// When dropped, leaves no watch behind.
    ///
    /// # Session loss
    /// Starts over in the next session.
    pub async fn open(mut self) -> Result<TreeCache, CacheError> {
        let path = ZnodePath::new(&self.scope.root)?;
        self.scope.max_frame = self.client.max_frame();
        let runtime = self.client.tokio_runtime().clone();

        // A task, which ends when this future is dropped. It contains the panic of a filter, as it does later.
        let mut opening = JoinSet::new();
        opening.spawn_on(Follower::open(self.client, self.scope, self.each_node), &runtime);
        let opened = opening.join_next().await.and_then(Result::ok);
        let (follower, shared) = opened.unwrap_or(Err(CacheError::Stopped { path }))?;
        let task = runtime.spawn(follower.run()).abort_handle();
        Ok(TreeCache { inner: Arc::new(CacheInner { shared, task }) })
    }
}

#[derive(Debug)]
struct CacheInner {
    shared: Arc<Published>,
    task: AbortHandle,
}

impl Drop for CacheInner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A part of the tree in memory, kept up to date by a watch.
///
/// Cheap to clone; clones are the same cache. The cache ends when the last clone and the last
/// [`CacheChanges`] are dropped, and its watch is then removed from the server.
///
/// # Guarantees
///
/// - Every snapshot is the server's tree at one transaction, so all changes of one transaction appear
///   together.
/// - Snapshots only go forward.
/// - Over reconnects and new sessions, no difference is missed and none is invented.
/// - [`TreeCache::open`] returns a complete snapshot or fails.
/// - A cache that exceeds a bound ends with an [error](TreeCache::ended), and is never partial.
///
/// # Not guaranteed
///
/// - Not every transaction has its own snapshot: changes during a read are published together with it. While
///   nodes are written without a pause, there may be no new snapshot; see
///   [`TreeCacheBuilder::each_node`].
/// - Changes of access control lists are not noticed.
/// - If the servers return to an older state, because they were restored, so do the snapshots.
///
/// # Znodes
///
/// A cache creates no nodes. It has one persistent recursive watch on the server, which is removed with the
/// cache.
///
/// # Cost
///
/// - Opening costs one read for each node, and one more for each that has children, up to 32 in a
///   request and with 256 in flight: 2 round trips for each level that has children.
/// - A change costs 1 event and 1 read, for any number of events until the read is answered.
/// - A reconnect costs one read for each node, up to 32 in a request, and a listing where children
///   were created or deleted.
///
/// Reads share a request if their answer is expected to take at most a quarter of
/// [`ClientBuilder::max_frame`](lockkeeper_client::ClientBuilder::max_frame): by default, 32 nodes of up to 8 KB
/// share one.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Change, CreateMode, TreeCache, ZnodePath};
///
/// let (config, color) = (ZnodePath::new("/config")?, ZnodePath::new("/config/color")?);
/// client.create(&config, "", CreateMode::Persistent).await?;
/// let cache = TreeCache::builder(&client, "/config").max_nodes(10_000).open().await?;
/// let mut changes = cache.changes();
///
/// client.create(&color, "red", CreateMode::Persistent).await?;
/// let update = changes.next().await?;
/// assert!(matches!(&update.changes[..], [Change::Created { path, .. }] if path == "/config/color"));
/// assert_eq!(cache.snapshot().get("/config/color").unwrap().data(), b"red");
/// # drop((changes, cache));
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "CuratorCache")]
#[doc(alias = "PathChildrenCache")]
#[doc(alias = "NodeCache")]
#[doc(alias = "DataWatch")]
#[doc(alias = "ChildrenWatch")]
#[derive(Clone, Debug)]
pub struct TreeCache {
    inner: Arc<CacheInner>,
}

impl TreeCache {
    /// The options of a cache of a node and everything below it.
    pub fn builder(client: &Client, path: &str) -> TreeCacheBuilder {
        let scope = Scope::new(path);
        TreeCacheBuilder { client: client.clone(), each_node: false, scope }
    }

    /// Reads a node and everything below it, and keeps it up to date. Costs as much as
    /// [`TreeCacheBuilder::open`].
    ///
    /// # Errors
    /// As [`TreeCacheBuilder::open`].
    ///
    /// # Cancel safety
    /// When dropped, leaves no watch behind.
    ///
    /// # Session loss
    /// Starts over in the next session.
    pub async fn open(client: &Client, path: &str) -> Result<Self, CacheError> {
        Self::builder(client, path).open().await
    }

    /// The newest snapshot. It does not change, and stays available without a connection.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.inner.shared.state().snapshot)
    }

    /// A number that changes with the snapshot. If it is read before the snapshot, it is not newer.
    pub(crate) fn edition(&self) -> u64 {
        self.inner.shared.edition()
    }

    /// Whether the snapshot includes all known changes: the client is connected, the watch is set, and all
    /// changes reported by events have been read. A server of an ensemble may still lag behind its leader; see
    /// [`Client::sync`].
    pub fn is_current(&self) -> bool {
        let shared = &self.inner.shared;
        let probe = shared.state().probe.clone();
        // In this order, because events are recorded before they are taken from the watch.
        let is_clean = shared.client.contact() == Contact::Connected && probe.is_clean();
        let state = shared.state();
        is_clean && state.is_synced && state.end.is_none()
    }

    /// A time at which the snapshot was the server's tree: when the read that completed it was sent. By the clock
    /// of [`Client::now`].
    pub fn as_of(&self) -> Instant {
        self.inner.shared.state().as_of
    }

    /// Why the cache has ended; `None` while it runs.
    pub fn ended(&self) -> Option<CacheError> {
        self.inner.shared.state().end.clone()
    }

    /// The changes from now on. Each caller has its own reader.
    pub fn changes(&self) -> CacheChanges {
        let mut state = self.inner.shared.state();
        let id = state.touched.subscribe();
        let last = Arc::clone(&state.snapshot);
        drop(state);
        let generation = self.inner.shared.generation.subscribe();
        CacheChanges { cache: self.clone(), id, last, generation }
    }
}

/// A snapshot, and its differences from the previous one.
#[derive(Clone, Debug)]
pub struct CacheUpdate {
    /// The newest snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The differences from the snapshot of the last update, by path. Empty only if just
    /// [`Snapshot::unreadable`] differs.
    pub changes: Vec<Change>,
}

/// The changes of a [`TreeCache`]. A slow reader misses no difference: all changes since its last update come
/// as one update. A reader that is not polled takes no more memory than the tree. Keeps the cache alive.
#[derive(Debug)]
pub struct CacheChanges {
    cache: TreeCache,
    id: ReaderId,
    last: Arc<Snapshot>,
    generation: watch::Receiver<u64>,
}

impl CacheChanges {
    /// The snapshot of the last update.
    pub(crate) fn last(&self) -> Arc<Snapshot> {
        Arc::clone(&self.last)
    }

    /// Waits for a snapshot that differs from the last one. Makes no request of its own: the cache
    /// [reads](TreeCache#cost) each change once for all readers.
    ///
    /// # Errors
    /// Why the cache has ended.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    ///
    /// # Session loss
    /// Not reported by itself: differences in the next session come as an update.
    pub async fn next(&mut self) -> Result<CacheUpdate, CacheError> {
        loop {
            self.generation.mark_unchanged();
            if let Some(update) = self.take()? {
                return Ok(update);
            }
            // The sender lives as long as the cache.
            let _ = self.generation.changed().await;
        }
    }

    fn take(&mut self) -> Result<Option<CacheUpdate>, CacheError> {
        let mut state = self.cache.inner.shared.state();
        let unread = state.touched.read(self.id);
        let (snapshot, end) = (Arc::clone(&state.snapshot), state.end.clone());
        drop(state);

        let changes = match unread {
            Unread::Batches(batches) => {
                let paths = batches.iter().flat_map(|paths| paths.iter().map(String::as_str));
                snapshot.changes_since(&self.last, &paths.collect())
            }
            Unread::TooMuch => snapshot.all_changes_since(&self.last),
        };
        let is_same = changes.is_empty() && snapshot.lacks_the_same(&self.last);
        self.last = Arc::clone(&snapshot);
        match (is_same, end) {
            (false, _) => Ok(Some(CacheUpdate { snapshot, changes })),
            (true, Some(end)) => Err(end),
            (true, None) => Ok(None),
        }
    }
}

impl Drop for CacheChanges {
    fn drop(&mut self) {
        self.cache.inner.shared.state().touched.unsubscribe(self.id);
    }
}
