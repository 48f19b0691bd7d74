//! Tree caches and presences whose methods wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Error, Instant, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::forward::{same, waits, waits_for_end, waits_mut};
use crate::blocking::runtime::Runtime;
use crate::watch::{
    self, CacheError, CacheUpdate, PresenceBuilder, PresenceError, PresenceState, Snapshot,
    TreeCacheBuilder, TtlPresenceBuilder,
};

/// A [`crate::TreeCache`] whose methods wait. What it guarantees and costs is described there.
/// Cheap to clone.
///
/// # Examples
///
/// ```
/// # let (send, servers) = std::sync::mpsc::channel();
/// # let (done, wait) = tokio::sync::oneshot::channel::<()>();
/// # let server = std::thread::spawn(move || {
/// #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// #         let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
/// #         send.send(engine.connect_string()).unwrap();
/// #         wait.await.ok();
/// #     })
/// # });
/// # let servers = servers.recv()?;
/// use lockkeeper::blocking::{Client, Presence, TreeCache};
/// use lockkeeper::PresenceState;
///
/// let client = Client::connect(&servers)?;
/// let workers = TreeCache::open(&client, "/workers")?;
/// let mut changes = workers.changes();
/// let presence = Presence::start(&client, Presence::builder(&client, "/workers/7"))?;
/// assert!(matches!(presence.state(), PresenceState::Present { .. }));
/// while workers.snapshot().get("/workers/7").is_none() {
///     changes.next()?;
/// }
/// presence.end()?;
/// while workers.snapshot().get("/workers/7").is_some() {
///     changes.next()?;
/// }
/// # drop((changes, workers, client));
/// # done.send(()).ok();
/// # server.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TreeCache {
    // Dropped before the runtime, as everything here: it is what ends them.
    inner: watch::TreeCache,
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
        let inner = client.wait(options.open())?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// The cache for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &watch::TreeCache {
        &self.inner
    }

    /// As [`crate::TreeCache::changes`].
    pub fn changes(&self) -> CacheChanges {
        CacheChanges { inner: self.inner.changes(), runtime: Arc::clone(&self.runtime) }
    }
}

same! { TreeCache, "TreeCache":
    snapshot() -> Arc<Snapshot>;
    is_current() -> bool;
    as_of() -> Instant;
    ended() -> Option<CacheError>;
}

/// As [`crate::CacheChanges`].
#[derive(Debug)]
pub struct CacheChanges {
    inner: watch::CacheChanges,
    runtime: Arc<Runtime>,
}

waits_mut! { CacheChanges, "CacheChanges":
    #[expect(clippy::should_implement_trait, reason = "the name that the async side has")]
    next() -> Result<CacheUpdate, CacheError>;
}

/// A [`crate::Presence`] whose methods wait. What it guarantees and costs is described there. An
/// example is at [`TreeCache`].
#[must_use = "the node is deleted when this is dropped"]
#[derive(Debug)]
pub struct Presence {
    inner: watch::Presence,
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
        let inner = client.wait(options.start())?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// Waits until the state differs from `last`, and gives it.
    pub fn wait_changed(&self, last: &PresenceState) -> PresenceState {
        self.runtime.wait_changed(self.inner.changes(), last)
    }

    /// As [`crate::Presence::taken`], and waits.
    pub fn taken(&self) -> PresenceError {
        self.runtime.wait(self.inner.taken())
    }
}

same! { Presence, "Presence":
    path() -> &ZnodePath;
    state() -> PresenceState;
}

waits! { Presence, "Presence": update(data: impl Into<Bytes>) -> Result<(), PresenceError>; }
waits_for_end! { Presence, "Presence": end() -> Result<(), Error>; }

/// A [`crate::TtlPresence`] whose methods wait. What it guarantees and costs is described there.
#[must_use = "the node is not kept alive any more when this is dropped"]
#[derive(Debug)]
pub struct TtlPresence {
    inner: watch::TtlPresence,
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
        let inner = client.wait(options.start())?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }
}

same! { TtlPresence, "TtlPresence": state() -> PresenceState; }
waits_for_end! { TtlPresence, "TtlPresence": end() -> Result<(), Error>; }
