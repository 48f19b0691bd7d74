//! Service directories and registrations whose methods wait.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{Error, Instant};

use crate::blocking::client::Client;
use crate::blocking::forward::{same, waits, waits_for_end, waits_mut};
use crate::blocking::runtime::Runtime;
use crate::discovery::pick::{Call, InstanceLoad, Pick, PickError};
use crate::discovery::{
    self, DirectoryUpdate, Instance, Instances, Listed, RegisterError, ServiceDirectoryBuilder,
};
use crate::watch::{CacheError, PresenceError, PresenceState};

/// A [`crate::ServiceDirectory`] whose methods wait. What it guarantees and costs is described
/// there. It has no `run`: count the outcome of each call by [`Call::outcome`]. Cheap to clone.
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
/// use lockkeeper::blocking::{Client, Registration, ServiceDirectory};
/// use lockkeeper::{Instance, Pick};
///
/// let client = Client::connect(&servers)?;
/// let instance = Instance::new("web", "7").address("10.0.0.7").port(8080);
/// let registration = Registration::start(&client, "/services", instance)?;
///
/// let web = ServiceDirectory::open(&client, "/services", "web")?;
/// let call = web.pick(Pick::PowerOfTwo)?;
/// assert_eq!(call.instance().port, Some(8080));
/// drop(call);
///
/// let mut changes = web.changes();
/// registration.unregister()?;
/// while !web.instances().is_empty() {
///     changes.next()?;
/// }
/// # drop((changes, web, client));
/// # done.send(()).ok();
/// # server.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServiceDirectory {
    // Dropped before the runtime, as everything here: it is what ends them.
    inner: discovery::ServiceDirectory,
    runtime: Arc<Runtime>,
}

impl ServiceDirectory {
    /// The options of a directory, for [`ServiceDirectory::open_with`].
    pub fn builder(client: &Client, base: &str, service: &str) -> ServiceDirectoryBuilder {
        discovery::ServiceDirectory::builder(client.as_async(), base, service)
    }

    /// As [`crate::ServiceDirectory::open`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn open(client: &Client, base: &str, service: &str) -> Result<Self, CacheError> {
        Self::open_with(client, Self::builder(client, base, service))
    }

    /// As [`ServiceDirectoryBuilder::open`], and waits. The options must be of the same client.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn open_with(
        client: &Client,
        options: ServiceDirectoryBuilder,
    ) -> Result<Self, CacheError> {
        let inner = client.wait(options.open())?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// The directory for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &discovery::ServiceDirectory {
        &self.inner
    }

    /// As [`crate::ServiceDirectory::pick`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn pick(&self, how: Pick<'_>) -> Result<Call<Listed>, PickError> {
        self.inner.pick(how)
    }

    /// As [`crate::ServiceDirectory::pick_except`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn pick_except(
        &self,
        tried: &[Arc<Listed>],
        how: Pick<'_>,
    ) -> Result<Call<Listed>, PickError> {
        self.inner.pick_except(tried, how)
    }

    /// As [`crate::ServiceDirectory::changes`].
    pub fn changes(&self) -> DirectoryChanges {
        DirectoryChanges { inner: self.inner.changes(), runtime: Arc::clone(&self.runtime) }
    }
}

same! { ServiceDirectory, "ServiceDirectory":
    instances() -> Arc<Instances>;
    loads() -> Vec<InstanceLoad<Listed>>;
    is_current() -> bool;
    as_of() -> Instant;
    ended() -> Option<CacheError>;
}

/// As [`crate::DirectoryChanges`].
#[derive(Debug)]
pub struct DirectoryChanges {
    inner: discovery::DirectoryChanges,
    runtime: Arc<Runtime>,
}

waits_mut! { DirectoryChanges, "DirectoryChanges":
    #[expect(clippy::should_implement_trait, reason = "the name that the async side has")]
    next() -> Result<DirectoryUpdate, CacheError>;
}

/// A [`crate::Registration`] whose methods wait. What it guarantees and costs is described there.
/// An example is at [`ServiceDirectory`].
#[must_use = "the instance is taken out when this is dropped"]
#[derive(Debug)]
pub struct Registration {
    inner: discovery::Registration,
    runtime: Arc<Runtime>,
}

impl Registration {
    /// As [`crate::Registration::start`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn start(client: &Client, base: &str, instance: Instance) -> Result<Self, RegisterError> {
        let starting = discovery::Registration::start(client.as_async(), base, instance);
        let inner = client.wait(starting)?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// Waits until the state differs from `last`, and gives it.
    pub fn wait_changed(&self, last: &PresenceState) -> PresenceState {
        self.runtime.wait_changed(self.inner.changes(), last)
    }

    /// As [`crate::Registration::taken`], and waits.
    pub fn taken(&self) -> PresenceError {
        self.runtime.wait(self.inner.taken())
    }

    /// As [`crate::Registration::instance`], and waits.
    pub fn instance(&self) -> Instance {
        self.runtime.wait(self.inner.instance())
    }
}

same! { Registration, "Registration": state() -> PresenceState; }

waits! { Registration, "Registration":
    update(change: impl FnOnce(&mut Instance)) -> Result<(), RegisterError>;
    update_timeout(change: impl FnOnce(&mut Instance), timeout: Duration)
        -> Result<(), RegisterError>;
    drain() -> Result<(), RegisterError>;
    drain_timeout(timeout: Duration) -> Result<(), RegisterError>;
    undrain() -> Result<(), RegisterError>;
}

waits_for_end! { Registration, "Registration": unregister() -> Result<(), Error>; }
