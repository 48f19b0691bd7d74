//! Notifications: as few events as possible, and none lost.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{Client, CreateMode, Notify, Outcome, ValueError, ZnodePath, Zxid};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::{Pair, contract, next_session};

contract!(notify);

fn news(participant: &Participant) -> Result<Notify> {
    Ok(Notify::new(&participant.client, "/news")?)
}

fn waiting(news: &Notify, known: Zxid) -> tokio::task::JoinHandle<Result<Zxid, ValueError>> {
    let news = news.clone();
    tokio::spawn(async move { news.wait_past(known).await })
}

async fn several_are_one((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (news(&alice)?, news(&bob)?);
    let known = ours.last().await?;
    assert_eq!(known, Zxid(0));
    // Before the wait, and before there is a node.
    let first = theirs.notify().await?;
    assert_eq!(ours.wait_past(known).await?, first);

    alice.proxy.clear();
    let wait = waiting(&ours, first);
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::Exists))).await;
    alice.proxy.hold_replies();
    let mut last = first;
    for _ in 0..5 {
        let next = theirs.notify().await?;
        assert!(next > last);
        last = next;
    }
    alice.proxy.restore();
    assert_eq!(wait.await??, last);
    assert_eq!(alice.proxy.events().len(), 1);
    let mut requests = alice.proxy.requests();
    // The watch of the wait before is given up.
    requests.retain(|op| *op != OpCode::RemoveWatches);
    assert_eq!(requests, [OpCode::Exists; 2]);
    Ok(())
}

/// A watch that is set again after a reconnect does not report changes in between, unless the request contains
/// the last transaction that the client has seen.
async fn none_is_lost_without_a_connection((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (news(&alice)?, news(&bob)?);
    let first = theirs.notify().await?;
    let wait = waiting(&ours, first);
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::Exists))).await;
    alice.proxy.refuse();
    let next = theirs.notify().await?;
    alice.proxy.restore();
    assert_eq!(wait.await??, next);
    Ok(())
}

/// Also when the node was deleted and made anew, and its version is the same both times.
async fn none_is_lost_between_two_sessions((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (news(&alice)?, news(&bob)?);
    let first = theirs.notify().await?;
    let wait = waiting(&ours, first);
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::Exists))).await;
    let old = alice.client.session_id();
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    bob.client.delete(theirs.path(), None).await?;
    let next = theirs.notify().await?;
    alice.proxy.restore();
    next_session(&alice, old).await?;
    assert_eq!(wait.await??, next);
    Ok(())
}

async fn a_lost_reply_is_no_error(alice: Participant) -> Result<()> {
    let news = news(&alice)?;
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let first = news.notify().await?;
    alice.proxy.lose_next(OpCode::SetData, Loss::BeforeReply);
    assert!(news.notify().await? > first);
    Ok(())
}

/// An error said that nothing was sent, and the notification was there all the same.
///
/// Fails when the outcome was that of the last try alone.
async fn what_may_have_been_sent_is_not_said_to_be_nothing(backend: Backend) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(2));
    let (alice, bob) = (backend.participant_with(short).await?, backend.participant().await?);
    let (ours, theirs) = (news(&alice)?, news(&bob)?);
    let first = ours.notify().await?;
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let sending = {
        let ours = ours.clone();
        tokio::spawn(async move { ours.notify().await })
    };
    alice.proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::SetData))).await;
    assert!(theirs.wait_past(first).await? > first, "it was made");
    alice.proxy.refuse();
    let error = sending.await?.expect_err("no server is reached again");
    assert_eq!((error.outcome(), error.is_retryable()), (Outcome::Unknown, true), "{error}");
    let unsent = ours.notify().await.expect_err("no server is reached");
    assert_eq!((unsent.outcome(), unsent.is_retryable()), (Outcome::NotApplied, true), "{unsent}");
    Ok(())
}

async fn a_node_with_data_is_refused(alice: Participant) -> Result<()> {
    let (path, data) = (ZnodePath::new("/news")?, Bytes::from_static(b"settings"));
    alice.client.create(&path, data.clone(), CreateMode::Persistent).await?;
    let error = news(&alice)?.notify().await.expect_err("foreign data");
    assert!(error.to_string().contains("settings"), "{error}");
    assert_eq!(alice.client.data(&path).await?.0, data);
    Ok(())
}

