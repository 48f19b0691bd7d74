//! What watches tell, over reconnects and on servers of all ages.

use anyhow::{Result, bail};
use lockkeeper::{
    AddWatchMode, Client, CreateMode, ErrorCode, EventKind, WatchEvent, WatchItem, WatchLost,
    WatchStream, ZnodePath,
};
use lockkeeper_testkit::backend::Participant;
use lockkeeper_wire::OpCode;

use crate::{Observed, contract};

contract!(watches);

const ROOT: &str = "/watched";

fn root() -> ZnodePath {
    ZnodePath::new(ROOT).expect("a path")
}

fn below(name: &str) -> ZnodePath {
    ZnodePath::new(&format!("{ROOT}/{name}")).expect("a path")
}

async fn make(client: &Client, path: &ZnodePath) -> Result<()> {
    client.create(path, "", CreateMode::Persistent).await?;
    Ok(())
}

/// The next item, which must be an event.
async fn event(stream: &mut WatchStream) -> Result<WatchEvent> {
    match stream.next().await? {
        WatchItem::Event(event) => Ok(event),
        other => bail!("{other:?}"),
    }
}

/// W1: what happens while a client is cut off is not told, and the stream says where.
async fn a_stream_is_told_of_a_reconnect_before_any_event_after_it(
    (participant, other): Observed,
) -> Result<()> {
    make(&other, &root()).await?;
    let mode = AddWatchMode::PersistentRecursive;
    let mut stream = participant.client.watch(&root(), mode).await?;
    make(&other, &below("before")).await?;
    assert_eq!(event(&mut stream).await?.path, below("before").as_str());

    participant.proxy.refuse();
    make(&other, &below("missed")).await?;
    participant.proxy.restore();
    assert_eq!(stream.next().await?, WatchItem::Rearmed);
    participant.client.sync(&root()).await?;
    make(&other, &below("after")).await?;
    assert_eq!(event(&mut stream).await?.path, below("after").as_str());
    Ok(())
}

/// Symptom: the second call panicked.
async fn a_watcher_tells_one_event_and_no_more(client: Client) -> Result<()> {
    make(&client, &root()).await?;
    let (_, mut watcher) = client.data_watched(&root()).await?;
    client.set_data(&root(), "new", None).await?;
    assert_eq!(watcher.changed().await?.kind, EventKind::NodeDataChanged);
    assert_eq!(watcher.changed().await, Err(WatchLost::SessionEnded));
    Ok(())
}

/// W2: so a client that has a reply has already received all earlier events.
async fn an_answer_comes_after_the_events_of_what_it_shows(participant: Participant) -> Result<()> {
    let client = &participant.client;
    make(client, &root()).await?;
    let mut stream = client.watch(&root(), AddWatchMode::PersistentRecursive).await?;
    assert_eq!(stream.try_next()?, None);
    for n in 0..20 {
        client.set_data(&root(), "new", None).await?;
        let Some(WatchItem::Event(event)) = stream.try_next()? else { bail!("no event of {n}") };
        assert_eq!(event.kind, EventKind::NodeDataChanged);
        assert_eq!(stream.try_next()?, None);
    }
    Ok(())
}

/// W6, ZOOKEEPER-4466: the one-shot watch took the place of the persistent one.
async fn one_shot_watches_and_a_persistent_one_share_a_path(
    (participant, other): Observed,
) -> Result<()> {
    let client = &participant.client;
    make(&other, &root()).await?;
    let mut stream = client.watch(&root(), AddWatchMode::Persistent).await?;
    for n in 0..3 {
        let (_, mut data) = client.data_watched(&root()).await?;
        let (_, mut children) = client.children_watched(&root()).await?;
        other.set_data(&root(), "new", None).await?;
        assert_eq!(data.changed().await?.kind, EventKind::NodeDataChanged);
        assert_eq!(event(&mut stream).await?.kind, EventKind::NodeDataChanged);
        make(&other, &below(&format!("{n}"))).await?;
        assert_eq!(children.changed().await?.kind, EventKind::NodeChildrenChanged);
        assert_eq!(event(&mut stream).await?.kind, EventKind::NodeChildrenChanged);
    }
    assert_eq!(participant.proxy.watches(), 0, "the persistent watch serves all of them");

    // Over a reconnect, and ZOOKEEPER-4471: to remove one took half of the persistent one.
    let (_, dropped) = client.data_watched(&root()).await?;
    participant.proxy.cut();
    assert_eq!(stream.next().await?, WatchItem::Rearmed);
    drop(dropped);
    client.sync(&root()).await?;
    for _ in 0..2 {
        other.set_data(&root(), "new", None).await?;
        assert_eq!(event(&mut stream).await?.kind, EventKind::NodeDataChanged);
    }
    Ok(())
}

