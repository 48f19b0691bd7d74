//! Holders that ride out an outage: what they do after the deadline, and what they come back to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lockkeeper::revoke::revoke;
use lockkeeper::{
    AcquireError, Client, Contact, Counter, CreateMode, EnsureError, ErrorCode, Fence, HolderState,
    LossReason, MultiLock, Mutex, Owner, ReentrantMutex, ReleaseError, RwLock, SemaphoreProfile,
    VerifyError, ZnodePath, blocking,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::history::Share;
use lockkeeper_testkit::locks::{self, Design, Sharing, Wait};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::locks::{Exclusive, Held, line_up, lock_of};
use crate::{LOCK, contract, lock_path, mutex, queue_empties, queue_up};

contract!(jeopardy);

/// Long enough for a busy machine, short enough to wait for. The lease is shorter by more than two
/// seconds, which is the time to come back in.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) async fn short(backend: &Backend) -> Result<Participant> {
    backend.participant_with(Client::builder().session_timeout(TIMEOUT)).await
}

/// A lock whose node lingers after a holder that allowed jeopardy, and that node.
async fn idle(participant: &Participant) -> Result<(Mutex, ZnodePath)> {
    let lock = Mutex::builder(&participant.client, LOCK).linger(LONG).build()?;
    let guard = lock.acquire().await?;
    guard.allow_jeopardy()?;
    let node = guard.node().clone();
    guard.release().await?;
    Ok((lock, node))
}

/// Begins an outage at a moment from which the deadline is well before the end of the session: a
/// new session is proven to live for nearly as long as the servers keep it.
pub(crate) async fn lose_the_way(participant: &Participant) {
    aged(participant).await;
    participant.proxy.refuse();
}

async fn aged(participant: &Participant) {
    let client = &participant.client;
    let lease = client.timing().lease();
    loop {
        let left = client.lease().remaining(client.now());
        if left < lease {
            return;
        }
        tokio::time::sleep(left - lease + Duration::from_millis(1)).await;
    }
}

async fn connects(participant: &Participant) -> Result<()> {
    participant.client.status().wait_for(|status| status.contact == Contact::Connected).await?;
    Ok(())
}

async fn an_outage_that_the_session_survives_ends_held_again<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let (token, session) = (guard.token(), guard.session());
    let waiting = line_up::<L>(&bob, 2).await?;
    guard.allow_jeopardy()?;
    assert_eq!(guard.state(), HolderState::Held);
    for _ in 0..2 {
        lose_the_way(&alice).await;
        guard.jeopardy().await?;
        assert_eq!(guard.state(), HolderState::Jeopardy);
        alice.proxy.restore();
        guard.held_again().await?;
        assert_eq!((guard.state(), guard.token()), (HolderState::Held, token));
        assert_eq!(guard.session(), session);
        guard.verify().await?;
    }
    assert!(!waiting.is_finished(), "the lock was not granted in the meantime");
    guard.release().await?;
    assert!(waiting.await??.token() > token);
    Ok(())
}

async fn an_outage_that_the_session_does_not_survive_is_a_loss<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = Arc::new(lock_of::<L>(&alice)?.acquire().await?);
    guard.allow_jeopardy()?;
    let looking = Arc::clone(&guard);
    let waiting = line_up::<L>(&bob, 2).await?;
    let waiting = tokio::spawn(async move {
        let next = waiting.await??;
        anyhow::Ok((next, looking.state()))
    });
    alice.proxy.freeze();
    let (next, seen) = waiting.await??;
    assert_eq!(seen, HolderState::Jeopardy, "when the next one holds, it believes nothing");
    alice.proxy.restore();
    let lost = LossReason::SessionExpired;
    assert_eq!(guard.held_again().await, Err(lost));
    assert_eq!((guard.state(), guard.lost().await), (HolderState::Lost(lost), lost));
    assert_eq!(guard.allow_jeopardy(), Err(lost));
    assert!(next.token() > guard.token());
    next.release().await?;
    assert_eq!(guard.state(), HolderState::Lost(lost), "for good");
    Ok(())
}

