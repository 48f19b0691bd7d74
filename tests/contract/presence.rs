//! What a presence promises, on every server.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{
    Acl, Change, Client, Contact, CreateMode, ErrorCode, Permissions, Presence, PresenceError,
    PresenceState, Stat, TreeCache, TtlPresence, WhenTaken, ZnodePath, Zxid,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::rw_lock::replies;
use crate::{Clients, IDLE, Observed, contract, cut_off_at_reads, reconnect, wake_ups};

contract!(presence);

const NODE: &str = "/workers/7";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(60);

fn node() -> ZnodePath {
    ZnodePath::new(NODE).expect("a path")
}

/// The next state that is not one of being made anew.
async fn present(presence: &Presence, after: Zxid) -> Result<Zxid> {
    let mut changes = presence.changes();
    let is_later =
        |state: &PresenceState| matches!(state, PresenceState::Present { czxid } if *czxid > after);
    match changes.wait_for(is_later).await?.clone() {
        PresenceState::Present { czxid } => Ok(czxid),
        other => bail!("{other:?}"),
    }
}

async fn stat(client: &Client) -> Result<Option<Stat>> {
    client.sync(&node()).await?;
    Ok(client.exists(&node()).await?)
}

async fn a_node_is_there_until_its_presence_ends((client, other): Clients) -> Result<()> {
    let presence = Presence::builder(&client, NODE).data("here").start().await?;
    let PresenceState::Present { czxid } = presence.state() else { bail!("absent") };
    let (data, stat) = other.data(&node()).await?;
    assert_eq!((&data[..], stat.czxid), (&b"here"[..], czxid));
    assert_eq!(stat.ephemeral_owner, client.session_id());
    presence.end().await?;
    assert_eq!(self::stat(&other).await?, None);
    Ok(())
}

async fn a_dropped_presence_takes_its_node_with_it((client, other): Clients) -> Result<()> {
    let presence = Presence::builder(&client, NODE).start().await?;
    let (found, mut gone) = other.exists_watched(&node()).await?;
    assert!(found.is_some());
    drop(presence);
    gone.changed().await?;
    assert_eq!(stat(&other).await?, None);
    Ok(())
}

/// Whoever gave up waiting left the node there until the end of the session.
async fn an_end_that_is_not_waited_for_deletes_the_node((client, other): Clients) -> Result<()> {
    let presence = Presence::builder(&client, NODE).start().await?;
    let (_, mut gone) = other.exists_watched(&node()).await?;
    assert!(poll_immediately(presence.end()).await.is_none(), "it ended at once");
    tokio::time::timeout(LONG, gone.changed()).await.context("it stays")??;
    assert_eq!(stat(&other).await?, None);
    Ok(())
}

async fn it_comes_back_with_the_next_session((participant, other): Observed) -> Result<()> {
    let presence = Presence::builder(&participant.client, NODE).data("here").start().await?;
    let first = present(&presence, Zxid(0)).await?;
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    assert_eq!(stat(&other).await?, None);
    participant.proxy.restore();
    let second = present(&presence, first).await?;
    let stat = stat(&other).await?.map(|stat| (stat.czxid, stat.ephemeral_owner));
    assert_eq!(stat, Some((second, participant.client.session_id())));
    presence.end().await?;
    Ok(())
}

async fn it_comes_back_when_somebody_deletes_it((client, other): Clients) -> Result<()> {
    let presence = Presence::builder(&client, NODE).start().await?;
    let first = present(&presence, Zxid(0)).await?;
    other.set_data(&node(), "written by another", None).await?;
    other.delete(&node(), None).await?;
    let second = present(&presence, first).await?;
    assert_eq!(stat(&other).await?.map(|stat| stat.czxid), Some(second));
    Ok(())
}

async fn a_lost_reply_leaves_one_node_that_is_known((participant, other): Observed) -> Result<()> {
    other.ensure(&ZnodePath::new("/workers")?, CreateMode::Persistent).await?;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        participant.proxy.lose_next(OpCode::Multi, loss);
        let presence = Presence::builder(&participant.client, NODE).start().await?;
        let czxid = present(&presence, Zxid(0)).await?;
        assert_eq!(stat(&other).await?.map(|stat| stat.czxid), Some(czxid));
        presence.end().await?;
        assert_eq!(stat(&other).await?, None);
    }
    Ok(())
}

