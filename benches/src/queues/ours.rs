//! Our queue.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{Client, Item, Queue, Raw};
use tokio::task::JoinSet;

use super::items::{Consumers, Items, put_until_done};
use crate::lines::{close, sessions};
use crate::measure::{Measured, Plan};

/// A queue of bytes.
pub(crate) fn queue(client: &Client, path: &str) -> Result<Queue<Bytes>> {
    Ok(Queue::<Bytes>::builder(client, path).build_with(Raw)?)
}

/// One handle puts; each consumer has a client of its own.
pub(crate) async fn measure(
    servers: &str,
    path: &str,
    consumers: Consumers,
    plan: Plan,
) -> Result<Measured> {
    let clients = sessions(servers, consumers.count + 1).await?;
    let (items, mut consuming) = (Items::new(), JoinSet::new());
    for client in &clients[1..] {
        let (queue, items) = (queue(client, path)?, items.clone());
        consuming.spawn(async move {
            match consumers.batches {
                true => work(queue, consumers.at_once(), items).await,
                false => take(queue, items).await,
            }
        });
    }

    let queue = queue(&clients[0], path)?;
    let put = move |content| {
        let queue = queue.clone();
        async move {
            queue.put(&content).await?;
            Ok(())
        }
    };
    let measured = put_until_done(&items, consuming, put, plan).await?;
    close(clients).await;
    Ok(measured)
}

async fn take(queue: Queue<Bytes>, items: Items) -> Result<()> {
    loop {
        let item = queue.take().await?;
        item.done().await?;
        items.done(item.value())?;
    }
}

/// An item counts when the handler has ended, as Curator's do. No more of them wait to be recorded than are worked on
/// at once.
async fn work(queue: Queue<Bytes>, at_once: usize, items: Items) -> Result<()> {
    let handler = |item: Arc<Item<Bytes>>| std::future::ready(items.done(item.value()));
    match queue.work(at_once, handler).await? {}
}
