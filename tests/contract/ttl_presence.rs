//! What a presence with a time to live promises, on servers that keep such nodes, and on others.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{
    Acl, Client, CreateMode, ErrorCode, EventKind, Permissions, PresenceError, PresenceState,
    SessionId, TransactionError, TtlPresence, TtlPresenceBuilder, WhenTaken, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::{Clients, Observed, contract, cut_off_at_reads, reconnect};

contract!("presence with a time to live": servers_without_such_nodes_are_named);

/// Runs each of these functions on servers that look for overdue nodes often.
macro_rules! on_servers_that_reap {
    ($($test:ident),* $(,)?) => { $(
        mod $test {
            #[tokio::test]
            async fn embedded() -> anyhow::Result<()> {
                let backend = super::Backend::embedded_reaping().await?;
                crate::run(super::$test, backend).await
            }

            #[tokio::test]
            async fn zookeeper() -> anyhow::Result<()> {
                let suite = "contract: presence with a time to live on ZooKeeper";
                match super::Backend::zookeeper_reaping(suite).await? {
                    Some(backend) => crate::run(super::$test, backend).await,
                    None => Ok(()),
                }
            }
        }
    )* };
}

on_servers_that_reap!(
    it_outlives_its_program_and_then_goes,
    it_goes_on_over_sessions_and_lost_replies,
    an_outage_of_less_than_half_its_time_to_live_does_not_end_it,
    a_later_life_takes_the_node_over,
    anothers_node_with_a_time_to_live_is_waited_for,
    a_child_of_another_with_the_same_version_is_not_written,
    a_node_that_has_lost_its_child_is_taken_over,
    its_end_takes_the_node_with_it,
    its_end_takes_a_node_with_it_that_is_being_made,
    an_end_that_is_refused_says_so,
    keeping_it_alive_costs_one_read_and_one_write,
);

const NODE: &str = "/cameras/7";

/// Short where the test waits for its end, and long compared with the pauses of a busy machine.
const SHORT: Duration = Duration::from_secs(3);

/// Long where it is not.
const LONG: Duration = Duration::from_secs(600);

fn node() -> ZnodePath {
    ZnodePath::new(NODE).expect("a path")
}

fn touch() -> ZnodePath {
    node().child("touch").expect("a path")
}

fn presence(client: &Client, ttl: Duration, data: &'static str) -> TtlPresenceBuilder {
    TtlPresence::builder(client, NODE, ttl).data(data)
}

async fn gone(client: &Client) -> Result<()> {
    loop {
        let (found, mut watcher) = client.exists_watched(&node()).await?;
        if found.is_none() {
            return Ok(());
        }
        watcher.changed().await?;
    }
}

async fn servers_without_such_nodes_are_named(client: Client) -> Result<()> {
    let refused = presence(&client, LONG, "here").start().await;
    let Err(PresenceError::NoTtlNodes { path }) = &refused else { bail!("{refused:?}") };
    assert_eq!(*path, node());
    let told = refused.expect_err("refused").to_string();
    assert!(told.contains("extendedTypesEnabled") && told.contains("allow_ttl_nodes"), "{told}");
    Ok(())
}

async fn it_outlives_its_program_and_then_goes((client, other): Clients) -> Result<()> {
    let kept = presence(&client, SHORT, "here").start().await?;
    let PresenceState::Present { czxid } = kept.state() else { bail!("{:?}", kept.state()) };
    // It is kept alive: touched more often than it could live without.
    let mut touches = 0;
    while touches < 4 {
        let ((_, stat), mut watcher) = other.data_watched(&touch()).await?;
        touches = stat.version;
        if touches < 4 {
            watcher.changed().await?;
        }
    }
    let (data, stat) = other.data(&node()).await?;
    assert_eq!((&data[..], stat.czxid), (&b"here"[..], czxid));
    assert_eq!(stat.ephemeral_owner, SessionId::NONE);

    drop(kept);
    client.close().await;
    assert!(other.exists(&node()).await?.is_some(), "for a while longer");
    gone(&other).await
}