async fn anothers_node_is_waited_for_and_not_touched((client, other): Clients) -> Result<()> {
    let theirs = Presence::builder(&other, NODE).data("theirs").start().await?;
    let before = other.data(&node()).await?;
    let ours = Presence::builder(&client, NODE).data("ours").start().await?;
    assert_eq!(ours.state(), PresenceState::Taken { by: other.session_id() });
    assert_eq!(client.data(&node()).await?, before);
    ours.end().await?;
    assert_eq!(client.data(&node()).await?, before, "nor by its end");

    let ours = Presence::builder(&client, NODE).data("ours").start().await?;
    theirs.end().await?;
    present(&ours, Zxid(0)).await?;
    assert_eq!(&client.data(&node()).await?.0[..], b"ours");
    Ok(())
}

/// Whoever started there waited for ever, and asked every twenty milliseconds.
async fn a_node_that_may_not_be_read_is_an_error((client, other): Clients) -> Result<()> {
    other.ensure(&ZnodePath::new("/workers")?, CreateMode::Persistent).await?;
    let closed = Acl::world(Permissions::DELETE);
    other.create_with_acl(&node(), "", CreateMode::Ephemeral, closed).await?;
    for when_taken in [WhenTaken::Wait, WhenTaken::Fail] {
        let options = Presence::builder(&client, NODE).when_taken(when_taken);
        let started = tokio::time::timeout(LONG, options.start()).await.context("no answer")?;
        let error = started.err().context("it started")?;
        assert!(error.to_string().contains(NODE), "{error}");
    }
    Ok(())
}

async fn anothers_node_is_an_error_if_wanted((client, other): Clients) -> Result<()> {
    let _theirs = Presence::builder(&other, NODE).start().await?;
    let ours = Presence::builder(&client, NODE).when_taken(WhenTaken::Fail).start().await;
    let Err(PresenceError::Taken { by, .. }) = ours else { bail!("{ours:?}") };
    assert_eq!(by, other.session_id());
    Ok(())
}

/// KAFKA-7165 and its kind: after a restart the node of the old session is still there.
async fn an_earlier_life_is_replaced_without_a_gap((earlier, later): Clients) -> Result<()> {
    let first = Presence::builder(&earlier, NODE).data("host-7 1").start().await?;
    let cache = TreeCache::open(&later, "/workers").await?;
    let mut changes = cache.changes();
    let again = Presence::builder(&later, NODE).data("host-7 2");
    let second = again.replaces(|data| data.starts_with(b"host-7 ")).start().await?;
    let czxid = present(&second, Zxid(0)).await?;

    let update = changes.next().await?;
    let [Change::Replaced { node, .. }] = &update.changes[..] else { bail!("{update:?}") };
    assert_eq!((node.data(), node.stat().czxid), (&b"host-7 2"[..], czxid));
    // The earlier one does not take it back.
    let mut states = first.changes();
    let taken = PresenceState::Taken { by: later.session_id() };
    states.wait_for(|state| *state == taken).await?;
    assert_eq!(later.data(&self::node()).await?.1.czxid, czxid);
    Ok(())
}

async fn a_node_that_no_presence_made_is_not_replaced((client, other): Clients) -> Result<()> {
    other.ensure(&ZnodePath::new("/workers")?, CreateMode::Persistent).await?;
    for mode in [CreateMode::Persistent, CreateMode::Ephemeral] {
        let made = other.create(&node(), "host-7", mode).await?;
        let ours = Presence::builder(&client, NODE).replaces(|data| data == b"host-7");
        let ours = ours.start().await?;
        assert!(matches!(ours.state(), PresenceState::Taken { .. }), "{:?}", ours.state());
        assert_eq!(other.data(&node()).await?.1.czxid, made.stat.czxid);
        ours.end().await?;
        other.delete(&node(), None).await?;
    }
    Ok(())
}