/// The path of an exclusive node is used again at once, so a check of the path shows nothing.
async fn a_holder_whose_node_was_deleted_in_jeopardy_is_told<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    guard.allow_jeopardy()?;
    let waiting = line_up::<L>(&bob, 2).await?;
    lose_the_way(&alice).await;
    guard.jeopardy().await?;
    bob.client.delete(guard.node(), None).await?;
    let next = waiting.await??;
    alice.proxy.restore();
    assert_eq!(guard.held_again().await, Err(LossReason::NodeDeleted));
    assert_eq!(guard.state(), HolderState::Lost(LossReason::NodeDeleted));
    drop(guard);
    next.verify().await?;
    Ok(())
}

/// Counts how often it is polled, and looks how the lock stands each time.
async fn work<H: Held>(guard: &H, polls: &AtomicU32, until: u32) {
    while polls.fetch_add(1, Ordering::SeqCst) < until {
        assert!(guard.is_held(), "polled without the lock: {}", guard.state());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn work_stands_still_in_jeopardy_and_goes_on_with_the_same_token(
    backend: Backend,
) -> Result<()> {
    let alice = short(&backend).await?;
    let guard = mutex(&alice)?.acquire().await?;
    let (token, polls) = (guard.token(), AtomicU32::new(0));
    let outage = async {
        lose_the_way(&alice).await;
        guard.jeopardy().await?;
        let before = polls.load(Ordering::SeqCst);
        // Its timer has fired many times over by then.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(guard.state(), HolderState::Jeopardy);
        assert_eq!(polls.load(Ordering::SeqCst), before, "polled in jeopardy");
        alice.proxy.restore();
        guard.held_again().await?;
        anyhow::Ok(before)
    };
    let until = async {
        let before = outage.await?;
        while polls.load(Ordering::SeqCst) < before + 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        result = guard.run_through(LONG, work(&guard, &polls, u32::MAX)) => panic!("{result:?}"),
        done = until => done?,
    }
    assert_eq!(guard.token(), token);
    guard.verify().await?;
    Ok(())
}

async fn a_grace_that_is_over_ends_the_lock(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let guard = mutex(&alice)?.acquire().await?;
    lose_the_way(&alice).await;
    let grace = Duration::from_millis(100);
    let result = guard.run_through(grace, std::future::pending::<()>()).await;
    assert_eq!(result, Err(LossReason::DeadlinePassed));
    alice.proxy.restore();
    connects(&alice).await?;
    // After the proof that would have brought it back.
    alice.client.transaction().check(&ZnodePath::root(), None).commit().await.ok();
    alice.client.exists(&ZnodePath::root()).await.ok();
    assert_eq!(guard.state(), HolderState::Lost(LossReason::DeadlinePassed), "it never turns back");
    assert_eq!(guard.held_again().await, Err(LossReason::DeadlinePassed));
    Ok(())
}

async fn a_checkpoint_waits_until_the_lock_is_held_again(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let guard = mutex(&alice)?.acquire().await?;
    let enough = alice.client.timing().always_left();
    alice.proxy.clear();
    guard.checkpoint(Duration::ZERO, LONG).await?;
    assert_eq!(alice.proxy.requests(), [], "enough is left");
    // What holds this one is called first in the outage, before the deadline.
    let in_time = Mutex::new(&alice.client, "/locks/in-time")?.acquire().await?;
    // And these after it, or without a grace.
    let late = Mutex::new(&alice.client, "/locks/late")?.acquire().await?;
    let without = Mutex::new(&alice.client, "/locks/without")?.acquire().await?;
    without.checkpoint(Duration::ZERO, Duration::ZERO).await?;

    lose_the_way(&alice).await;
    let outage = async {
        let lost = EnsureError::Lost(LossReason::DeadlinePassed);
        assert_eq!(without.checkpoint(LONG, Duration::ZERO).await, Err(lost));
        guard.jeopardy().await?;
        assert_eq!(late.checkpoint(Duration::ZERO, LONG).await, Err(lost), "it is too late");
        assert_eq!(alice.client.contact(), Contact::Disconnected, "at the deadline");
        alice.proxy.restore();
        anyhow::Ok(())
    };
    let (passed, held, outage) =
        tokio::join!(guard.checkpoint(LONG, LONG), in_time.checkpoint(enough, LONG), outage);
    outage?;
    held?;
    assert!(matches!(passed, Err(EnsureError::TooShort { .. })), "never so long: {passed:?}");
    guard.checkpoint(enough, LONG).await?;
    guard.ensure(Duration::ZERO)?;

    lose_the_way(&alice).await;
    let passed = guard.checkpoint(LONG, Duration::ZERO).await;
    assert_eq!(passed, Err(EnsureError::Lost(LossReason::DeadlinePassed)), "no grace");
    Ok(())
}

async fn nothing_is_believed_in_jeopardy(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let guard = mutex(&alice)?.acquire().await?;
    guard.allow_jeopardy()?;
    lose_the_way(&alice).await;
    let ended = guard.run(std::future::pending::<()>()).await;
    assert_eq!(ended, Err(LossReason::DeadlinePassed), "`run` ends at the deadline");
    assert_eq!(guard.state(), HolderState::Jeopardy);
    assert_eq!((guard.deadline(), guard.remaining()), (None, Duration::ZERO));
    assert!(!guard.is_held());
    assert_eq!(guard.ensure(Duration::ZERO), Err(EnsureError::Jeopardy));
    let verified = guard.verify().await;
    assert!(matches!(verified, Err(VerifyError::Jeopardy | VerifyError::Unknown(_))));
    let released = guard.release();
    alice.proxy.restore();
    let lost = ReleaseError::Lost(LossReason::DeadlinePassed);
    assert_eq!(released.await, Err(lost), "the outcome is unknown");
    queue_empties(&alice).await
}

async fn what_work_asked_for_in_an_outage_is_not_sent_without_the_lock(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = mutex(&alice)?.acquire().await?;
    let node = ZnodePath::new("/written")?;
    let outage = async {
        guard.jeopardy().await?;
        alice.proxy.restore();
        anyhow::Ok(())
    };
    lose_the_way(&alice).await;
    alice.client.status().wait_for(|status| status.contact != Contact::Connected).await?;
    let writes = guard.run_through(LONG, async {
        let written = alice.client.create(&node, "1", CreateMode::Persistent).await;
        let there = bob.client.exists(&node).await;
        // When the work continues, its requests are allowed again.
        let again = alice.client.create(&node, "2", CreateMode::Persistent).await;
        (written, there, again)
    });
    let (written, outage) = tokio::join!(writes, outage);
    outage?;
    let (written, there, again) = written?;
    let refused = written.expect_err("not sent");
    assert!(refused.is_not_held() && refused.is_retryable(), "{refused}");
    assert_eq!(there?, None);
    again?;
    Ok(())
}

async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// The work adds while other tasks of the program have a write of the same handle under way, and are
/// about to make the next.
///
/// Fails when one task writes what all add.
async fn an_add_of_work_that_stands_still_is_not_sent_by_others(backend: Backend) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let counter = Counter::new(&alice.client, "/count")?;
    counter.add(0).await?;
    let guard = mutex(&alice)?.acquire().await?;
    guard.allow_jeopardy()?;
    aged(&alice).await;
    alice.proxy.hold_replies();
    let mut first = std::pin::pin!(counter.add(10));
    assert!(poll_once(first.as_mut()).await.is_none());
    let mut second = std::pin::pin!(counter.add(100));
    assert!(poll_once(second.as_mut()).await.is_none());
    let mut work = std::pin::pin!(guard.run_through(LONG, counter.add(1)));
    assert!(poll_once(work.as_mut()).await.is_none());
    alice.proxy.refuse();
    guard.jeopardy().await?;
    bob.client.delete(guard.node(), None).await?;
    alice.proxy.restore();
    first.await?;
    second.await?;
    assert_eq!(counter.value().await?, 110, "the lock was gone when it was sent");
    assert_eq!(work.await, Err(LossReason::NodeDeleted));
    Ok(())
}

/// The first task leaves the node to the second one of its cohort, or to the next task that comes.
async fn a_node_is_not_handed_on_in_jeopardy(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let lock = Mutex::builder(&alice.client, LOCK).cohort(100, LONG).linger(LONG).build()?;
    let guard = lock.acquire().await?;
    guard.allow_jeopardy()?;
    let (token, node) = (guard.token(), guard.node().clone());
    let other = tokio::spawn(async move { lock.acquire().await });
    lose_the_way(&alice).await;
    guard.jeopardy().await?;
    drop(guard);
    tokio::task::yield_now().await;
    assert!(!other.is_finished(), "granted in jeopardy");
    alice.proxy.restore();
    let next = other.await??;
    assert!(next.token() > token);
    assert_ne!(*next.node(), node, "by a node of its own");
    next.verify().await?;
    Ok(())
}

/// The node is idle then, so it does not survive the outage.
async fn an_idle_node_is_given_up_at_the_deadline(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let (lock, node) = idle(&alice).await?;
    lose_the_way(&alice).await;
    let client = &alice.client;
    while client.lease().is_running(client.now()) {
        tokio::time::sleep(client.lease().remaining(client.now())).await;
    }
    alice.proxy.restore();
    let next = lock.acquire().await?;
    assert_ne!(*next.node(), node);
    children_reach(&backend.observer().await?, &lock_path(), 1).await
}

/// Both go in one transaction, which waits for the end of the outage.
async fn what_is_acquired_again_at_once_in_jeopardy_is_acquired_behind_others(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let lock = mutex(&alice)?;
    let guard = lock.acquire().await?;
    guard.allow_jeopardy()?;
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    lose_the_way(&alice).await;
    guard.jeopardy().await?;
    drop(guard);
    let mut again = std::pin::pin!(lock.acquire());
    assert!(futures_now(again.as_mut()).await.is_none(), "granted in jeopardy");
    alice.proxy.restore();
    let next = tokio::select! {
        biased;
        again = &mut again => panic!("{again:?}: before the waiters"),
        next = waiting => next??,
    };
    let token = next.token();
    next.release().await?;
    let again = again.await?;
    assert!(again.token() > token);
    // It was the other guard that was allowed to.
    lose_the_way(&alice).await;
    assert_eq!(again.lost().await, LossReason::DeadlinePassed);
    Ok(())
}

/// A thread cannot be stopped from outside, so it asks between its steps.
async fn a_checkpoint_of_a_thread_waits_until_the_lock_is_held_again(
    backend: Backend,
) -> Result<()> {
    let alice = short(&backend).await?;
    let servers = through_the_proxy(&backend, &alice);
    let (held, holds) = oneshot::channel();
    let (doubted, doubts) = oneshot::channel();
    let on_a_thread = move || {
        let options = Client::builder().session_timeout(TIMEOUT);
        let client = blocking::Client::connect_with(options, &servers)?;
        let guard = client.wait(Mutex::new(&client, LOCK)?.acquire())?;
        client.wait(guard.checkpoint(Duration::ZERO, LONG))?;
        while guard.remaining() > TIMEOUT - Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(10));
        }
        held.send(()).expect("the test waits for this");
        client.wait(guard.jeopardy())?;
        assert_eq!(guard.ensure(Duration::ZERO), Err(EnsureError::Jeopardy));
        doubted.send(()).expect("the test waits for this");
        let token = guard.token();
        client.wait(guard.checkpoint(Duration::ZERO, LONG))?;
        assert_eq!((guard.state(), guard.token()), (HolderState::Held, token));
        anyhow::Ok(client.wait(guard.release())?)
    };
    let thread = tokio::task::spawn_blocking(on_a_thread);
    holds.await?;
    alice.proxy.refuse();
    doubts.await?;
    alice.proxy.restore();
    thread.await?
}

