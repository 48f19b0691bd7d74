//! Each source of changes can be a stream, for code that combines streams.

use std::future::poll_fn;
use std::pin::Pin;

use anyhow::{Context, Result, ensure};
use futures_core::Stream;
use lockkeeper::{
    AddWatchMode, CreateMode, Election, Failure, Group, Instance, Publication, Registration,
    ServiceDirectory, Shared, TreeCache, Updates, ZnodePath,
};
use lockkeeper_testkit::backend::Backend;

use crate::contract;

contract!(streams);

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// A stream of `source` reports what `change` does, and ends when its own client is closed.
async fn tells_and_ends<S: Updates<Update: std::fmt::Debug>>(
    source: S,
    change: impl Future<Output = Result<()>>,
    client: &lockkeeper::Client,
) -> Result<()> {
    let mut stream = source.into_stream();
    change.await?;
    next(&mut stream).await.context("it has ended")??;

    client.close().await;
    let mut last = None;
    while let Some(update) = next(&mut stream).await {
        last = Some(update);
    }
    let error = last.context("no reason")?.err().context("no error at the end")?;
    ensure!(!error.is_retryable(), "{error:?}");
    ensure!(next(&mut stream).await.is_none(), "an end is the end");
    Ok(())
}

async fn whatever_tells_changes_is_a_stream_that_ends_with_its_client(
    backend: Backend,
) -> Result<()> {
    let writer = backend.observer().await?;
    let path = ZnodePath::new("/streams")?;
    writer.create(&path, "", CreateMode::Persistent).await?;

    let client = backend.observer().await?;
    let events = client.watch(&path, AddWatchMode::PersistentRecursive).await?;
    let write = async || {
        writer.set_data(&path, "1", None).await?;
        Ok(())
    };
    tells_and_ends(events, write(), &client).await?;

    let client = backend.observer().await?;
    let cache = TreeCache::open(&client, "/streams").await?;
    tells_and_ends(cache.changes(), write(), &client).await?;

    let client = backend.observer().await?;
    let directory = ServiceDirectory::open(&client, "/services", "s").await?;
    let register = async {
        let instance = Instance::new("s", "one").address("::1").port(1);
        // It stays for as long as the test, and so does its client.
        std::mem::forget(Registration::start(&writer, "/services", instance).await?);
        Ok(())
    };
    tells_and_ends(directory.changes(), register, &client).await?;

    let client = backend.observer().await?;
    let members = Group::new(&client, "/streams-group")?.watch().await?;
    let join = async {
        std::mem::forget(Group::new(&writer, "/streams-group")?.join("one", "").await?);
        Ok(())
    };
    tells_and_ends(members.changes(), join, &client).await?;

    let client = backend.observer().await?;
    let leaders = Election::new(&client, "/streams-election")?.observe().await?;
    let lead = async {
        let election = Election::new(&writer, "/streams-election")?;
        std::mem::forget(election.campaign().await?);
        Ok(())
    };
    tells_and_ends(leaders, lead, &client).await?;

    let client = backend.observer().await?;
    let value = Shared::<u32>::new(&client, "/streams-value")?;
    let set = async { Ok(Shared::new(&writer, "/streams-value")?.set(&7).await.map(drop)?) };
    tells_and_ends(value.changes(), set, &client).await?;

    let client = backend.observer().await?;
    let publication = Publication::<u32>::new(&client, "/streams-publication")?;
    let publish = async {
        Ok(Publication::new(&writer, "/streams-publication")?.publish(&7).await.map(drop)?)
    };
    tells_and_ends(publication.follow(), publish, &client).await
}
