//! The instances of a service, kept up to date.
//!
//! Guarantees  an instance that is registered and lives, on servers that answer, is in every directory;
//!             one whose node is gone is in none that [is current](ServiceDirectory::is_current). An
//!             instance is never away in between while its node is there, and never goes back to what it
//!             was. Cut off from the servers, the last instances stay. What cannot be read is named, and
//!             concerns nobody else.
//! Not         that an instance works: its node is there for a session timeout after its program has
//!             ended. Every state that it passed through: several may come as one.
//! Znodes      none. It reads `<base>/<service>/<id>`, by one persistent recursive watch on the service.
//! Cost        open: 1 read for each instance, 2 besides, and 2 round trips. A change: 1 event and 1 read.
//!             Asking what instances there are: nothing, and no allocation.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
//! use lockkeeper::ServiceDirectory;
//!
//! let web = ServiceDirectory::open(&client, "/services", "web").await?;
//! for instance in web.instances().iter().filter(|instance| instance.is_enabled) {
//!     println!("{} is at {:?}", instance.id, instance.address);
//! }
//! # drop(web);
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper_client::{Client, Instant, ZnodePath};

use crate::discovery::instances::{InstanceChange, Instances};
use crate::watch::{CacheChanges, CacheError, Snapshot, TreeCache};

#[derive(Debug)]
struct Inner {
    cache: TreeCache,
    service: ZnodePath,
    read: Mutex<Read>,
}

/// The newest snapshot of the cache that was looked at, and what it says.
#[derive(Debug)]
struct Read {
    snapshot: Arc<Snapshot>,
    instances: Arc<Instances>,
}

impl Read {
    fn of(before: &Instances, snapshot: Arc<Snapshot>, service: &ZnodePath) -> Self {
        let nodes = snapshot.children(service.as_str());
        let instances = Arc::new(before.read(nodes, snapshot.zxid()));
        Self { snapshot, instances }
    }
}

/// The instances of a service, as they are now.
///
/// Cheap to clone; clones are the same directory. It ends with the last clone and the last
/// [`DirectoryChanges`].
#[doc(alias = "ServiceCache")]
#[doc(alias = "ServiceProvider")]
#[doc(alias = "ServiceDiscovery")]
#[derive(Clone, Debug)]
pub struct ServiceDirectory {
    inner: Arc<Inner>,
}

impl ServiceDirectory {
    /// Reads the instances of the service `<base>/<service>`, and keeps them up to date. There may be
    /// none, and not even the service's node.
    ///
    /// # Errors
    /// As [`TreeCacheBuilder::open`](crate::TreeCacheBuilder::open).
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    ///
    /// # Session loss
    /// It begins anew in the next session.
    pub async fn open(client: &Client, base: &str, service: &str) -> Result<Self, CacheError> {
        let service = ZnodePath::new(base)?.child(service)?;
        let cache = TreeCache::builder(client, service.as_str()).max_depth(1).open().await?;
        let snapshot = cache.snapshot();
        let read = Mutex::new(Read::of(&Instances::default(), snapshot, &service));
        Ok(Self { inner: Arc::new(Inner { cache, service, read }) })
    }

    /// The instances as they are now, also those that are not to be called. They stay without a
    /// connection, and never go back.
    pub fn instances(&self) -> Arc<Instances> {
        let inner = &self.inner;
        let mut read = inner.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken while nobody else can put a newer one in place.
        let snapshot = inner.cache.snapshot();
        if !Arc::ptr_eq(&snapshot, &read.snapshot) {
            *read = Read::of(&read.instances, snapshot, &inner.service);
        }
        Arc::clone(&read.instances)
    }

    /// Whether nothing is known that [`ServiceDirectory::instances`] does not show. See
    /// [`TreeCache::is_current`].
    pub fn is_current(&self) -> bool {
        self.inner.cache.is_current()
    }

    /// A time at or after which the instances were just these. By the clock of [`Client::now`].
    pub fn as_of(&self) -> Instant {
        self.inner.cache.as_of()
    }

    /// Why the directory has ended; `None` while it has not. The last instances stay.
    pub fn ended(&self) -> Option<CacheError> {
        self.inner.cache.ended()
    }

    /// What changes from now on. Each caller has changes of its own.
    pub fn changes(&self) -> DirectoryChanges {
        let wakes = self.inner.cache.changes();
        DirectoryChanges { last: self.instances(), directory: self.clone(), wakes }
    }
}

/// The instances, and how they differ from those before.
#[derive(Clone, Debug)]
pub struct DirectoryUpdate {
    /// The instances.
    pub instances: Arc<Instances>,
    /// How they differ from those of the last update, by node; never empty.
    pub changes: Vec<InstanceChange>,
}

/// What changes in a [`ServiceDirectory`]. A slow reader misses no difference: what happened meanwhile
/// comes as one update. Keeps the directory alive.
#[derive(Debug)]
pub struct DirectoryChanges {
    directory: ServiceDirectory,
    last: Arc<Instances>,
    wakes: CacheChanges,
}

impl DirectoryChanges {
    /// Waits until the instances differ from the last ones.
    ///
    /// # Errors
    /// Why the directory has ended.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    ///
    /// # Session loss
    /// None is seen: what differs in the next session comes as an update.
    pub async fn next(&mut self) -> Result<DirectoryUpdate, CacheError> {
        loop {
            let instances = self.directory.instances();
            let changes = instances.changes_since(&self.last);
            self.last = Arc::clone(&instances);
            if !changes.is_empty() {
                return Ok(DirectoryUpdate { instances, changes });
            }
            self.wakes.next().await?;
        }
    }
}
