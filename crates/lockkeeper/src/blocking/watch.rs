//! Tree caches and presences whose methods wait.
//!
//! ```
//! # let (send, servers) = std::sync::mpsc::channel();
//! # let (done, wait) = tokio::sync::oneshot::channel::<()>();
//! # let server = std::thread::spawn(move || {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! #         let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
//! #         send.send(engine.connect_string()).unwrap();
//! #         wait.await.ok();
//! #     })
//! # });
//! # let servers = servers.recv()?;
//! use lockkeeper::blocking::{Client, Presence, TreeCache};
//! use lockkeeper::PresenceState;
//!
//! let client = Client::connect(&servers)?;
//! let workers = TreeCache::open(&client, "/workers")?;
//! let mut changes = workers.changes();
//! let presence = Presence::start(&client, Presence::builder(&client, "/workers/7"))?;
//! assert!(matches!(presence.state(), PresenceState::Present { .. }));
//! while workers.snapshot().get("/workers/7").is_none() {
//!     changes.next()?;
//! }
//! presence.end()?;
//! while workers.snapshot().get("/workers/7").is_some() {
//!     changes.next()?;
//! }
//! # drop((changes, workers, client));
//! # done.send(()).ok();
//! # server.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Error, Instant, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::runtime::Runtime;
use crate::watch::{
    self, CacheError, CacheUpdate, PresenceBuilder, PresenceError, PresenceState, Snapshot,
    TreeCacheBuilder, TtlPresenceBuilder,
};

/// As [`crate::TreeCache`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TreeCache {
    // Dropped before the runtime, as everything here: it is what ends them.
    cache: watch::TreeCache,
    runtime: Arc<Runtime>,
}

impl TreeCache {
    /// The options of a cache, for [`TreeCache::open_with`].
    pub fn builder(client: &Client, path: &str) -> TreeCacheBuilder {
        watch::TreeCache::builder(client.as_async(), path)
    }

    /// As [`crate::TreeCache::open`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn open(client: &Client, path: &str) -> Result<Self, CacheError> {
        Self::open_with(client, Self::builder(client, path))
    }

    /// As [`TreeCacheBuilder::open`], and waits. The options must be of the same client.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn open_with(client: &Client, options: TreeCacheBuilder) -> Result<Self, CacheError> {
        let cache = client.wait(options.open())?;
        Ok(Self { cache, runtime: Arc::clone(&client.runtime) })
    }

    /// The cache for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &watch::TreeCache {
        &self.cache
    }

    /// As [`crate::TreeCache::snapshot`].
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.cache.snapshot()
    }

    /// As [`crate::TreeCache::is_current`].
    pub fn is_current(&self) -> bool {
        self.cache.is_current()
    }

    /// As [`crate::TreeCache::as_of`].
    pub fn as_of(&self) -> Instant {
        self.cache.as_of()
    }

    /// As [`crate::TreeCache::ended`].
    pub fn ended(&self) -> Option<CacheError> {
        self.cache.ended()
    }

    /// As [`crate::TreeCache::changes`].
    pub fn changes(&self) -> CacheChanges {
        CacheChanges { changes: self.cache.changes(), runtime: Arc::clone(&self.runtime) }
    }
}

/// As [`crate::CacheChanges`].
#[derive(Debug)]
pub struct CacheChanges {
    changes: watch::CacheChanges,
    runtime: Arc<Runtime>,
}

impl CacheChanges {
    /// As [`crate::CacheChanges::next`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    #[expect(clippy::should_implement_trait, reason = "the name that the async side has")]
    pub fn next(&mut self) -> Result<CacheUpdate, CacheError> {
        self.runtime.wait(self.changes.next())
    }
}

/// As [`crate::Presence`].
#[must_use = "the node is deleted when this is dropped"]
#[derive(Debug)]
pub struct Presence {
    presence: watch::Presence,
    runtime: Arc<Runtime>,
}

impl Presence {
    /// The options of a presence, for [`Presence::start`].
    pub fn builder(client: &Client, path: &str) -> PresenceBuilder {
        watch::Presence::builder(client.as_async(), path)
    }

    /// As [`PresenceBuilder::start`], and waits. The options must be of the same client.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn start(client: &Client, options: PresenceBuilder) -> Result<Self, PresenceError> {
        let presence = client.wait(options.start())?;
        Ok(Self { presence, runtime: Arc::clone(&client.runtime) })
    }

    /// As [`crate::Presence::path`].
    pub fn path(&self) -> &ZnodePath {
        self.presence.path()
    }

    /// As [`crate::Presence::update`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn update(&self, data: impl Into<Bytes>) -> Result<(), PresenceError> {
        self.runtime.wait(self.presence.update(data))
    }

    /// As [`crate::Presence::state`].
    pub fn state(&self) -> PresenceState {
        self.presence.state()
    }

    /// Waits until the state differs from `last`, and gives it.
    pub fn wait_changed(&self, last: &PresenceState) -> PresenceState {
        self.runtime.wait_changed(self.presence.changes(), last)
    }

    /// As [`crate::Presence::taken`], and waits.
    pub fn taken(&self) -> PresenceError {
        self.runtime.wait(self.presence.taken())
    }

    /// As [`crate::Presence::end`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn end(self) -> Result<(), Error> {
        let Self { presence, runtime } = self;
        runtime.wait(presence.end())
    }
}

/// As [`crate::TtlPresence`].
#[must_use = "the node is not kept alive any more when this is dropped"]
#[derive(Debug)]
pub struct TtlPresence {
    presence: watch::TtlPresence,
    runtime: Arc<Runtime>,
}

impl TtlPresence {
    /// The options of a presence, for [`TtlPresence::start`].
    pub fn builder(client: &Client, path: &str, ttl: Duration) -> TtlPresenceBuilder {
        watch::TtlPresence::builder(client.as_async(), path, ttl)
    }

    /// As [`TtlPresenceBuilder::start`], and waits. The options must be of the same client.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn start(client: &Client, options: TtlPresenceBuilder) -> Result<Self, PresenceError> {
        let presence = client.wait(options.start())?;
        Ok(Self { presence, runtime: Arc::clone(&client.runtime) })
    }

    /// As [`crate::TtlPresence::state`].
    pub fn state(&self) -> PresenceState {
        self.presence.state()
    }

    /// As [`crate::TtlPresence::end`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn end(self) -> Result<(), Error> {
        let Self { presence, runtime } = self;
        runtime.wait(presence.end())
    }
}
