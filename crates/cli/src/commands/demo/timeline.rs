//! The first part of the story: two clients and one exclusive lock.
//!
//! The lock is one ephemeral node. The client that creates it holds the lock; the other client watches the node and
//! tries again when it is deleted.

use std::time::{Duration, Instant};

use lockkeeper::{Client, CreateMode, Error, ErrorCode, ZnodePath};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::stage::Stage;
use crate::shared::exit::Failure;

/// How long the first client works under the lock.
const WORK: Duration = Duration::from_millis(300);

/// Prints events, in a column for each client.
struct Timeline<'a> {
    stage: &'a Stage<'a>,
    start: Instant,
}

/// Shows both clients; returns the milliseconds from the release to the next lock.
pub(super) async fn play(stage: &Stage<'_>) -> Result<f64, Failure> {
    stage.say(&stage.paint.bold("1. One exclusive lock, two clients"))?;
    stage.say("   The lock is a node: its creator holds it, the other client watches it.\n")?;
    stage.say(&stage.paint.dim(&format!("{:>11}  {:<28}{}", "time", "locker 1", "locker 2")))?;
    let (one, two) = (stage.client().await?, stage.client().await?);
    let line = Timeline { stage, start: Instant::now() };
    let (waits, waiting) = oneshot::channel();
    let (released, locked) =
        tokio::try_join!(first(&line, &one, waiting), second(&line, &two, waits))?;
    two.delete(&stage.root, None).await?;
    tokio::join!(one.close(), two.close());
    let handover = (locked - released).as_secs_f64() * 1_000.0;
    stage.say(&format!("\n   {handover:.1} ms from the release to the next lock.\n"))?;
    Ok(handover)
}

/// Acquires the lock, and releases it when the other client has waited for a while.
async fn first(
    line: &Timeline<'_>,
    client: &Client,
    waiting: oneshot::Receiver<()>,
) -> Result<Instant, Failure> {
    let node = &line.stage.root;
    client.create(node, "locker 1", CreateMode::Ephemeral).await?;
    line.say(0, &line.stage.paint.green("locked"))?;
    // The sender is dropped if the other client fails, which then returns the error.
    let _ = waiting.await;
    sleep(WORK).await;
    let released = line.say(0, "releases")?;
    client.delete(node, None).await?;
    Ok(released)
}

/// Waits for the lock.
async fn second(
    line: &Timeline<'_>,
    client: &Client,
    waits: oneshot::Sender<()>,
) -> Result<Instant, Failure> {
    let mut waits = Some(waits);
    let paint = line.stage.paint;

    // The first client must be the first to have the lock.
    while client.exists(&line.stage.root).await?.is_none() {
        sleep(Duration::from_millis(1)).await;
    }

    while !create(client, &line.stage.root).await? {
        let (_, mut watcher) = match client.data_watched(&line.stage.root).await {
            // Released between the attempt and the watch.
            Err(error) if error.code() == Some(ErrorCode::NoNode) => continue,
            watched => watched?,
        };
        line.say(1, &paint.yellow("taken: waits, watching"))?;
        if let Some(waits) = waits.take() {
            let _ = waits.send(());
        }
        if let Ok(event) = watcher.changed().await {
            line.say(1, &format!("notified: {:?}", event.kind))?;
        }
    }
    line.say(1, &paint.green("locked"))
}

/// Whether the lock was free.
async fn create(client: &Client, node: &ZnodePath) -> Result<bool, Error> {
    match client.create(node, "locker 2", CreateMode::Ephemeral).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(ErrorCode::NodeExists) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Timeline<'_> {
    /// Prints an event; returns its time, so that computed times match the output.
    fn say(&self, column: usize, what: &str) -> Result<Instant, Failure> {
        let now = Instant::now();
        let ms = (now - self.start).as_secs_f64() * 1_000.0;
        let indent = 28 * column;
        self.stage.say(&format!("{ms:>8.1} ms  {:indent$}{what}", ""))?;
        Ok(now)
    }
}
