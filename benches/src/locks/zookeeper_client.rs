//! The lock of the crate `zookeeper-client`.

use crate::measure::Lock;
use anyhow::Result;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

/// A lock, under the names that Curator uses too.
pub(crate) struct ZookeeperClientLock {
    pub(crate) client: Client,
    pub(crate) path: String,
}

impl Lock for ZookeeperClientLock {
    type Guard = OwnedLockClient;

    async fn acquire(&mut self) -> Result<OwnedLockClient> {
        let prefix = LockPrefix::new_curator(&self.path, "lock-")?;
        let parents = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents)?;
        let held = self.client.lock(prefix, b"", options).await?;
        Ok(held.into_owned())
    }

    /// The crate deletes the node in a task of its own when the guard is dropped, and lets nobody
    /// wait for it. That task has sent the delete after one yield of this thread's only other
    /// task, and requests of a session are answered in order, so the next answer shows that the
    /// delete was done.
    async fn release(&mut self, held: OwnedLockClient) -> Result<()> {
        drop(held);
        tokio::task::yield_now().await;
        self.client.check_stat("/").await?;
        Ok(())
    }
}
