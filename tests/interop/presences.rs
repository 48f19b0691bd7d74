//! Lockkeeper's presences together with Curator's `PersistentNode` and `PersistentTtlNode` on one path.
//! Lockkeeper does not overwrite Curator's nodes. The tests document what Curator does to Lockkeeper's nodes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, Presence, PresenceState, SessionId, TtlPresence, ZnodePath, Zxid};
use lockkeeper_testkit::zookeeper;

use crate::theirs::Language::Java;
use crate::theirs::{LIMIT, Place, Theirs, are_ready};

const NODE: &str = "/present/7";

/// How long a node of Curator exists after it is no longer kept alive.
const TTL: Duration = Duration::from_secs(1);

fn node() -> ZnodePath {
    ZnodePath::new(NODE).expect("a path")
}

/// Starts a program that keeps a node there with Curator until the file `end` appears; returns when it
/// says that its node is there.
async fn theirs(connect: &str, kind: &str) -> Result<Theirs> {
    let ttl = TTL.as_millis().to_string();
    let mut theirs =
        Theirs::start(Java, "Presence", &[connect, NODE, kind, "theirs", &ttl, "end"])?;
    theirs.prints("PRESENT ").await?;
    Ok(theirs)
}

async fn place() -> Result<Option<Place>> {
    Place::with("presences", &[Java]).await
}

async fn present_after(presence: &Presence, czxid: Zxid) -> Result<Zxid> {
    let mut changes = presence.changes();
    let is_there = |state: &PresenceState| matches!(state, PresenceState::Present { czxid: now } if *now > czxid);
    match tokio::time::timeout(LIMIT, changes.wait_for(is_there)).await??.clone() {
        PresenceState::Present { czxid } => Ok(czxid),
        other => anyhow::bail!("{other:?}"),
    }
}

#[tokio::test]
async fn a_node_of_curators_is_waited_for() -> Result<()> {
    let Some(Place { connect, client }) = place().await? else { return Ok(()) };
    let mut theirs = theirs(&connect, "node").await?;
    let before = client.data(&node()).await?;
    ensure!(&before.0[..] == b"theirs");

    let ours = Presence::builder(&client, NODE).data("ours").start().await?;
    let taken = PresenceState::Taken { by: before.1.ephemeral_owner };
    ensure!(ours.state() == taken, "{:?}", ours.state());
    ours.update("ours, later").await?;
    ensure!(client.data(&node()).await? == before, "it is not written over");

    theirs.end().await?;
    present_after(&ours, Zxid(0)).await?;
    ensure!(&client.data(&node()).await?.0[..] == b"ours, later");
    ours.end().await?;
    Ok(())
}

/// Curator's `PersistentNode` finds its name taken: it writes its data over the other's node, says that
/// its own is there, and deletes the other's at its end (CURATOR-154). Ours is back at once.
#[tokio::test]
async fn curators_node_writes_over_ours_and_deletes_it() -> Result<()> {
    let Some(Place { connect, client }) = place().await? else { return Ok(()) };
    let ours = Presence::builder(&client, NODE).data("ours").start().await?;
    let first = present_after(&ours, Zxid(0)).await?;

    let mut theirs = theirs(&connect, "node").await?;
    let (data, stat) = client.data(&node()).await?;
    // What they tell, and what they did.
    ensure!(&data[..] == b"theirs" && stat.czxid == first, "{data:?} {stat:?}");
    ensure!(stat.ephemeral_owner == client.session_id(), "the node is ours all the same");
    ensure!(ours.state() == PresenceState::Present { czxid: first });

    theirs.end().await?;
    present_after(&ours, first).await.context("after they have deleted it")?;
    ensure!(&client.data(&node()).await?.0[..] == b"ours");
    ours.end().await?;
    Ok(())
}

#[tokio::test]
async fn protected_names_are_curators() -> Result<()> {
    let Some(Place { connect, client }) = place().await? else { return Ok(()) };
    let mut theirs = theirs(&connect, "protected").await?;
    let ours = Presence::builder(&client, NODE).protected().data("ours").start().await?;
    let (names, _) = client.children(&ZnodePath::new("/present")?).await?;
    ensure!(names.len() == 2 && names.contains(&ours.path().name().to_owned()), "{names:?}");
    for name in &names {
        // `_c_`, a UUID in its usual form, `-`, and the name.
        let id = name.strip_prefix("_c_").and_then(|rest| rest.strip_suffix("-7"));
        let id = id.with_context(|| format!("{names:?}"))?;
        let groups: Vec<_> = id.split('-').map(str::len).collect();
        ensure!(groups == [8, 4, 4, 4, 12], "{names:?}");
    }
    ours.end().await?;
    theirs.end().await?;
    let told = theirs.said("PRESENT /present/");
    ensure!(names.iter().filter(|name| told.contains(name)).count() == 1, "{told:?} of {names:?}");
    Ok(())
}

/// Both keep a container node alive by a child with a time to live, so ours waits for theirs, whose
/// `close` leaves the node for that time. Theirs does not look whose child it touches.
#[tokio::test]
async fn a_node_of_curators_with_a_time_to_live_is_waited_for() -> Result<()> {
    if !are_ready("presences", &[Java]) {
        return Ok(());
    }
    let often = "-Dznode.container.checkIntervalMs=100";
    let server = zookeeper::Config::new().extended_types().jvm_argument(often);
    let server = server.standalone().await?;
    let client = Client::connect(&server.connect_string()).await?;
    let mut theirs = theirs(&server.connect_string(), "ttl").await?;
    let touch = node().child("touch")?;
    // Its first touch comes half a time to live after the start.
    while client.exists(&touch).await?.is_none() {
        let (found, mut watcher) = client.exists_watched(&touch).await?;
        if found.is_none() {
            watcher.changed().await?;
        }
    }
    let before = client.data(&node()).await?;
    let ours = TtlPresence::builder(&client, NODE, TTL).data("ours").start().await?;
    ensure!(ours.state() == PresenceState::Taken { by: SessionId::NONE }, "{:?}", ours.state());
    ensure!(client.data(&node()).await? == before, "it is not written over");

    theirs.end().await?;
    let is_there = |state: &PresenceState| matches!(state, PresenceState::Present { .. });
    tokio::time::timeout(LIMIT, ours.changes().wait_for(is_there)).await??;
    let (names, _) = client.children(&node()).await?;
    ensure!(names == ["touch"], "{names:?}");
    ensure!(&client.data(&node()).await?.0[..] == b"ours");
    ours.end().await?;
    Ok(())
}
