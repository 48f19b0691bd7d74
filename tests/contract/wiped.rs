//! A server that returns without its data: followers continue with the new state, although
//! its transactions have lower numbers. Lockkeeper's own engine never assigns lower numbers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper::{
    Client, CreateMode, Notify, Publication, Shared, TreeCache, ValueChange, ZnodePath, Zxid,
};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::zookeeper::Config;
use tokio::time::timeout;

/// What nothing comes near unless it waits for a number that does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// More transactions than there are after the loss.
const BEFORE: u32 = 200;

#[tokio::test]
async fn what_follows_a_wiped_server_goes_on_with_it() -> Result<()> {
    if !peers::ready("contract: wiped on ZooKeeper", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    crate::limited(goes_on()).await
}

/// Waits on when no server can be reached for a while.
async fn past(news: &Notify, known: Zxid) -> Result<Zxid> {
    loop {
        match news.wait_past(known).await {
            Err(error) if error.is_retryable() => {}
            waited => return Ok(waited?),
        }
    }
}

/// `Notify` waited until the servers had come to the numbers of before. Later it did so for a task whose
/// handle had notified, or had given a number, in another task since.
///
/// Fails without a look at whether servers have lost their data, and with one memory of that for all
/// tasks that use a handle.
async fn goes_on() -> Result<()> {
    let mut server = Config::new().standalone().await?;
    let (client, writer) = (
        Client::connect(&server.connect_string()).await?,
        Client::connect(&server.connect_string()).await?,
    );
    let node = ZnodePath::new("/app/node")?;
    writer.ensure(&node, CreateMode::Persistent).await?;
    for _ in 0..BEFORE {
        writer.set_data(&node, "before", None).await?;
    }
    let tells = Notify::new(&writer, "/news")?;
    let (value, publication): (Shared<u32>, Publication<u32>) =
        (Shared::new(&writer, "/value")?, Publication::new(&writer, "/publication")?);
    tells.notify().await?;
    value.set(&1).await?;
    publication.publish(&1).await?;

    let news = Notify::new(&client, "/news")?;
    let busy = news.clone();
    let (known, busy_with) = (news.last().await?, busy.last().await?);
    let waiting = tokio::spawn(async move { past(&news, known).await });
    let mut values = Shared::<u32>::new(&client, "/value")?.changes();
    let mut editions = Publication::<u32>::new(&client, "/publication")?.follow();
    let cache = TreeCache::open(&client, "/app").await?;
    let mut trees = cache.changes();
    ensure!(matches!(values.next().await?, ValueChange::Set(now) if now.value == 1));
    ensure!(matches!(editions.next().await?, ValueChange::Set(now) if now.value == 1));

    server.wipe().await?;
    let first = loop {
        match tells.notify().await {
            Ok(number) => break number,
            Err(error) => ensure!(error.is_retryable(), "{error}"),
        }
    };
    ensure!(first < known, "{first} is not lower than {known}");
    writer.ensure(&node, CreateMode::Persistent).await?;
    writer.set_data(&node, "after", None).await?;
    value.set(&2).await?;
    publication.publish(&2).await?;

    let next_value = async {
        loop {
            if let ValueChange::Set(now) = values.next().await? {
                return anyhow::Ok(now.value);
            }
        }
    };
    ensure!(timeout(PATIENCE, next_value).await.context("the value")?? == 2);
    let next_edition = async {
        loop {
            if let ValueChange::Set(now) = editions.next().await? {
                return anyhow::Ok(now.value);
            }
        }
    };
    ensure!(timeout(PATIENCE, next_edition).await.context("the edition")?? == 2);
    let next_tree = async {
        while cache.snapshot().get("/app/node").map(|node| node.data()) != Some(&b"after"[..]) {
            trees.next().await?;
        }
        anyhow::Ok(())
    };
    timeout(PATIENCE, next_tree).await.context("the tree")??;

    timeout(PATIENCE, waiting).await.context("the notification")???;
    // Nobody waited when it came, and another task has used the handle since.
    busy.notify().await?;
    let seen = timeout(PATIENCE, past(&busy, busy_with)).await.context("it stays busy")??;
    let again = tells.notify().await?;
    ensure!(timeout(PATIENCE, past(&busy, seen)).await?? == again);
    client.close().await;
    writer.close().await;
    Ok(())
}