/// Its node belongs to the session of both, so after a lost reply each would take it for its own.
async fn a_client_has_one_presence_at_a_node((client, other): Clients) -> Result<()> {
    let presence = Presence::builder(&client, NODE).data("first").start().await?;
    let second = Presence::builder(&client.clone(), NODE).data("second").start().await;
    let Err(PresenceError::InUse { path }) = second else { bail!("{second:?}") };
    assert_eq!(&path, presence.path());
    assert_eq!(&other.data(&node()).await?.0[..], b"first");

    presence.end().await?;
    let presence = Presence::builder(&client, NODE).data("third").start().await?;
    let first = present(&presence, Zxid(0)).await?;
    // One that is dropped makes room at once; its node goes a moment later.
    drop(presence);
    let presence = Presence::builder(&client, NODE).data("fourth").start().await?;
    present(&presence, first).await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"fourth");
    Ok(())
}

/// The node of the one before is there for a moment more, and belongs to the session of both.
///
/// Fails with the right to the node given back at once: taken by the own session.
async fn one_that_was_given_up_makes_room_for_the_next(participant: Participant) -> Result<()> {
    let client = &participant.client;
    let options = || Presence::builder(client, NODE).when_taken(WhenTaken::Fail);
    for _ in 0..5 {
        drop(options().start().await?);
        let presence = options().start().await?;
        // A presence whose end is not awaited.
        let polled = poll_immediately(presence.end()).await;
        assert!(polled.is_none(), "it ended at once");
    }

    // A presence whose start is not awaited.
    drop(options().start().await?);
    participant.proxy.clear();
    participant.proxy.hold_replies();
    let starting = tokio::spawn(options().start());
    participant.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::Sync))).await;
    starting.abort();
    assert!(starting.await.is_err(), "it waits for the one before");
    participant.proxy.restore();

    options().start().await?.end().await?;
    participant.proxy.clear();
    participant.proxy.hold_replies();
    let starting = tokio::spawn(options().start());
    participant.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::Multi))).await;
    starting.abort();
    assert!(starting.await.is_err(), "its create is not answered");
    participant.proxy.restore();
    options().start().await?.end().await?;
    Ok(())
}

/// Fails without a look at the path: a presence at `/` was taken for good, and there were nodes
/// among the servers' own.
async fn the_servers_own_has_no_presence(backend: Backend) -> Result<()> {
    let client = crate::without_chroot(&backend).await?;
    for reserved in ["/", "/zookeeper", "/zookeeper/mine"] {
        let refused = PresenceError::Reserved(ZnodePath::new(reserved)?);
        let presence = Presence::builder(&client, reserved).start().await;
        assert_eq!(presence.err(), Some(refused.clone()));
        let presence = Presence::builder(&client, reserved).protected().start().await;
        assert_eq!(presence.err(), Some(refused.clone()));
        let presence = TtlPresence::builder(&client, reserved, LONG).start().await;
        assert_eq!(presence.err(), Some(refused));
    }
    let client = backend.observer().await?;
    Presence::builder(&client, "/zookeepers").start().await?.end().await?;
    Ok(())
}

/// What comes of a future that is polled once, and then dropped.
async fn poll_immediately<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    tokio::select! {
        biased;
        output = &mut future => Some(output),
        () = std::future::ready(()) => None,
    }
}

async fn a_lost_reply_does_not_make_an_own_node_a_presence(participant: Participant) -> Result<()> {
    let client = &participant.client;
    client.ensure(&ZnodePath::new("/workers")?, CreateMode::Persistent).await?;
    let made = client.create(&node(), "no presence", CreateMode::Ephemeral).await?;
    participant.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let presence = Presence::builder(client, NODE).data("presence").start().await?;
    assert_eq!(presence.state(), PresenceState::Taken { by: client.session_id() });
    presence.end().await?;
    let (data, stat) = client.data(&node()).await?;
    assert_eq!((&data[..], stat.czxid), (&b"no presence"[..], made.stat.czxid));
    Ok(())
}

