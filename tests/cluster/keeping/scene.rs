//! What one case has to itself, and how it waits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lockkeeper::{AcquireError, Client, Clock, Guard};

use crate::keeping::plan::Case;
use crate::keeping::servers::Servers;

/// A lock's path, and a client on each side.
pub(crate) struct Scene {
    pub(crate) case: Case,
    pub(crate) servers: Arc<Servers>,
    /// Of the holder that is looked at.
    pub(crate) client: Client,
    /// Of the one that holds before.
    pub(crate) other: Client,
    pub(crate) path: String,
    pub(crate) lease: Duration,
    /// The case's share of a lease, in whole milliseconds.
    pub(crate) wait: Duration,
}

impl Scene {
    pub(crate) async fn open(case: Case, servers: Arc<Servers>) -> Result<Self> {
        let connect = servers.connect_string(case.server);
        let client = servers.client(case.mode).connect(connect).await?;
        let other = servers.client(case.mode).connect(connect).await?;
        let (path, lease) = (servers.new_path(), client.timing().lease());
        let wait = lease * case.share / 100;
        let wait = Duration::from_millis(u64::try_from(wait.as_millis())?);
        Ok(Self { case, servers, client, other, path, lease, wait })
    }

    pub(crate) async fn close(self) {
        tokio::join!(self.client.close(), self.other.close());
    }

    /// Waits for a lock, from when `acquire` enters the line until `before` is given back.
    pub(crate) async fn behind<H, G>(
        &self,
        before: H,
        acquire: impl Future<Output = Result<G, AcquireError>>,
    ) -> Result<G> {
        let mut acquire = pin!(acquire);
        // In this order: what enters the line is sent before the wait begins.
        tokio::select! {
            biased;
            early = &mut acquire => match early {
                Ok(_) => bail!("granted while somebody else held it"),
                Err(error) => return Err(error.into()),
            },
            () = self.idle() => {}
        }
        drop(before);
        Ok(acquire.await?)
    }

    /// Waits for a lock whose holder vanishes at once: its lock delay is the wait.
    pub(crate) async fn after_delay<G>(
        &self,
        before: &Guard,
        acquire: impl Future<Output = Result<G, AcquireError>>,
    ) -> Result<G> {
        let start = Clock.now();
        let vanish = async {
            // As if its session had expired: what marks the delay stays.
            self.other.delete(before.node(), None).await?;
            Ok(())
        };
        let (guard, ()) = tokio::try_join!(async { anyhow::Ok(acquire.await?) }, vanish)?;
        let waited = Clock.now().since(start);
        ensure!(waited >= self.wait, "granted after {waited:?}, with a delay of {:?}", self.wait);
        Ok(guard)
    }

    /// Lets the share of a lease pass. It is what a case is about, and stands for no event.
    pub(crate) async fn idle(&self) {
        tokio::time::sleep(self.wait).await;
    }
}
