//! Many sessions, and a line that grows.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lockkeeper::{Client, ZnodePath};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long anything in a line may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// So many sessions, each with a connection of its own, some at a time: a server's backlog of new
/// connections is short.
pub(crate) async fn sessions(servers: &str, count: usize) -> Result<Vec<Client>> {
    const AT_ONCE: usize = 50;
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        let mut connecting = JoinSet::new();
        for _ in 0..AT_ONCE.min(count - clients.len()) {
            let servers = servers.to_owned();
            let builder = Client::builder().session_timeout(Duration::from_secs(30));
            connecting.spawn(async move { builder.connect(&servers).await });
        }
        for client in connecting.join_all().await {
            clients.push(client.context("a session cannot be opened")?);
        }
    }
    Ok(clients)
}

/// The next one that is granted what many wait for.
pub(crate) async fn next<T, E>(granted: &mut UnboundedReceiver<Result<T, E>>) -> Result<T>
where
    anyhow::Error: From<E>,
{
    let next = timeout(LIMIT, granted.recv()).await;
    let next = next.with_context(|| format!("nobody was granted the lock within {LIMIT:?}"))?;
    Ok(next.context("nobody waits")??)
}

/// Closes all of them at once.
pub(crate) async fn close(clients: Vec<Client>) {
    let mut closing = JoinSet::new();
    for client in clients {
        closing.spawn(async move { client.close().await });
    }
    closing.join_all().await;
}

/// Waits until so many are in line at `path`.
pub(crate) async fn wait_for_queue(client: &Client, path: &ZnodePath, count: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let stat = client.exists(path).await?;
        let children = stat.map_or(0, |stat| usize::try_from(stat.num_children).unwrap_or(0));
        if children == count {
            return Ok(());
        }
        if start.elapsed() > LIMIT {
            bail!("{children} of {count} are in the queue after {LIMIT:?}");
        }
        sleep(Duration::from_millis(5)).await;
    }
}