/// Where a client of its own connects, to be cut off with this participant.
fn through_the_proxy(backend: &Backend, participant: &Participant) -> String {
    let target = backend.connect_string();
    let chroot = target.find('/').map_or("", |at| &target[at..]);
    format!("{}{chroot}", participant.proxy.address())
}

async fn the_next_holder_of_a_node_decides_anew(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let (lock, node) = idle(&alice).await?;
    let next = lock.acquire().await?;
    assert_eq!(*next.node(), node);
    lose_the_way(&alice).await;
    assert_eq!(next.lost().await, LossReason::DeadlinePassed);
    Ok(())
}

async fn a_lock_is_not_entered_again_in_jeopardy(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let lock = ReentrantMutex::new(&alice.client, LOCK)?;
    let owner = Owner::new("alice");
    let outer = lock.acquire(&owner).await?;
    outer.allow_jeopardy()?;
    lose_the_way(&alice).await;
    outer.jeopardy().await?;
    assert!(lock.try_acquire(&owner).await?.is_none());
    let again = lock.acquire(&owner);
    tokio::pin!(again);
    assert!(futures_now(again.as_mut()).await.is_none(), "entered in jeopardy");
    alice.proxy.restore();
    let inner = again.await?;
    assert_eq!((inner.state(), inner.token()), (HolderState::Held, outer.token()));

    lose_the_way(&alice).await;
    outer.jeopardy().await?;
    let again = lock.acquire(&owner);
    tokio::pin!(again);
    assert!(futures_now(again.as_mut()).await.is_none());
    let (bob, node) = (backend.participant().await?, outer.node().clone());
    bob.client.delete(&node, None).await?;
    alice.proxy.restore();
    let reason = LossReason::NodeDeleted;
    assert_eq!(again.await.map(drop), Err(AcquireError::OwnerLost { path: lock_path(), reason }));
    Ok(())
}