async fn those_who_take_each_other_for_an_earlier_life_do_not_fight(
    (one, two): Clients,
) -> Result<()> {
    let start = |client: &Client, data: &'static str| {
        Presence::builder(client, NODE).data(data).replaces(|data| data == b"host-7").start()
    };
    let first = start(&one, "host-7").await?;
    let second = start(&two, "host-7").await?;
    let czxid = present(&second, Zxid(0)).await?;
    let taken = PresenceState::Taken { by: two.session_id() };
    first.changes().wait_for(|state| *state == taken).await?;
    assert_eq!(second.state(), PresenceState::Present { czxid });
    // When the later one ends, the earlier one is there again.
    second.end().await?;
    present(&first, czxid).await?;
    Ok(())
}

async fn data_may_be_as_long_as_that_of_any_node((client, other): Clients) -> Result<()> {
    let long = vec![b'x'; 1_000_000];
    let presence = Presence::builder(&client, NODE).data(long.clone()).start().await?;
    present(&presence, Zxid(0)).await?;
    assert_eq!(other.data(&node()).await?.0.len(), long.len());

    // Data that no node can hold is refused, and the presence continues.
    let refused = presence.update(vec![b'x'; 2_000_000]).await;
    let told = refused.expect_err("it is too long").to_string();
    assert!(told.contains("2000") && told.contains("bytes"), "{told}");
    presence.update("short").await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"short");
    presence.end().await?;
    Ok(())
}

/// A client that may send more at once than its server takes: each try cost all its locks their connection,
/// and there was no end of them.
async fn data_at_which_servers_close_the_connection_is_given_up(backend: Backend) -> Result<()> {
    let builder = Client::builder().session_timeout(LONG).max_frame(8 << 20);
    let participant = backend.participant_with(builder).await?;
    let (client, long) = (&participant.client, vec![b'x'; 2_000_000]);
    client.ensure(&ZnodePath::new("/workers")?, CreateMode::Persistent).await?;
    let session = client.session_id();
    participant.proxy.clear();
    let started = Presence::builder(client, NODE).data(long.clone()).start().await.map(drop);
    let too_long = PresenceError::TooLong { path: node(), bytes: long.len(), tries: 3 };
    assert_eq!(started, Err(too_long.clone()));

    // One that is there stays as it was.
    let presence = Presence::builder(client, NODE).data("short").start().await?;
    let czxid = present(&presence, Zxid(0)).await?;
    assert_eq!(presence.update(long.clone()).await, Err(too_long.clone()));
    assert_eq!(presence.state(), PresenceState::Present { czxid });
    assert_eq!(&client.data(&node()).await?.0[..], b"short");
    presence.end().await?;
    assert_eq!((stat(client).await?, client.session_id()), (None, session));

    // In the background it ends nothing, and other data helps.
    let other = backend.observer().await?;
    let first = Presence::builder(&other, NODE).start().await?;
    let presence = Presence::builder(client, NODE).start().await?;
    presence.update(long.clone()).await?;
    first.end().await?;
    let stuck = PresenceState::Stuck(too_long.clone());
    presence.changes().wait_for(|state| *state == stuck).await?;
    presence.update("short").await?;
    present(&presence, Zxid(0)).await?;
    assert_eq!(&client.data(&node()).await?.0[..], b"short");
    presence.end().await?;

    let ttl = Duration::from_secs(60);
    let started = TtlPresence::builder(client, NODE, ttl).data(long).start().await.map(drop);
    assert_eq!(started, Err(too_long));
    Ok(())
}

/// It was looked at every 20 ms, for ever.
async fn anothers_node_that_is_too_long_to_read_is_an_error(backend: Backend) -> Result<()> {
    let other = backend.observer().await?;
    let theirs = Presence::builder(&other, NODE).data(vec![b'x'; 200_000]).start().await?;
    let client = Client::builder().max_frame(100_000).connect(&backend.connect_string()).await?;
    let started = tokio::time::timeout(LONG, Presence::builder(&client, NODE).start()).await?;
    let Err(PresenceError::Request(error)) = started else { bail!("{started:?}") };
    assert!(error.answer_too_long().is_some(), "{error}");
    theirs.end().await?;
    Ok(())
}