async fn it_goes_on_over_sessions_and_lost_replies((participant, other): Observed) -> Result<()> {
    other.ensure(&ZnodePath::new("/cameras")?, CreateMode::Persistent).await?;
    participant.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let kept = presence(&participant.client, SHORT, "here").start().await?;
    let PresenceState::Present { czxid } = kept.state() else { bail!("{:?}", kept.state()) };

    participant.proxy.lose_next(OpCode::SetData, Loss::BeforeReply);
    participant
        .proxy
        .passes(|passed| {
            passed.iter().filter(|one| **one == Passed::Reply(OpCode::SetData)).count() >= 1
        })
        .await;
    participant.proxy.expire_session().await?;
    let before = other.data(&touch()).await?.1.version;
    let mut now = before;
    while now < before + 2 {
        let ((_, stat), mut watcher) = other.data_watched(&touch()).await?;
        now = stat.version;
        if now < before + 2 {
            watcher.changed().await?;
        }
    }
    assert_eq!(kept.state(), PresenceState::Present { czxid });
    assert_eq!(other.data(&node()).await?.1.czxid, czxid, "the same node");

    // It is created again after a deletion by another client.
    other.transaction().delete(&touch(), None).delete(&node(), None).commit().await?;
    let is_later = |state: &PresenceState| matches!(state, PresenceState::Present { czxid: now } if *now > czxid);
    kept.changes().wait_for(is_later).await?;
    kept.end().await?;
    Ok(())
}

/// A touch that had failed was not made up for when a server was there again: the next one came half a time
/// to live later, and by then the node had gone.
///
/// Fails with a pause in place of `reachable`.
async fn an_outage_of_less_than_half_its_time_to_live_does_not_end_it(
    backend: Backend,
) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(2));
    let (participant, other) =
        (backend.participant_with(builder).await?, backend.observer().await?);
    let kept = presence(&participant.client, SHORT * 5, "here").start().await?;
    let (_, mut touched) = other.data_watched(&touch()).await?;
    // It begins with the first touch, and is over a session timeout later.
    cut_off_at_reads(&participant, async { Ok(()) }).await?;
    reconnect(&participant);
    assert_eq!(touched.changed().await?.kind, EventKind::NodeDataChanged);
    kept.end().await?;
    Ok(())
}

async fn a_later_life_takes_the_node_over((client, other): Clients) -> Result<()> {
    drop(presence(&client, LONG, "camera-7 1").start().await?);
    let before = other.data(&node()).await?.1;

    let later = presence(&other, LONG, "camera-7 2");
    let later = later.replaces(|data| data.starts_with(b"camera-7 ")).start().await?;
    assert_eq!(later.state(), PresenceState::Present { czxid: before.czxid });
    let (data, stat) = client.data(&node()).await?;
    assert_eq!((&data[..], stat.czxid), (&b"camera-7 2"[..], before.czxid), "without a gap");
    later.end().await?;
    Ok(())
}

async fn anothers_node_with_a_time_to_live_is_waited_for((client, other): Clients) -> Result<()> {
    let theirs = presence(&other, LONG, "theirs").start().await?;
    let before = (other.data(&node()).await?, other.data(&touch()).await?);
    let refused = presence(&client, LONG, "ours").when_taken(WhenTaken::Fail).start().await;
    assert!(matches!(refused, Err(PresenceError::Taken { .. })), "{refused:?}");

    let ours = presence(&client, SHORT, "ours").start().await?;
    assert_eq!(ours.state(), PresenceState::Taken { by: SessionId::NONE });
    assert_eq!((other.data(&node()).await?, other.data(&touch()).await?), before);
    theirs.end().await?;
    let is_there = |state: &PresenceState| matches!(state, PresenceState::Present { .. });
    ours.changes().wait_for(is_there).await?;
    assert_eq!(&other.data(&node()).await?.0[..], b"ours");
    ours.end().await?;
    Ok(())
}

/// Replaces the nodes with those of another program, with the same number of touches.
async fn replace_by_theirs(other: &Client) -> Result<()> {
    loop {
        let version = other.data(&touch()).await?.1.version;
        let (container, ttl) = (CreateMode::Container, CreateMode::PersistentTtl);
        let gone = other.transaction().delete(&touch(), Some(version)).delete(&node(), None);
        let made = gone.create(&node(), "theirs", container);
        let mut made = made.create_ttl(&touch(), "theirs", ttl, LONG);
        for before in 0..version {
            made = made.set_data(&touch(), "theirs", Some(before));
        }
        match made.commit().await {
            Err(TransactionError::Failed { code: ErrorCode::BadVersion, .. }) => {}
            done => return Ok(done.map(drop)?),
        }
    }
}

async fn a_child_of_another_with_the_same_version_is_not_written(
    (client, other): Clients,
) -> Result<()> {
    let ours = presence(&client, LONG, "ours").start().await?;
    replace_by_theirs(&other).await?;
    ours.end().await?;
    assert_eq!(&other.data(&touch()).await?.0[..], b"theirs", "it was not ours to delete");
    other.transaction().delete(&touch(), None).delete(&node(), None).commit().await?;

    let ours = presence(&client, SHORT, "ours").start().await?;
    replace_by_theirs(&other).await?;
    let ((data, _), mut written) = other.data_watched(&touch()).await?;
    assert_eq!(&data[..], b"theirs");
    let mut states = ours.changes();
    tokio::select! {
        taken = states.wait_for(|state| matches!(state, PresenceState::Taken { .. })) => drop(taken?),
        event = written.changed() => bail!("it wrote over another's: {event:?}"),
    }
    assert_eq!(&other.data(&touch()).await?.0[..], b"theirs");
    Ok(())
}

