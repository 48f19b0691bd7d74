//! A session, and what can be done in it without a lock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{
    Acl, ClientBuilder, Clock, ConnectError, Contact, CreateMode, Created, DefaultAcl, Error,
    Instant, LeaseState, Listing, SessionId, SessionIdentity, Stat, StillHeld, Timing, ZnodePath,
    Zxid,
};

use crate::blocking::forward::{same, waits};
use crate::blocking::runtime::Runtime;
use crate::blocking::transaction::Transaction;

/// A session with a ZooKeeper service, as [`crate::Client`]. Cheap to clone; all clones, their
/// locks and guards share the session.
///
/// What it does not offer itself can be waited for: `client.wait(client.as_async().who_am_i())`.
/// The last of them waits at its end until the session is closed, for a second at most.
#[derive(Clone, Debug)]
pub struct Client {
    // Dropped before the runtime, which sees to the rest.
    inner: lockkeeper_client::Client,
    pub(super) runtime: Arc<Runtime>,
}

impl Client {
    /// Connects with the default options.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`], and if no thread can be started.
    pub fn connect(servers: &str) -> Result<Self, ConnectError> {
        Self::connect_with(lockkeeper_client::Client::builder(), servers)
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with(options: ClientBuilder, servers: &str) -> Result<Self, ConnectError> {
        Self::started(|runtime| runtime.wait(options.connect(servers)))
    }

    /// The same, but waits for no server, as [`ClientBuilder::connect_later`].
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_later`], and if no thread can be started.
    pub fn connect_later(options: ClientBuilder, servers: &str) -> Result<Self, ConnectError> {
        Self::started(|runtime| runtime.wait(async { options.connect_later(servers) }))
    }

    /// A client with a runtime of its own, in which `connect` makes it.
    fn started(
        connect: impl FnOnce(&Runtime) -> Result<lockkeeper_client::Client, ConnectError>,
    ) -> Result<Self, ConnectError> {
        let mut runtime = Runtime::start().map_err(|error| ConnectError::Io(error.to_string()))?;
        let inner = connect(&runtime)?;
        runtime.serves(&inner);
        Ok(Self { inner, runtime: Arc::new(runtime) })
    }

    /// Runs any future with this client's runtime, and waits for it.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.wait(future)
    }

    /// The client for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &lockkeeper_client::Client {
        &self.inner
    }

    /// Ends the session, as [`crate::Client::close`].
    pub fn close(&self) {
        self.wait(self.inner.close());
    }

    /// As [`crate::Client::reachable`].
    pub fn reachable(&self) -> bool {
        self.wait(self.inner.reachable())
    }

    /// As [`crate::Client::with_default_acl`].
    #[must_use]
    pub fn with_default_acl(&self, acl: &DefaultAcl) -> Self {
        let runtime = Arc::clone(&self.runtime);
        Self { inner: self.inner.with_default_acl(acl), runtime }
    }

    /// As [`crate::Client::transaction`].
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.inner.transaction(), &self.runtime)
    }

    /// As [`crate::Client::is_clone_of`].
    pub fn is_clone_of(&self, other: &Self) -> bool {
        self.inner.is_clone_of(&other.inner)
    }
}

same! { Client, "Client":
    contact() -> Contact;
    session_id() -> SessionId;
    last_zxid() -> Zxid;
    session_identity() -> Option<SessionIdentity>;
    session_timeout() -> Duration;
    lease() -> LeaseState;
    timing() -> Timing;
    clock() -> Clock;
    now() -> Instant;
    chroot() -> &ZnodePath;
    default_acl() -> Vec<Acl>;
    creates_open() -> bool;
    authenticate(scheme: &str, secret: impl Into<Bytes>);
}

waits! { Client, "Client":
    close_when_released(timeout: Duration) -> Result<(), StillHeld>;
    create(path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode) -> Result<Created, Error>;
    create_with_acl(path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode, acl: Vec<Acl>)
        -> Result<Created, Error>;
    create_ttl(path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode, ttl: Duration)
        -> Result<Created, Error>;
    ensure(path: &ZnodePath, mode: CreateMode) -> Result<(), Error>;
    delete(path: &ZnodePath, version: Option<i32>) -> Result<(), Error>;
    set_data(path: &ZnodePath, data: impl Into<Bytes>, version: Option<i32>) -> Result<Stat, Error>;
    set_acl(path: &ZnodePath, acl: Vec<Acl>, version: Option<i32>) -> Result<Stat, Error>;
    exists(path: &ZnodePath) -> Result<Option<Stat>, Error>;
    data(path: &ZnodePath) -> Result<(Bytes, Stat), Error>;
    children(path: &ZnodePath) -> Result<Listing, Error>;
    acl(path: &ZnodePath) -> Result<(Vec<Acl>, Stat), Error>;
    sync(path: &ZnodePath) -> Result<(), Error>;
}
