//! Notifications: as few events as possible, and none lost.

use anyhow::Result;
use bytes::Bytes;
use lockkeeper::{CreateMode, Notify, ValueError, ZnodePath, Zxid};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::{contract, next_session};

contract!("notifications":
    several_are_one,
    none_is_lost_without_a_connection,
    none_is_lost_between_two_sessions,
    a_lost_reply_is_no_error,
    a_node_with_data_is_refused,
    a_missing_parent_is_made,
);

fn news(participant: &Participant) -> Result<Notify> {
    Ok(Notify::new(&participant.client, "/news")?)
}

fn waiting(news: &Notify, known: Zxid) -> tokio::task::JoinHandle<Result<Zxid, ValueError>> {
    let news = news.clone();
    tokio::spawn(async move { news.wait_past(known).await })
}

async fn several_are_one(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
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

/// A watch that is set again after a reconnect says nothing of what came in between, unless it is told
/// where the client had been.
async fn none_is_lost_without_a_connection(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
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

/// Also when the node was deleted and made anew, and its version is 0 both times.
async fn none_is_lost_between_two_sessions(backend: Backend) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
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

async fn a_lost_reply_is_no_error(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let news = news(&alice)?;
    alice.proxy.lose_next(OpCode::Create2, Loss::BeforeReply);
    let first = news.notify().await?;
    alice.proxy.lose_next(OpCode::SetData, Loss::BeforeReply);
    assert!(news.notify().await? > first);
    Ok(())
}

async fn a_node_with_data_is_refused(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let (path, data) = (ZnodePath::new("/news")?, Bytes::from_static(b"settings"));
    alice.client.create(&path, data.clone(), CreateMode::Persistent).await?;
    let error = news(&alice)?.notify().await.expect_err("foreign data");
    assert!(error.to_string().contains("settings"), "{error}");
    assert_eq!(alice.client.data(&path).await?.0, data);
    Ok(())
}

async fn a_missing_parent_is_made(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let orphan = Notify::new(&alice.client, "/shop/news")?;
    let sent = orphan.notify().await?;
    assert_eq!(orphan.last().await?, sent);
    Ok(())
}
