//! Waits until no session has a znode below a path.

use std::time::{Duration, Instant};

use lockkeeper::{Client, ZnodePath};
use tokio::time::timeout;

use super::walk::{Found, Walk};
use crate::shared::exit::{Exit, Failure};
use crate::shared::view;

/// Waits until all ephemeral znodes are deleted. They are deleted when their sessions end. By then, their programs have
/// given up what they held: a lease ends before its session does.
pub(super) async fn wait(
    client: &Client,
    root: &ZnodePath,
    limit: Duration,
) -> Result<(), Failure> {
    let start = Instant::now();
    // Check again after each wait: another session may have created a znode.
    while let Some(first) = ephemerals(client, root).await?.into_iter().next() {
        let left = limit.saturating_sub(start.elapsed());
        let gone = timeout(left, is_gone(client, &first)).await;
        gone.unwrap_or_else(|_| Err(still_there(&first, limit)))?;
    }
    Ok(())
}

async fn ephemerals(client: &Client, root: &ZnodePath) -> Result<Vec<ZnodePath>, Failure> {
    client.sync(root).await?;
    let mut walk = Walk::new(client, root);
    while let Some(found) = walk.next().await? {
        let paths = found.into_iter().filter_map(|found| match found {
            Found::Ephemeral(path) => Some(path),
            Found::Persistent(_) => None,
        });
        let paths: Vec<_> = paths.collect();
        if !paths.is_empty() {
            return Ok(paths);
        }
    }
    Ok(Vec::new())
}

async fn is_gone(client: &Client, path: &ZnodePath) -> Result<(), Failure> {
    loop {
        let (stat, mut watcher) = client.exists_watched(path).await?;
        if stat.is_none() {
            return Ok(());
        }
        // The connection was lost or the watch fired: check again.
        let _ = watcher.changed().await;
    }
}

fn still_there(path: &ZnodePath, limit: Duration) -> Failure {
    let message = format!(
        "after {}, a session still has {}: programs still use these servers",
        view::duration(limit),
        view::printable(path.as_str()),
    );
    Failure::new(Exit::No, message)
        .advise("see lockkeeper ls; make the servers unreachable for them")
}