async fn who_has_the_node_instead_is_told(backend: Backend) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(1));
    let (one, two) = (backend.participant_with(builder).await?, backend.observer().await?);
    let start = |client: &Client| {
        Presence::builder(client, NODE).data("host-7").replaces(|data| data == b"host-7").start()
    };
    let first = start(&one.client).await?;
    let soon = one.client.session_timeout().mul_f64(2.0);
    assert!(tokio::time::timeout(soon, first.taken()).await.is_err(), "it has the node");
    let second = start(&two).await?;
    let told = tokio::time::timeout(LONG, first.taken()).await?;
    assert_eq!(told, PresenceError::Taken { path: NODE.into(), by: two.session_id() });
    assert!(told.to_string().contains("choose another name"), "{told}");
    second.end().await?;
    Ok(())
}

async fn an_update_changes_the_node_and_every_later_one(
    (participant, other): Observed,
) -> Result<()> {
    let presence = Presence::builder(&participant.client, NODE).data("1").start().await?;
    let first = present(&presence, Zxid(0)).await?;
    presence.update("2").await?;
    let (data, stat) = other.data(&node()).await?;
    assert_eq!((&data[..], stat.czxid), (&b"2"[..], first), "the same node");

    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    participant.proxy.restore();
    let second = present(&presence, first).await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"2");

    // A write of another client is not a failure.
    other.set_data(&node(), "by another", None).await?;
    presence.update("3").await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"3");
    other.delete(&node(), None).await?;
    present(&presence, second).await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"3");
    presence.end().await?;
    assert_eq!(self::stat(&other).await?, None);
    Ok(())
}

async fn an_update_whose_reply_is_lost_is_made_once((participant, other): Observed) -> Result<()> {
    let presence = Presence::builder(&participant.client, NODE).data("1").start().await?;
    let czxid = present(&presence, Zxid(0)).await?;
    for (data, loss) in [("2", Loss::BeforeRequest), ("3", Loss::BeforeReply)] {
        participant.proxy.lose_next(OpCode::Multi, loss);
        presence.update(data).await?;
        let (found, stat) = other.data(&node()).await?;
        assert_eq!((&found[..], stat.czxid), (data.as_bytes(), czxid));
        assert_eq!(stat.version.to_string(), data, "written once");
    }
    Ok(())
}

/// The node was made, and the look at it failed: an update that came then was confirmed and not made.
async fn an_update_is_not_confirmed_while_the_node_has_the_old_data(
    (participant, other): Observed,
) -> Result<()> {
    let presence = Presence::builder(&participant.client, NODE).data("old").start().await?;
    participant.proxy.clear();
    participant.proxy.refuse_next(OpCode::GetData, ErrorCode::ThrottledOp, 3);
    other.delete(&node(), None).await?;
    participant.proxy.passes(|passed| replies(passed, OpCode::Multi) == 1).await;
    presence.update("new").await?;
    present(&presence, Zxid(0)).await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"new");
    presence.end().await?;
    Ok(())
}

async fn an_update_does_not_touch_anothers_node((client, other): Clients) -> Result<()> {
    let theirs = Presence::builder(&other, NODE).data("theirs").start().await?;
    let ours = Presence::builder(&client, NODE).data("ours").start().await?;
    let before = other.data(&node()).await?;
    ours.update("ours, later").await?;
    assert_eq!(other.data(&node()).await?, before);
    theirs.end().await?;
    present(&ours, Zxid(0)).await?;
    assert_eq!(&client.data(&node()).await?.0[..], b"ours, later");
    Ok(())
}

async fn an_update_costs_one_write(participant: Participant) -> Result<()> {
    let presence = Presence::builder(&participant.client, NODE).data("1").start().await?;
    participant.proxy.clear();
    presence.update("2").await?;
    // Its own watch fires too, and is set again by a read.
    let read = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::GetData));
    participant.proxy.passes(read).await;
    assert_eq!(participant.proxy.requests(), [OpCode::Multi, OpCode::GetData]);
    presence.end().await?;
    Ok(())
}