async fn a_recursive_watch_serves_those_of_lists_of_children(
    (participant, other): Observed,
) -> Result<()> {
    let client = &participant.client;
    make(&other, &root()).await?;
    let mut stream = client.watch(&root(), AddWatchMode::PersistentRecursive).await?;
    let (_, mut children) = client.children_watched(&root()).await?;
    make(&other, &below("a")).await?;
    assert_eq!(children.changed().await?.kind, EventKind::NodeChildrenChanged);
    assert_eq!(event(&mut stream).await?.kind, EventKind::NodeCreated);

    // The stream is dropped first, and the others that share its watch get their events nevertheless.
    let (_, mut children) = client.children_watched(&root()).await?;
    drop(stream);
    other.delete(&below("a"), None).await?;
    assert_eq!(children.changed().await?.kind, EventKind::NodeChildrenChanged);
    assert_eq!(participant.proxy.watches(), 0);
    Ok(())
}

/// W5: servers before 3.9 do not know how to remove a persistent watch, and kept it.
async fn nothing_is_left_of_a_persistent_watch((participant, other): Observed) -> Result<()> {
    let client = &participant.client;
    make(&other, &root()).await?;
    for mode in [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive] {
        let stream = client.watch(&root(), mode).await?;
        drop(stream);
        // By the first answer the refusal is there, and by the second one the other removal.
        client.exists(&root()).await?;
        client.exists(&root()).await?;
        other.set_data(&root(), "new", None).await?;
        client.sync(&root()).await?;
        client.exists(&root()).await?;
        assert_eq!(participant.proxy.events(), []);
    }
    Ok(())
}

/// W3: servers from 3.9 on name it.
async fn an_event_names_its_transaction_if_it_names_one(client: Client) -> Result<()> {
    make(&client, &root()).await?;
    let mut stream = client.watch(&root(), AddWatchMode::Persistent).await?;
    let stat = client.set_data(&root(), "new", None).await?;
    let zxid = event(&mut stream).await?.zxid;
    assert!(zxid.is_none_or(|zxid| zxid == stat.mzxid), "{zxid:?} is not {}", stat.mzxid);
    Ok(())
}

/// W4: memory grows with the nodes, and not with what happens to them.
async fn a_burst_on_one_node_is_one_path(client: Client) -> Result<()> {
    make(&client, &root()).await?;
    let mode = AddWatchMode::PersistentRecursive;
    let (mut paths, reply) = client.watch_paths(&root(), mode);
    reply.await?;
    assert!(paths.is_clean());
    for _ in 0..50 {
        client.set_data(&root(), "new", None).await?;
    }
    let mut answer = client.data(&root());
    let arrival = answer.arrived().await.arrival;
    paths.changed().await;
    let taken = paths.take()?;
    let [only] = &taken.paths[..] else { bail!("{taken:?}") };
    assert_eq!((only.path.as_str(), taken.rearmed), (ROOT, None));
    assert!(only.first < only.last && only.last < arrival, "{only:?} {arrival:?}");
    assert!(paths.is_clean());
    Ok(())
}

/// W8: 3.5 does not know them.
async fn a_server_without_persistent_watches_is_named(participant: Participant) -> Result<()> {
    participant.proxy.refuse_next(OpCode::AddWatch, ErrorCode::Unimplemented, 1);
    let refused = participant.client.watch(&root(), AddWatchMode::Persistent).await;
    let Err(error) = refused else { bail!("granted") };
    assert!(error.to_string().ends_with("use servers 3.6 or newer"), "{error}");
    Ok(())
}
