//! [`crate::inspect`] and [`crate::revoke`] for programs without async.

/// Who holds a lock, and who waits, as [`crate::inspect`].
pub mod inspect {
    use std::sync::Arc;

    use lockkeeper_client::{Error, WatchLost, ZnodePath};

    use crate::admin::inspect::{self as waited, Queue, Queues};
    use crate::blocking::client::Client;
    use crate::blocking::forward::waits_mut;
    use crate::blocking::runtime::Runtime;

    /// As [`Queue::inspect`].
    ///
    /// # Errors
    /// As [`Queue::inspect`].
    pub fn queue(client: &Client, path: &ZnodePath) -> Result<Option<Queue>, Error> {
        client.wait(Queue::inspect(client.as_async(), path))
    }

    /// As [`crate::inspect::queues`].
    ///
    /// # Errors
    /// As [`crate::inspect::queues`].
    pub fn queues(client: &Client, below: &ZnodePath) -> Result<Queues, Error> {
        client.wait(waited::queues(client.as_async(), below))
    }

    /// As [`crate::inspect::wait_until_free`].
    ///
    /// # Errors
    /// As [`crate::inspect::wait_until_free`].
    pub fn wait_until_free(client: &Client, path: &ZnodePath) -> Result<(), Error> {
        client.wait(waited::wait_until_free(client.as_async(), path))
    }

    /// Tells when a queue may have changed, as [`crate::inspect::QueueWatch`].
    #[derive(Debug)]
    #[must_use = "the watches are gone when this is dropped"]
    pub struct QueueWatch {
        inner: waited::QueueWatch,
        runtime: Arc<Runtime>,
    }

    impl QueueWatch {
        /// As [`crate::inspect::QueueWatch::new`].
        ///
        /// # Errors
        /// As [`crate::inspect::QueueWatch::new`].
        pub fn new(client: &Client, path: &ZnodePath) -> Result<Self, Error> {
            let inner = client.wait(waited::QueueWatch::new(client.as_async(), path))?;
            Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
        }
    }

    waits_mut! { QueueWatch, "inspect::QueueWatch":
        /// Waits until something may have changed.
        changed() -> Result<(), WatchLost>;
    }
}

/// Asking holders to give a lock back, and taking it by force, as [`crate::revoke`].
pub mod revoke {
    use std::sync::Arc;
    use std::time::Duration;

    use lockkeeper_client::{Error, ZnodePath};

    use crate::admin::revoke::{self as waited, RevokeOutcome};
    use crate::blocking::client::Client;
    use crate::blocking::forward::waits;
    use crate::blocking::runtime::Runtime;

    /// As [`crate::revoke::revoke`].
    ///
    /// # Errors
    /// As [`crate::revoke::revoke`].
    pub fn revoke(client: &Client, path: &ZnodePath) -> Result<Vec<ZnodePath>, Error> {
        client.wait(waited::revoke(client.as_async(), path))
    }

    /// As [`crate::revoke::revoke_node`].
    ///
    /// # Errors
    /// As [`crate::revoke::revoke_node`].
    pub fn revoke_node(client: &Client, node: &ZnodePath) -> Result<bool, Error> {
        client.wait(waited::revoke_node(client.as_async(), node))
    }

    /// As [`crate::revoke::revoke_within`].
    ///
    /// # Errors
    /// As [`crate::revoke::revoke_within`].
    pub fn revoke_within(
        client: &Client,
        path: &ZnodePath,
        grace: Duration,
    ) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error> {
        client.wait(waited::revoke_within(client.as_async(), path, grace))
    }

    /// A request to the holders of a lock that says who asks, and why, as [`crate::revoke::Revocation`].
    #[derive(Clone, Debug)]
    #[must_use = "no holder is asked before `ask`, `wait` or `force_after`"]
    pub struct Revocation {
        inner: waited::Revocation,
        runtime: Arc<Runtime>,
    }

    impl Revocation {
        /// As [`crate::revoke::Revocation::new`].
        pub fn new(client: &Client, path: &ZnodePath) -> Self {
            let inner = waited::Revocation::new(client.as_async(), path);
            Self { inner, runtime: Arc::clone(&client.runtime) }
        }

        /// As [`crate::revoke::Revocation::by`].
        pub fn by(self, by: impl Into<String>) -> Self {
            Self { inner: self.inner.by(by), runtime: self.runtime }
        }

        /// As [`crate::revoke::Revocation::reason`].
        pub fn reason(self, reason: impl Into<String>) -> Self {
            Self { inner: self.inner.reason(reason), runtime: self.runtime }
        }
    }

    waits! { Revocation, "revoke::Revocation":
        /// Asks the holders.
        ask() -> Result<Vec<ZnodePath>, Error>;
        /// Asks, and waits until those who were asked have gone.
        wait(limit: Option<Duration>) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error>;
        /// Asks, and takes the lock from those who have not gone in time.
        force_after(grace: Duration) -> Result<Vec<(ZnodePath, RevokeOutcome)>, Error>;
    }
}