/// Each request failed at once, and the next one came 10 to 20 ms later, for as long as the outage lasted.
///
/// Fails without `retry::outlast`, where the node is read and where it is written.
async fn nothing_is_asked_while_no_server_can_be_reached(backend: Backend) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(2));
    let (participant, other) =
        (backend.participant_with(builder).await?, backend.observer().await?);
    let client = &participant.client;
    let read = Presence::builder(client, NODE).data("read").start().await?;
    let written = Presence::builder(client, "/workers/8").data("old").start().await?;
    let first = present(&written, Zxid(0)).await?;
    let write = async {
        other.set_data(&node(), "by another", None).await?;
        Ok(())
    };
    cut_off_at_reads(&participant, write).await?;
    let idle = wake_ups().await;
    assert!(idle < IDLE, "{idle} within a second");
    let mut updating = std::pin::pin!(written.update("new"));
    tokio::select! {
        updated = &mut updating => bail!("the node is there still: {updated:?}"),
        idle = wake_ups() => assert!(idle < IDLE, "{idle} within a second"),
    }

    reconnect(&participant);
    updating.await?;
    // The session was over by then.
    present(&written, first).await?;
    assert_eq!(&client.data(written.path()).await?.0[..], b"new");
    read.end().await?;
    Ok(())
}

/// The node does not exist, and the next one is created with the new data.
///
/// Fails without the updates that `KeptNode::reach` takes.
async fn an_update_does_not_wait_for_the_end_of_an_outage(backend: Backend) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(2));
    let (participant, other) =
        (backend.participant_with(builder).await?, backend.observer().await?);
    let presence = Presence::builder(&participant.client, NODE).data("old").start().await?;
    let first = present(&presence, Zxid(0)).await?;
    participant.proxy.clear();
    let parent = node().parent().context("a parent")?;
    other.transaction().delete(&node(), None).delete(&parent, None).commit().await?;
    participant.proxy.passes(|passed| replies(passed, OpCode::CreateContainer) == 1).await;
    participant.proxy.refuse();
    let mut status = participant.client.status();
    status.wait_for(|status| status.contact == Contact::Unreachable).await?;

    tokio::time::timeout(LONG, presence.update("new")).await.context("it waits")??;
    participant.proxy.restore();
    present(&presence, first).await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"new");
    presence.end().await?;
    Ok(())
}

async fn a_protected_name_is_kept_over_sessions((participant, other): Observed) -> Result<()> {
    let theirs = Presence::builder(&other, NODE).data("theirs").start().await?;
    let ours = Presence::builder(&participant.client, NODE).protected().data("ours");
    participant.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let ours = ours.start().await?;
    let name = ours.path().name().to_owned();
    assert!(name.starts_with("_c_") && name.ends_with("-7") && name.len() == 3 + 36 + 2, "{name}");
    let first = present(&ours, Zxid(0)).await?;

    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    participant.proxy.restore();
    present(&ours, first).await?;
    let (mut names, _) = other.children(&ZnodePath::new("/workers")?).await?;
    names.sort();
    assert_eq!(names, ["7", &name]);
    ours.end().await?;
    theirs.end().await?;
    Ok(())
}

async fn starting_costs_one_round_trip(participant: Participant) -> Result<()> {
    participant.client.ensure(&ZnodePath::new("/workers")?, CreateMode::Persistent).await?;
    participant.proxy.clear();
    participant.proxy.hold_replies();
    let starting = tokio::spawn(Presence::builder(&participant.client, NODE).start());
    let both = [Passed::Request(OpCode::Multi), Passed::Request(OpCode::GetData)];
    participant.proxy.passes(|passed| passed == both).await;
    participant.proxy.restore();
    let presence = starting.await??;
    assert_eq!(participant.proxy.requests(), [OpCode::Multi, OpCode::GetData]);
    presence.end().await?;
    Ok(())
}
