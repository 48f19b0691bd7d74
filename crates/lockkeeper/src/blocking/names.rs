//! Names whose methods wait.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{Error, ZnodePath};

use crate::blocking::client::Client;
use crate::blocking::forward::{guards, same, waits};
use crate::blocking::guard::Guard;
use crate::blocking::runtime::Runtime;
use crate::error::BuildError;
use crate::names::{self, ClaimError, NameClaim, NameHolder, NamesBuilder};

/// [`crate::Names`] whose methods wait. What it guarantees and costs is described there. Cheap to
/// clone.
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
/// use lockkeeper::blocking::{Client, Names};
///
/// let client = Client::connect(&servers)?;
/// let names = Names::new(&client, "/workers")?;
/// let claim = names.claim("worker-7")?;
/// assert!(names.try_claim("worker-7")?.is_none());
/// assert_eq!(claim.name(), "worker-7");
/// claim.release()?;
/// # drop((names, client));
/// # done.send(()).ok();
/// # server.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Names {
    inner: names::Names,
    runtime: Arc<Runtime>,
}

impl Names {
    /// As [`crate::Names::new`]. No I/O.
    ///
    /// # Errors
    /// As [`crate::Names::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::build(client, Self::builder(client, path))
    }

    /// The options of names, for [`Names::build`].
    pub fn builder(client: &Client, path: &str) -> NamesBuilder {
        names::Names::builder(client.as_async(), path)
    }

    /// As [`NamesBuilder::build`]. No I/O. The options must be of the same client.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn build(client: &Client, options: NamesBuilder) -> Result<Self, BuildError> {
        Ok(Self { inner: options.build()?, runtime: Arc::clone(&client.runtime) })
    }

    /// The names for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &names::Names {
        &self.inner
    }

    /// As [`crate::Names::claim_any`], and waits.
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn claim_any<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Option<Guard<NameClaim>>, ClaimError> {
        let claim = self.runtime.wait(self.inner.claim_any(names))?;
        Ok(claim.map(|claim| Guard::new(claim, &self.runtime)))
    }
}

guards! { Names => NameClaim, ClaimError:
    claim(name: &str); claim_timeout(name: &str, timeout: Duration); claim_now(name: &str);
    => Option: try_claim(name: &str);
}

same! { Names, "Names": path() -> &ZnodePath; }

waits! { Names, "Names":
    holder(name: &str) -> Result<Option<NameHolder>, ClaimError>;
    taken() -> Result<Vec<String>, Error>;
}