/// What a future comes to if it is polled once.
async fn futures_now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut future = future;
    std::future::poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

async fn several_locks_come_back_together(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let lock = several(&alice)?;
    let guard = lock.acquire().await?;
    let tokens: Vec<_> = guard.tokens().map(|(_, token)| token).collect();
    let polls = AtomicU32::new(0);
    let work = async {
        while polls.fetch_add(1, Ordering::SeqCst) < 1_000_000 {
            assert!(guard.is_held(), "{:?}", guard.state());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let outage = async {
        lose_the_way(&alice).await;
        guard.jeopardy().await?;
        assert_eq!(guard.ensure(Duration::ZERO), Err(EnsureError::Jeopardy));
        alice.proxy.restore();
        guard.held_again().await?;
        assert_eq!(guard.state(), HolderState::Held);
        assert!(guard.guards().iter().all(|guard| guard.state() == HolderState::Held));
        anyhow::Ok(())
    };
    tokio::select! {
        result = guard.run_through(LONG, work) => panic!("{result:?}"),
        done = outage => done?,
    }
    let again: Vec<_> = guard.tokens().map(|(_, token)| token).collect();
    assert_eq!(again, tokens);
    guard.release().await?;
    Ok(())
}

async fn one_of_several_that_is_gone_ends_all(backend: Backend) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = several(&alice)?.acquire().await?;
    guard.allow_jeopardy()?;
    lose_the_way(&alice).await;
    guard.jeopardy().await?;
    bob.client.delete(guard.guards()[1].node(), None).await?;
    alice.proxy.restore();
    assert_eq!(guard.held_again().await, Err(LossReason::NodeDeleted));
    assert_eq!(guard.state(), HolderState::Lost(LossReason::NodeDeleted));
    Ok(())
}

fn several(participant: &Participant) -> Result<MultiLock> {
    Ok(MultiLock::new(&participant.client, ["/locks/a", "/locks/b"])?)
}

async fn an_upgrade_waits_out_a_jeopardy(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let reader = RwLock::new(&alice.client, LOCK)?.upgradeable_read().await?;
    reader.allow_jeopardy()?;
    let token = reader.token();
    lose_the_way(&alice).await;
    reader.jeopardy().await?;
    let upgrade = reader.upgrade();
    tokio::pin!(upgrade);
    assert!(futures_now(upgrade.as_mut()).await.is_none());
    alice.proxy.restore();
    let writer = upgrade.await?;
    assert!(writer.token() > token);

    // The writer is allowed what the reader was.
    lose_the_way(&alice).await;
    writer.jeopardy().await?;
    alice.proxy.restore();
    writer.held_again().await?;
    Ok(())
}

async fn a_downgrade_waits_out_a_jeopardy(backend: Backend) -> Result<()> {
    let alice = short(&backend).await?;
    let writer = RwLock::new(&alice.client, LOCK)?.write().await?;
    writer.allow_jeopardy()?;
    lose_the_way(&alice).await;
    writer.jeopardy().await?;
    let downgrade = writer.downgrade();
    tokio::pin!(downgrade);
    assert!(futures_now(downgrade.as_mut()).await.is_none());
    alice.proxy.restore();
    let reader = downgrade.await?;
    lose_the_way(&alice).await;
    reader.jeopardy().await?;
    assert_eq!(reader.state(), HolderState::Jeopardy);
    Ok(())
}

/// An upgrade is undecided while it waits for the other readers: then a deadline is a loss.
async fn an_upgrade_is_lost_at_a_deadline(backend: Backend) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let other = RwLock::new(&bob.client, LOCK)?.read().await?;
    let reader = RwLock::new(&alice.client, LOCK)?.upgradeable_read().await?;
    reader.allow_jeopardy()?;
    let upgrade = crate::enqueue(&alice, 3, async { Ok(reader.upgrade().await?) }).await?;
    lose_the_way(&alice).await;
    let failed = upgrade.await?.expect_err("undecided at the deadline");
    let reason = LossReason::DeadlinePassed;
    assert_eq!(failed, AcquireError::Lost { path: lock_path(), reason });
    other.release().await?;
    Ok(())
}

