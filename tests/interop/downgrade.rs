//! A writer that becomes a reader keeps its place, whichever library looks: ours seen by Curator
//! and kazoo, and Curator's seen by ours. Step by step; `main.rs` has the same in a crowd.

use anyhow::{Context, Result, ensure};
use lockkeeper::{RwLock, ZnodePath};
use lockkeeper_testkit::zookeeper::shared;

use crate::PATH;
use crate::theirs::Language::{self, Java, Python};
use crate::theirs::{Place, Steps, until};

fn start(language: Language, connect: &str) -> Result<Steps> {
    Steps::start(language, "Steps", &[connect, PATH, "30000", "."])
}

/// Returns when the node is watched: the contender behind it has found it, and waits.
async fn watched(connect: &str, node: &ZnodePath) -> Result<()> {
    let chroot = connect.split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
    let (line, server) = (format!("{chroot}{node}"), shared().await?);
    let watched = async || Ok(server.four_letter("wchp").await?.lines().any(|path| path == line));
    until(watched).await.with_context(|| format!("{node} is not watched"))
}

/// Fails with a downgrade that takes a new number: the other writer does not wait for us.
async fn ours_keeps_its_place(language: Language) -> Result<()> {
    let Some(Place { connect, client }) = Place::with("downgrades", &[language]).await? else {
        return Ok(());
    };
    let mut theirs = start(language, &connect)?;
    let lock = RwLock::new(&client, PATH)?;
    let writing = lock.write().await?;
    theirs.begin("write")?;
    watched(&connect, writing.node()).await?;
    let reading = writing.downgrade().await?;
    watched(&connect, reading.node()).await?;
    ensure!(theirs.waits(), "it writes while we read");
    reading.verify().await?;
    reading.release().await?;
    theirs.done().await?;
    ensure!(lock.try_read().await?.is_none(), "we read while it writes");
    theirs.take("release-write").await?;

    let reading = lock.write().await?.downgrade().await?;
    theirs.take("read").await?;
    ensure!(lock.try_write().await?.is_none(), "two read");
    reading.release().await?;
    ensure!(lock.try_write().await?.is_none(), "the other one still reads");
    theirs.take("release-read").await?;
    lock.write().await?.release().await?;
    theirs.end().await
}

tests! {
    fn l15_our_downgrade_keeps_its_place_for_curator() = ours_keeps_its_place(Java);
    fn l15_our_downgrade_keeps_its_place_for_kazoo() = ours_keeps_its_place(Python);
}

/// Curator's downgrade: it acquires the read lock while it still holds the write lock, and then releases that.
/// Contenders that enter during this or later find a reader. Earlier contenders are only safe since Curator 5.5
/// (CURATOR-621); `CuratorLocks.java` does what that version does.
#[tokio::test]
async fn a_downgrade_of_curator_keeps_our_writers_out() -> Result<()> {
    let Some(Place { connect, client }) = Place::with("downgrades", &[Java]).await? else {
        return Ok(());
    };
    let mut theirs = start(Java, &connect)?;
    let lock = RwLock::new(&client, PATH)?;
    theirs.take("write").await?;
    ensure!(lock.try_read().await?.is_none());
    theirs.take("read").await?;
    ensure!(lock.try_read().await?.is_none(), "it writes too");
    theirs.take("release-write").await?;
    ensure!(lock.try_write().await?.is_none(), "it reads");
    let reading = lock.try_read().await?;
    reading.context("readers go together")?.release().await?;
    let behind = lock.clone();
    let writing = tokio::spawn(async move { behind.write().await });
    let (names, _) = client.children(&ZnodePath::new(PATH)?).await?;
    let reader = names.iter().find(|name| name.contains("__READ__")).map(String::as_str);
    let reader = ZnodePath::new(PATH)?.child(reader.unwrap_or("no reader"))?;
    watched(&connect, &reader).await?;
    ensure!(!writing.is_finished(), "we write while it reads");
    theirs.take("release-read").await?;
    writing.await??.release().await?;
    theirs.end().await
}
