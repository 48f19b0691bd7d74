//! What no lock in the order of arrival can do without, with a node for each that waits.

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper::{Client, CreateMode, OpResult, ZnodePath};

use crate::measure::Lock;

/// What a lock's node holds is about as long.
const DATA: &[u8] = &[0x55; 100];

/// Bare requests in place of a lock: a create, a listing, a watch on the node ahead, its event, a
/// delete. It is sure of nothing that a lock has to be sure of: it takes the end of the node ahead
/// for its turn without a second look, does not watch its own node, and knows no lost connections.
pub(crate) struct BareLock {
    client: Client,
    line: ZnodePath,
    prefix: ZnodePath,
    /// A node to be deleted in one transaction with the next create.
    left: Option<ZnodePath>,
}

impl BareLock {
    /// Among the children of `line`, which is made if need be.
    pub(crate) async fn new(client: &Client, line: &str) -> Result<Self> {
        let line = ZnodePath::new(line)?;
        client.ensure(&line, CreateMode::Persistent).await?;
        let prefix = line.child("bare-")?;
        Ok(Self { client: client.clone(), line, prefix, left: None })
    }

    /// Creates the next node, with the listing behind it in the same write.
    async fn enter(&mut self) -> Result<(ZnodePath, Vec<String>)> {
        const MODE: CreateMode = CreateMode::EphemeralSequential;
        let data = Bytes::from_static(DATA);
        let Some(left) = self.left.take() else {
            let made = self.client.create(&self.prefix, data, MODE);
            let listed = self.client.children(&self.line);
            return Ok((made.await?.path, listed.await?.0));
        };
        let replaced = self.client.transaction().delete(&left, None);
        let replaced = replaced.create(&self.prefix, data, MODE).commit();
        // Polled in this order, and so sent in it.
        let (results, listed) =
            tokio::join!(biased; replaced, async { self.client.children(&self.line).await });
        let results = results?;
        let (Some(OpResult::Create { path }) | Some(OpResult::Create2 { path, .. })) =
            results.into_iter().nth(1)
        else {
            anyhow::bail!("a create is answered by something else");
        };
        Ok((ZnodePath::new(&path)?, listed?.0))
    }
}

impl Lock for BareLock {
    type Guard = ZnodePath;
    type Error = anyhow::Error;

    async fn acquire(&mut self) -> Result<ZnodePath> {
        let (own, mut line) = self.enter().await?;
        // All have the same prefix, and numbers of the same length.
        line.sort_unstable();
        let place = line.iter().position(|name| name == own.name()).context("it is not listed")?;
        if let Some(ahead) = place.checked_sub(1) {
            let watched = self.client.data_watched(&self.line.child(&line[ahead])?).await;
            // If it could not be watched, it is gone.
            if let Ok((_, mut watcher)) = watched {
                watcher.changed().await?;
            }
        }
        Ok(own)
    }

    async fn release(&mut self, own: ZnodePath) -> Result<()> {
        Ok(self.client.delete(&own, None).await?)
    }

    fn let_go(&mut self, own: ZnodePath) {
        self.left = Some(own);
    }
}

impl Drop for BareLock {
    /// Those behind it are still waiting.
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            drop(self.client.delete(&left, None));
        }
    }
}