async fn a_request_to_leave_that_came_in_jeopardy_is_seen(backend: Backend) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = mutex(&alice)?.acquire().await?;
    guard.allow_jeopardy()?;
    lose_the_way(&alice).await;
    guard.jeopardy().await?;
    assert_eq!(revoke(&bob.client, &lock_path()).await?, vec![guard.node().clone()]);
    alice.proxy.restore();
    guard.held_again().await?;
    // It is known by now: the server may refuse to be asked again.
    alice.proxy.refuse_next(lockkeeper_wire::OpCode::GetData, ErrorCode::ThrottledOp, 1_000);
    guard.revoke_requested().await?;
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    guard.release().await?;
    drop(waiting.await??);
    Ok(())
}

/// A quarter, a half, four fifths and twice the session timeout, each with a waiting contender.
///
/// The lengths are those of the outages, and not waits for anything.
async fn outages_of_any_length_end_as_they_must(backend: Backend) -> Result<()> {
    let outage = |tenths: u32| one_outage(&backend, tenths);
    let ends = tokio::try_join!(outage(2), outage(5), outage(8), outage(20))?;
    assert_eq!(ends, (true, true, true, false), "held to the end");
    Ok(())
}

/// Writes under a lock through an outage of so many tenths of the session timeout. Gives whether the
/// lock was held to the end.
async fn one_outage(backend: &Backend, tenths: u32) -> Result<bool> {
    let lock = format!("/locks/of-{tenths}");
    let (alice, bob) = (short(backend).await?, backend.participant().await?);
    let guard = Arc::new(Mutex::new(&alice.client, &lock)?.acquire().await?);
    let (token, fence) = (guard.token(), Arc::new(Fence::new()));
    let next = Mutex::new(&bob.client, &lock)?;
    let (first, writes) = (Arc::clone(&guard), Arc::clone(&fence));
    let waiting = tokio::spawn(async move {
        let next = next.acquire().await?;
        let seen = first.is_held();
        writes.admit(next.token()).expect("the token is larger");
        anyhow::Ok((next, seen))
    });
    children_reach(&backend.observer().await?, &ZnodePath::new(&lock)?, 2).await?;

    let work = async {
        loop {
            fence.admit(token).expect("a stale write");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outage = async {
        lose_the_way(&alice).await;
        tokio::time::sleep(TIMEOUT * tenths / 10).await;
        alice.proxy.restore();
        connects(&alice).await?;
        anyhow::Ok(guard.held_again().await)
    };
    let ended: Result<std::result::Result<(), LossReason>> = tokio::select! {
        reason = guard.run_through::<()>(LONG, work) => Ok(reason),
        ended = outage => ended,
    };
    match ended? {
        Ok(()) => {
            assert_eq!((guard.state(), guard.token()), (HolderState::Held, token));
            assert!(!waiting.is_finished(), "two hold");
            waiting.abort();
            Ok(true)
        }
        Err(reason) => {
            assert_eq!(reason, LossReason::SessionExpired, "a loss has a reason");
            let (next, seen) = waiting.await??;
            assert!(!seen && next.token() > token, "two believed to hold");
            Ok(false)
        }
    }
}

/// Every kind of lock, in each way to have it.
fn every_way() -> Vec<(Design, Share)> {
    use locks::Kind::{Delayed, Exclusive, Multi, Mutex, Reentrant, RwLock, Semaphore};
    let permits = Share::Permits { taken: 2, of: 3 };
    let semaphore = |layout| Semaphore { permits: 3, layout };
    let ways = [
        ("/ways/mutex", Mutex, Share::Alone),
        ("/ways/delayed", Delayed(Duration::from_millis(1)), Share::Alone),
        ("/ways/reentrant", Reentrant, Share::Alone),
        ("/ways/multi", Multi, Share::Alone),
        ("/ways/exclusive", Exclusive, Share::Alone),
        ("/ways/reader", RwLock, Share::Reader),
        ("/ways/upgradeable", RwLock, Share::Upgradeable),
        ("/ways/writer", RwLock, Share::Alone),
        ("/ways/semaphore", semaphore(SemaphoreProfile::Native), permits),
        ("/ways/curator", semaphore(SemaphoreProfile::Curator), permits),
        ("/ways/kazoo", semaphore(SemaphoreProfile::Kazoo), permits),
    ];
    ways.map(|(path, kind, share)| (Design { path, kind }, share)).to_vec()
}

async fn every_way_to_hold_a_lock_ends_with_its_session_or_its_node_and_not_before(
    backend: Backend,
) -> Result<()> {
    let backend = Arc::new(backend);
    let mut ways = JoinSet::new();
    for (design, share) in every_way() {
        let backend = Arc::clone(&backend);
        ways.spawn(async move {
            let (path, ends) = (design.path, two_ends(&backend, &design, share).await);
            ends.with_context(|| path)
        });
    }
    while let Some(ended) = ways.join_next().await {
        ended??;
    }
    Ok(())
}

/// Two programs hold locks in this way. Both are held again after an outage. Then one
/// loses its session, and the other its node.
async fn two_ends(backend: &Backend, design: &Design, share: Share) -> Result<()> {
    let (alice, bob) = (short(backend).await?, backend.participant().await?);
    let lock = design.open(&alice.client, Sharing::Never);
    let hold = async || {
        let held = lock.acquire(share, Wait::Forever).await?.context("it waits")?;
        // Its grace allows jeopardy.
        held.checkpoint(Duration::ZERO, LONG).await?;
        lose_the_way(&alice).await;
        held.jeopardy().await?;
        anyhow::Ok(held)
    };

    let held = hold().await?;
    let tokens = |held: &locks::Held| -> Vec<_> {
        held.guards().iter().map(|guard| guard.token()).collect()
    };
    let before = tokens(&held);
    assert_eq!((held.state(), held.deadline()), (HolderState::Jeopardy, None));
    alice.proxy.restore();
    held.checkpoint(Duration::ZERO, LONG).await?;
    assert_eq!((held.state(), tokens(&held)), (HolderState::Held, before));
    lose_the_way(&alice).await;
    held.jeopardy().await?;
    for queue in design.queues() {
        children_reach(&bob.client, &queue, 0).await?;
    }
    assert_eq!(held.state(), HolderState::Jeopardy, "no event has arrived");
    alice.proxy.restore();
    assert_eq!(held.held_again().await, Err(LossReason::SessionExpired));
    drop(held);

    connects(&alice).await?;
    let held = hold().await?;
    let last = held.guards().last().context("there is one")?;
    bob.client.delete(last.node(), None).await?;
    alice.proxy.restore();
    assert_eq!(held.held_again().await, Err(LossReason::NodeDeleted));
    Ok(())
}