/// As after an outage that was longer than the time to live: the servers delete the child first.
async fn a_node_that_has_lost_its_child_is_taken_over((client, other): Clients) -> Result<()> {
    let ours = presence(&client, SHORT, "ours").when_taken(WhenTaken::Fail).start().await?;
    let PresenceState::Present { czxid } = ours.state() else { bail!("{:?}", ours.state()) };
    // It keeps the servers from deleting the node too.
    other.create(&node().child("others")?, "", CreateMode::Persistent).await?;
    other.delete(&touch(), None).await?;
    let (found, mut made) = other.exists_watched(&touch()).await?;
    let mut states = ours.changes();
    if found.is_none() {
        tokio::select! {
            event = made.changed() => drop(event?),
            state = states.wait_for(|state| *state != PresenceState::Present { czxid }) => {
                bail!("{:?}", *state?)
            }
        }
    }
    ours.end().await?;
    assert!(other.exists(&touch()).await?.is_none(), "it was ours again");
    assert_eq!(other.exists(&node()).await?.map(|stat| stat.czxid), Some(czxid));
    Ok(())
}

async fn its_end_takes_a_node_with_it_that_is_being_made(
    (participant, other): Observed,
) -> Result<()> {
    // It must not go with the node of the other.
    other.ensure(&ZnodePath::new("/cameras")?, CreateMode::Persistent).await?;
    let theirs = presence(&other, LONG, "theirs").start().await?;
    let ours = presence(&participant.client, SHORT, "ours").start().await?;
    assert_eq!(ours.state(), PresenceState::Taken { by: SessionId::NONE });
    participant.proxy.hold_replies();
    theirs.end().await?;
    // It is made, and the reply is on its way.
    let (found, mut made) = other.exists_watched(&node()).await?;
    if found.is_none() {
        made.changed().await?;
    }

    let mut ending = Box::pin(ours.end());
    tokio::select! {
        biased;
        ended = &mut ending => bail!("the outcome is unknown before the replies arrive: {ended:?}"),
        () = std::future::ready(()) => participant.proxy.restore(),
    }
    ending.await?;
    assert!(other.exists(&node()).await?.is_none());
    Ok(())
}

async fn an_end_that_is_refused_says_so((client, other): Clients) -> Result<()> {
    let all_but_delete =
        Permissions::CREATE | Permissions::READ | Permissions::WRITE | Permissions::ADMIN;
    for parent in [node(), ZnodePath::new("/cameras")?] {
        let kept = presence(&client, LONG, "here").start().await?;
        other.set_acl(&parent, Acl::world(all_but_delete), None).await?;
        let refused = kept.end().await;
        let code = refused.as_ref().err().and_then(|error| error.code());
        assert_eq!(code, Some(ErrorCode::NoAuth), "{parent}: {refused:?}");
        other.set_acl(&parent, Acl::world(Permissions::ALL), None).await?;
        other.transaction().delete(&touch(), None).delete(&node(), None).commit().await?;
    }
    Ok(())
}

async fn its_end_takes_the_node_with_it((participant, other): Observed) -> Result<()> {
    let kept = presence(&participant.client, LONG, "here").start().await?;
    participant.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    kept.end().await?;
    assert!(other.exists(&node()).await?.is_none());

    // What others have put below it stays, and then the server looks after it.
    let kept = presence(&participant.client, LONG, "here").start().await?;
    let below = node().child("others")?;
    other.create(&below, "", CreateMode::Persistent).await?;
    kept.end().await?;
    assert!(other.exists(&touch()).await?.is_none());
    assert!(other.exists(&below).await?.is_some());
    other.delete(&below, None).await?;
    gone(&other).await
}

async fn keeping_it_alive_costs_one_read_and_one_write(participant: Participant) -> Result<()> {
    let first = presence(&participant.client, SHORT, "here").start().await?;
    first.end().await?;
    participant.proxy.clear();
    let kept = presence(&participant.client, SHORT, "here").start().await?;
    let touched = |passed: &[Passed]| {
        passed.iter().filter(|one| **one == Passed::Reply(OpCode::SetData)).count() == 2
    };
    participant.proxy.passes(touched).await;
    let asked = participant.proxy.requests();
    let touches = [OpCode::GetData, OpCode::SetData].repeat(2);
    assert_eq!((asked[0], &asked[1..5]), (OpCode::Multi, &touches[..]), "{asked:?}");
    kept.end().await.context("the end")?;
    Ok(())
}