/// Symptom: a waiter took the node for one of notifications, and a notifier overwrote the data.
///
/// Fails when the node was looked at before the first write alone.
async fn data_that_comes_later_is_refused_and_left((alice, bob): Pair) -> Result<()> {
    let ours = news(&alice)?;
    let first = ours.notify().await?;
    let wait = waiting(&ours, first);
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::Exists))).await;
    let data = Bytes::from_static(b"settings");
    bob.client.set_data(ours.path(), data.clone(), None).await?;

    let is_refused = |told: Result<Zxid, ValueError>| {
        assert!(matches!(&told, Err(ValueError::Foreign { .. })), "{told:?}");
    };
    is_refused(wait.await?);
    is_refused(ours.last().await);
    is_refused(ours.wait_past(first).await);
    is_refused(ours.notify().await);
    is_refused(ours.clone().notify().await);
    assert_eq!(bob.client.data(ours.path()).await?.0, data);

    // It continues when the data is gone.
    bob.client.set_data(ours.path(), "", None).await?;
    let again = ours.notify().await?;
    assert!(again > first);
    assert_eq!(ours.last().await?, again);
    Ok(())
}

/// Whoever had notified once wrote over the data of another program: a node that was just made has the
/// version that was remembered.
///
/// Fails with a node that was created only: its version was 0, as that of any other.
async fn data_in_a_node_that_was_made_anew_is_refused_and_left((alice, bob): Pair) -> Result<()> {
    let data = Bytes::from_static(b"settings");
    for is_there in [false, true] {
        let ours = news(&alice)?;
        if is_there {
            // Of an earlier version of this library, or of a person.
            bob.client.create(ours.path(), "", CreateMode::Persistent).await?;
        }
        alice.proxy.clear();
        ours.notify().await?;
        assert_eq!(alice.proxy.requests().len(), 2, "a look and a write");

        bob.client.delete(ours.path(), None).await?;
        bob.client.create(ours.path(), data.clone(), CreateMode::Persistent).await?;
        let told = ours.notify().await;
        assert!(matches!(&told, Err(ValueError::Foreign { .. })), "{told:?}");
        assert_eq!(bob.client.data(ours.path()).await?.0, data);
        bob.client.delete(ours.path(), None).await?;
    }
    Ok(())
}

async fn those_who_notify_by_turns_and_at_once((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (news(&alice)?, news(&bob)?);
    let mut last = ours.notify().await?;
    for _ in 0..3 {
        let (one, other) = (ours.notify().await?, theirs.notify().await?);
        assert!(last < one && one < other);
        last = other;
    }
    alice.proxy.clear();
    let one = ours.notify().await?;
    assert!(last < one);
    assert_eq!(
        alice.proxy.requests(),
        [OpCode::SetData, OpCode::Exists, OpCode::SetData],
        "another notification came in between"
    );
    alice.proxy.clear();
    let two = ours.notify().await?;
    assert_eq!(alice.proxy.requests(), [OpCode::SetData]);

    // Each wait ends with a notification that came after its start.
    let wait = waiting(&theirs, two);
    let calls: Vec<_> = (0..20)
        .map(|turn| if turn % 2 == 0 { ours.clone() } else { theirs.clone() })
        .map(|handle| tokio::spawn(async move { handle.notify().await }))
        .collect();
    let mut numbers = Vec::new();
    for call in calls {
        numbers.push(call.await??);
    }
    assert!(numbers.iter().all(|number| *number > two), "{numbers:?} after {two}");
    assert!(wait.await?? > two);
    assert_eq!(ours.last().await?, *numbers.iter().max().expect("twenty"));
    Ok(())
}

async fn a_missing_parent_is_made(alice: Participant) -> Result<()> {
    let orphan = Notify::new(&alice.client, "/shop/news")?;
    let sent = orphan.notify().await?;
    assert_eq!(orphan.last().await?, sent);
    Ok(())
}
