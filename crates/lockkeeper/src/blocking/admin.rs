//! [`crate::inspect`] and [`crate::revoke`] for programs without async.

/// Who holds a lock, and who waits, as [`crate::inspect`].
pub mod inspect {
    use lockkeeper_client::{Error, ZnodePath};

    use crate::admin::inspect::{Queue, Queues};
    use crate::blocking::client::Client;

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
        client.wait(crate::admin::inspect::queues(client.as_async(), below))
    }

    /// As [`crate::inspect::wait_until_free`].
    ///
    /// # Errors
    /// As [`crate::inspect::wait_until_free`].
    pub fn wait_until_free(client: &Client, path: &ZnodePath) -> Result<(), Error> {
        client.wait(crate::admin::inspect::wait_until_free(client.as_async(), path))
    }
}

/// Asking holders to give a lock back, and taking it by force, as [`crate::revoke`].
pub mod revoke {
    use std::time::Duration;

    use lockkeeper_client::{Error, ZnodePath};

    use crate::admin::revoke::{self as waited, RevokeOutcome};
    use crate::blocking::client::Client;

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
}
