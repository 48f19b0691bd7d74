//! What barriers and latches promise, on every server.

use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    Barrier, BarrierError, Client, Contact, CountDownLatch, CreateMode, SessionId, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::task::{JoinHandle, JoinSet};

use crate::jeopardy::short;
use crate::{Clients, Observed, Pair, contract};

contract!(barrier);

const GATE: &str = "/app/gate";
const LATCH: &str = "/app/latch";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(20);

/// Too short for anything to happen.
const SHORT: Duration = Duration::from_millis(50);

/// Whether the node is watched that is waited for.
fn is_watched(passed: &[Passed]) -> bool {
    passed.contains(&Passed::Reply(OpCode::GetData))
}

/// Has a participant wait, and returns when it has its watch.
async fn begins<T: Send + 'static>(
    participant: &Participant,
    wait: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    participant.proxy.clear();
    let waiting = tokio::spawn(wait);
    participant.proxy.passes(is_watched).await;
    waiting
}

async fn who_waits_goes_on_when_it_is_open((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (Barrier::new(&one, GATE)?, Barrier::new(&two, GATE)?);
    ours.wait().await?;
    assert!(!ours.is_closed().await?);
    ours.close().await?;
    ours.close().await?;
    assert!(theirs.is_closed().await?);
    let closed = theirs.inspect().await?.context("it is closed")?;
    assert_eq!((closed.session, closed.holder), (SessionId::NONE, None));
    assert!(!theirs.wait_timeout(SHORT).await?);

    let mut waiting = JoinSet::new();
    for _ in 0..3 {
        let theirs = theirs.clone();
        waiting.spawn(async move { theirs.wait_timeout(LONG).await });
    }
    theirs.open().await?;
    theirs.open().await?;
    for waited in waiting.join_all().await {
        assert!(waited?);
    }
    Ok(())
}

/// The event is the answer, and a barrier that is open leaves no watch.
async fn a_wait_is_one_event((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (Barrier::new(&participant.client, GATE)?, Barrier::new(&other, GATE)?);
    theirs.close().await?;
    let waiting = begins(&participant, async move { ours.wait().await }).await;
    theirs.open().await?;
    waiting.await??;
    assert_eq!(participant.proxy.requests(), [OpCode::Sync, OpCode::GetData]);
    assert_eq!(participant.proxy.events().len(), 1);

    let ours = Barrier::new(&participant.client, GATE)?;
    participant.proxy.clear();
    ours.wait().await?;
    theirs.close().await?;
    theirs.open().await?;
    ours.wait().await?;
    assert!(participant.proxy.events().is_empty());
    Ok(())
}

/// It was closed again when the waiter came back.
async fn an_opening_that_was_missed_counts((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (Barrier::new(&participant.client, GATE)?, Barrier::new(&other, GATE)?);
    theirs.close().await?;
    let waiting = begins(&participant, async move { ours.wait().await }).await;
    participant.proxy.refuse();
    theirs.open().await?;
    theirs.close().await?;
    participant.proxy.restore();
    tokio::time::timeout(LONG, waiting).await???;
    Ok(())
}

async fn a_wait_outlives_lost_connections_and_sessions(
    (participant, other): Observed,
) -> Result<()> {
    let (ours, theirs) = (Barrier::new(&participant.client, GATE)?, Barrier::new(&other, GATE)?);
    theirs.close().await?;
    let waiting = begins(&participant, async move { ours.wait().await }).await;
    for _ in 0..3 {
        participant.proxy.cut();
    }
    participant.proxy.clear();
    participant.proxy.expire_session().await?;
    participant.proxy.passes(is_watched).await;
    assert!(!waiting.is_finished());
    theirs.open().await?;
    tokio::time::timeout(LONG, waiting).await???;
    Ok(())
}

async fn a_guard_opens_it_when_it_ends((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (Barrier::new(&participant.client, GATE)?, Barrier::new(&other, GATE)?);
    let guard = ours.close_while_held().await?;
    assert!(theirs.is_closed().await?);
    let closed = theirs.inspect().await?.context("it is closed")?;
    assert_eq!(closed.session, participant.client.session_id());
    assert_eq!(closed.holder.map(|holder| holder.pid), Some(std::process::id()));
    let refused = theirs.close_while_held().await.err().context("two hold it")?;
    assert_eq!(refused, BarrierError::AlreadyClosed { path: ZnodePath::new(GATE)? });
    let again = ours.close_while_held().await.err().context("it is held twice")?;
    assert_eq!(again, refused);
    // The barrier would open although no program has opened it.
    let refused = theirs.close().await.err().context("it is closed for good")?;
    assert_eq!(refused, BarrierError::ClosedByGuard { path: ZnodePath::new(GATE)? });
    guard.release().await?;
    theirs.wait().await?;
    assert_eq!(theirs.inspect().await?, None);

    let guard = ours.close_while_held().await?;
    participant.proxy.expire_session().await?;
    assert!(theirs.wait_timeout(LONG).await?);
    guard.lost().await;

    // Whoever opens it takes it from the guard.
    let guard = ours.close_while_held().await?;
    theirs.open().await?;
    guard.lost().await;
    Ok(())
}

async fn replies_that_are_lost_change_nothing((participant, other): Observed) -> Result<()> {
    let (ours, theirs) = (Barrier::new(&participant.client, GATE)?, Barrier::new(&other, GATE)?);
    ours.close().await?;
    ours.open().await?;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        participant.proxy.lose_next(OpCode::Create2, loss);
        ours.close().await?;
        assert!(theirs.is_closed().await?);
        participant.proxy.lose_next(OpCode::Delete, loss);
        ours.open().await?;
        assert!(!theirs.is_closed().await?);
    }

    let latch = CountDownLatch::new(&participant.client, LATCH, 5)?;
    assert_eq!(latch.count_down().await?, 4);
    for (loss, left) in [(Loss::BeforeRequest, 3), (Loss::BeforeReply, 2), (Loss::BeforeReply, 1)] {
        participant.proxy.lose_next(OpCode::Multi, loss);
        assert_eq!(latch.count_down().await?, left);
    }
    assert_eq!(latch.count().await?, 1);
    Ok(())
}

async fn a_latch_opens_at_zero((one, two): Clients) -> Result<()> {
    let latch = |client: &Client| CountDownLatch::new(client, LATCH, 6);
    let (ours, theirs) = (latch(&one)?, latch(&two)?);
    assert!(!ours.wait_timeout(SHORT).await?);
    let waiter = ours.clone();
    let waiting = tokio::spawn(async move { waiter.wait_timeout(LONG).await });
    let mut counting = JoinSet::new();
    for latch in [&ours, &theirs] {
        for _ in 0..3 {
            let latch = latch.clone();
            counting.spawn(async move { latch.count_down().await });
        }
    }
    let mut left: Vec<_> = counting.join_all().await.into_iter().collect::<Result<_, _>>()?;
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 3, 4, 5]);
    assert!(waiting.await??);

    assert_eq!(ours.count_down().await?, 0, "it stays so");
    ours.wait().await?;
    ours.reset().await?;
    assert_eq!(theirs.count().await?, 6);
    assert!(!theirs.wait_timeout(SHORT).await?);
    Ok(())
}

async fn a_latch_of_zero_is_open(alice: Client) -> Result<()> {
    let latch = CountDownLatch::new(&alice, LATCH, 0)?;
    latch.wait().await?;
    assert_eq!((latch.count_down().await?, latch.count().await?), (0, 0));
    Ok(())
}

async fn a_wait_for_a_latch_is_one_event((alice, bob): Pair) -> Result<()> {
    let ours = CountDownLatch::new(&alice.client, LATCH, 2)?;
    let theirs = CountDownLatch::new(&bob.client, LATCH, 2)?;
    assert_eq!(theirs.count_down().await?, 1);
    let waiting = begins(&alice, async move { ours.wait().await }).await;
    bob.proxy.clear();
    assert_eq!(theirs.count_down().await?, 0);
    assert_eq!(bob.proxy.requests(), [OpCode::GetData, OpCode::Multi]);
    waiting.await??;
    assert_eq!(alice.proxy.events().len(), 1);
    Ok(())
}

async fn what_is_something_else_is_left_alone(backend: Backend) -> Result<()> {
    let client = backend.observer().await?;
    let path = ZnodePath::new("/other")?;
    client.create(&path, "10.0.0.1", CreateMode::Persistent).await?;
    let latch = CountDownLatch::new(&client, LATCH, 2)?;
    latch.count_down().await?;
    let gate = Barrier::new(&client, LATCH)?;
    for refused in [gate.close().await, gate.wait().await] {
        let refused = refused.err().context("a latch is closed like a barrier")?;
        assert!(refused.to_string().contains("is not a barrier: it has a latch"), "{refused}");
    }
    let other = CountDownLatch::new(&client, LATCH, 3)?.count_down().await;
    let (path, found, given) = (ZnodePath::new(LATCH)?, 2, 3);
    assert_eq!(other, Err(BarrierError::OtherCount { path, found, given }));

    let latch = CountDownLatch::new(&client, "/other", 2)?;
    let refused = latch.count_down().await.err().context("it counts")?;
    assert!(matches!(refused, BarrierError::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("\"10.0.0.1\""), "{refused}");
    for bad in ["", "a", "/", "/a/"] {
        assert!(Barrier::new(&client, bad).is_err(), "{bad}");
        assert!(CountDownLatch::new(&client, bad, 1).is_err(), "{bad}");
    }
    Ok(())
}

/// Neither the end of a session nor a long outage makes a waiter forget what it has seen.
async fn an_opening_that_was_missed_in_another_session_counts(backend: Backend) -> Result<()> {
    let (participant, other) = (short(&backend).await?, backend.observer().await?);
    let (ours, theirs) = (Barrier::new(&participant.client, GATE)?, Barrier::new(&other, GATE)?);
    theirs.close().await?;
    let waiting = begins(&participant, async move { ours.wait_timeout(LONG).await }).await;
    participant.proxy.refuse();
    participant.client.status().wait_for(|it| it.contact == Contact::Unreachable).await?;
    theirs.open().await?;
    theirs.close().await?;
    participant.proxy.restore();
    assert!(waiting.await??);
    Ok(())
}

async fn a_latch_that_was_reset_was_open((participant, other): Observed) -> Result<()> {
    let latch = |client: &Client| CountDownLatch::new(client, LATCH, 1);
    let (ours, theirs) = (latch(&participant.client)?, latch(&other)?);
    assert_eq!(theirs.count().await?, 1);
    let waiting = begins(&participant, async move { ours.wait().await }).await;
    participant.proxy.refuse();
    theirs.count_down().await?;
    theirs.reset().await?;
    participant.proxy.restore();
    tokio::time::timeout(LONG, waiting).await???;
    Ok(())
}
