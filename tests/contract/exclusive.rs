//! A lock for one holder at a time when nothing goes wrong: order, cost, and nothing left behind.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{AcquireError, EventKind, Mutex, Semaphore, VerifyError};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::locks::{Exclusive, Held, InLine, contenders, line_up, lock_of};
use crate::{LOCK, Pair, contract, gets, is_no_auth, lock_path, shut};

// What the exclusive node costs, its herd and what its waiters leave: see `exclusive_node.rs`.
contract!(exclusive);

/// Whether so many waiters have what they need to go on waiting.
fn settled<L: Exclusive>(passed: &[Passed], waiters: usize) -> bool {
    gets(passed) == reads::<L>() * waiters
}

/// How often one reads before it waits.
fn reads<L: Exclusive>() -> usize {
    L::CONTENDED.iter().filter(|op| **op == OpCode::GetData).count()
}

async fn an_uncontended_acquire_is_one_round_trip<L: InLine>(alice: Participant) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    lock.acquire().await?.release().await?;

    alice.proxy.clear();
    alice.proxy.hold_replies();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    let all = |passed: &[Passed]| passed.len() == L::ACQUIRE.len();
    alice.proxy.passes(all).await;
    assert_eq!(alice.proxy.requests(), L::ACQUIRE, "all were sent before any reply came");
    alice.proxy.restore();
    let guard = acquiring.await??;
    assert_eq!(alice.proxy.requests(), L::ACQUIRE, "and nothing more was needed");

    alice.proxy.clear();
    guard.release().await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Delete]);
    Ok(())
}

async fn grants_follow_the_order_of_arrival_and_tokens_grow<L: InLine>(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let first = lock_of::<L>(&alice)?.acquire().await?;
    let mut waiting = Vec::new();
    for place in 2..8 {
        let participant = if place % 2 == 0 { &bob } else { &alice };
        waiting.push(line_up::<L>(participant, place).await?);
    }
    let mut token = first.token();
    first.release().await?;
    for (index, next) in waiting.into_iter().enumerate() {
        let guard = next.await??;
        assert!(guard.token() > token, "grant {index}");
        token = guard.token();
        guard.release().await?;
    }
    Ok(())
}

async fn a_release_wakes_one_waiter<L: InLine>(backend: Backend) -> Result<()> {
    const WAITERS: usize = 20;
    let (holder, waiters) = (backend.participant().await?, backend.participant().await?);
    let guard = lock_of::<L>(&holder)?.acquire().await?;
    let mut waiting = Vec::new();
    for place in 0..WAITERS {
        waiting.push(line_up::<L>(&waiters, place + 2).await?);
    }
    waiters.proxy.passes(|passed| settled::<L>(passed, WAITERS)).await;
    waiters.proxy.clear();
    guard.release().await?;
    for (index, next) in waiting.into_iter().enumerate() {
        let guard = next.await??;
        assert_eq!(waiters.proxy.events().len(), index + 1, "one event for each release");
        guard.release().await?;
    }
    assert_eq!(waiters.proxy.events().len(), WAITERS, "and none for the last one");
    Ok(())
}

async fn a_wait_costs_one_more_round_trip_and_one_event<L: InLine>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    bob.proxy.clear();
    let waiting = line_up::<L>(&bob, 2).await?;
    bob.proxy.passes(|passed| settled::<L>(passed, 1)).await;
    guard.release().await?;
    let guard = waiting.await??;
    let requests = |p: &[Passed]| p.iter().filter(|p| matches!(p, Passed::Request(_))).count();
    bob.proxy.passes(|passed| requests(passed) >= L::CONTENDED.len()).await;
    assert_eq!(bob.proxy.requests(), L::CONTENDED);
    assert_eq!(bob.proxy.events().len(), 1);
    bob.proxy.clear();
    guard.release().await?;
    // The watch on the own node is removed first, so that its deletion does not cause an event.
    assert_eq!(bob.proxy.requests(), [OpCode::RemoveWatches, OpCode::Delete]);
    assert_eq!(bob.proxy.events(), []);
    Ok(())
}

/// The last in line remembered everyone before it, and when the closest one had gone, looked for
/// each of the others, one round trip after the other: 999 of them for the thousandth.
///
/// Fails with `Standing::WaitOn` for one that was remembered: as many reads as were ahead.
async fn a_long_line_costs_one_listing_however_long_it_is<L: InLine>(
    backend: Backend,
) -> Result<()> {
    const AHEAD: usize = 10;
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let mut ahead = vec![lock_of::<L>(&alice)?.acquire().await?];
    let mut waiting = Vec::new();
    for place in 2..=AHEAD {
        waiting.push(line_up::<L>(&alice, place).await?);
    }
    let last = line_up::<L>(&bob, AHEAD + 1).await?;
    bob.proxy.passes(|passed| settled::<L>(passed, 1)).await;
    bob.proxy.clear();
    for next in waiting {
        ahead.remove(0).release().await?;
        ahead.push(next.await??);
    }
    ahead.remove(0).release().await?;
    last.await??.release().await?;
    let count = |op| bob.proxy.requests().iter().filter(|request| **request == op).count();
    assert_eq!((count(OpCode::GetChildren2), count(OpCode::GetData)), (1, 0));
    Ok(())
}

async fn try_acquire_does_not_wait_and_leaves_nothing<L: Exclusive>(
    (alice, bob): Pair,
) -> Result<()> {
    let (held, tried) = (lock_of::<L>(&alice)?, lock_of::<L>(&bob)?);
    let guard = held.try_acquire().await?.expect("the lock is free");
    assert!(tried.try_acquire().await?.is_none(), "contention is an answer and no error");
    contenders::<L>(&alice, 1).await?;
    guard.release().await?;
    let guard = tried.try_acquire().await?.expect("free again");
    guard.release().await?;
    contenders::<L>(&alice, 0).await
}

/// L3: the clean-up ran on the deadline that had already passed, and did nothing.
///
/// Fails with the deletion taken out of `Contender::drop`.
async fn l3_a_timeout_leaves_nothing<L: Exclusive>((alice, bob): Pair) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let result = lock_of::<L>(&bob)?.acquire_timeout(Duration::from_millis(50)).await;
    assert!(matches!(result, Err(AcquireError::Timeout { .. })), "{result:?}");
    contenders::<L>(&alice, 1).await?;
    guard.release().await?;
    contenders::<L>(&alice, 0).await
}

/// Symptom: a limit of nothing, such as what is left of a longer one, never took a lock, however free it was.
async fn a_limit_of_nothing_takes_a_free_lock<L: Exclusive>((alice, bob): Pair) -> Result<()> {
    // At first the lock's own node is missing, which takes more than one round trip.
    for limit in [Duration::ZERO, Duration::from_micros(1)] {
        let guard = lock_of::<L>(&alice)?.acquire_timeout(limit).await?;
        let late = lock_of::<L>(&bob)?.acquire_timeout(limit).await;
        assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
        guard.release().await?;
    }
    contenders::<L>(&alice, 0).await
}

/// L8: failed tries left their watches on the server.
///
/// Fails when a watcher that is dropped tells the server nothing (`Watches::remove`).
async fn l8_a_waiter_that_gives_up_leaves_no_watch<L: InLine>((alice, bob): Pair) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    bob.proxy.passes(|passed| settled::<L>(passed, 1)).await;
    waiting.abort();
    let removed = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::Delete));
    bob.proxy.passes(removed).await;
    guard.release().await?;
    // A request after the release: an event of it would have come before the answer.
    bob.client.sync(&lock_path()).await?;
    assert_eq!(bob.proxy.events(), []);
    Ok(())
}

/// L13: the timeout began anew at each predecessor.
///
/// Those ahead give up from behind, so that the last one has another to wait for each time, long
/// before its timeout. If that began anew, all of them would have left before it is over.
///
/// Fails with the timeout around `Contender::outwait` instead of the whole acquire.
async fn l13_a_timeout_covers_the_whole_wait<L: InLine>(backend: Backend) -> Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(1);
    const AHEAD: usize = 20;
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let mut ahead = Vec::new();
    for place in 2..AHEAD + 2 {
        ahead.push(line_up::<L>(&alice, place).await?);
    }
    let lock = lock_of::<L>(&bob)?;
    let mut waiting = tokio::spawn(async move { lock.acquire_timeout(TIMEOUT).await });
    let result = loop {
        tokio::select! {
            result = &mut waiting => break result?,
            () = tokio::time::sleep(TIMEOUT / 5) => {
                let next = ahead.pop().expect("all have left, and it still waits");
                next.abort();
            }
        }
    };
    assert!(matches!(result, Err(AcquireError::Timeout { .. })), "{result:?}");
    drop(guard);
    Ok(())
}

/// L12: one session with two handles on one path shared the ownership by accident.
async fn l12_two_handles_of_one_session_exclude_each_other<L: InLine>(
    alice: Participant,
) -> Result<()> {
    let (first, second) = (lock_of::<L>(&alice)?, lock_of::<L>(&alice)?);
    let guard = first.acquire().await?;
    assert!(second.try_acquire().await?.is_none());
    assert!(first.try_acquire().await?.is_none(), "and neither is it re-entrant");
    guard.release().await?;
    Ok(())
}

/// L20: ownership by thread broke when tasks moved between threads.
///
/// Fails when only the thread that acquired may release: the node stays.
async fn l20_a_guard_belongs_to_no_task_and_no_thread<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let released = std::thread::spawn(move || runtime.block_on(guard.release()));
    tokio::task::spawn_blocking(move || released.join()).await?.expect("no panic")?;
    contenders::<L>(&alice, 0).await
}

/// L22: dropping one clone of a lock handle released the lock for all.
///
/// Fails with a `Drop` of the handle that deletes the nodes: another contender gets the lock.
async fn l22_dropping_a_clone_of_the_lock_releases_nothing<L: Exclusive>(
    (alice, bob): Pair,
) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    let guard = lock.acquire().await?;
    drop(lock.clone());
    drop(lock);
    assert!(lock_of::<L>(&bob)?.try_acquire().await?.is_none());
    guard.verify().await?;
    Ok(())
}

/// L23: a foreign child blocked the queue or broke its order.
///
/// Fails when `WaitQueue::read` leaves out what it does not know: the lock is held.
async fn l23_a_foreign_child_is_refused_and_named<L: InLine>(alice: Participant) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    lock.acquire().await?.release().await?;
    let foreign = lock_path().child("0123456789abcdef0123456789abcdef__lock__0000000001")?;
    alice.client.create(&foreign, "", lockkeeper::CreateMode::Persistent).await?;
    let error = lock.acquire().await.expect_err("the order is unknown");
    let AcquireError::Foreign { names, .. } = &error else { panic!("{error:?}") };
    assert_eq!(names, &[foreign.name()]);
    assert!(!error.is_retryable());
    contenders::<L>(&alice, 1).await?;
    alice.client.delete(&foreign, None).await?;
    lock.acquire().await?.release().await?;
    Ok(())
}

/// A server that refused to check the node was taken for one that had confirmed it.
async fn a_check_that_is_refused_verifies_nothing<L: Exclusive>(alice: Participant) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    shut(&alice.client, guard.node()).await?;
    let verified = guard.verify().await;
    assert!(
        matches!(&verified, Err(VerifyError::Refused(error)) if is_no_auth(error)),
        "{verified:?}"
    );
    Ok(())
}

/// Symptom: the node of an idle lock below blocked the lock for all contenders until a server removed
/// it.
///
/// Fails with `idle::clear` that deletes nothing.
async fn an_idle_lock_below_is_removed<L: InLine>(alice: Participant) -> Result<()> {
    let below = Mutex::new(&alice.client, L::line().child("below")?.as_str())?;
    below.acquire().await?.release().await?;
    let counted = Semaphore::new(&alice.client, L::line().child("counted")?.as_str(), 3)?;
    counted.acquire().await?.release().await?;

    lock_of::<L>(&alice)?.acquire().await?.release().await?;
    contenders::<L>(&alice, 0).await
}

/// An acquire whose reply was lost was refused because of it.
async fn an_idle_lock_below_is_removed_after_a_lost_reply<L: InLine>(
    alice: Participant,
) -> Result<()> {
    let below = Mutex::new(&alice.client, L::line().child("below")?.as_str())?;
    below.acquire().await?.release().await?;

    alice.proxy.lose_next(OpCode::Create2, Loss::BeforeReply);
    lock_of::<L>(&alice)?.acquire().await?.release().await?;
    contenders::<L>(&alice, 0).await
}

/// A held one stays, and the error names it.
async fn a_lock_below_in_use_is_refused_and_named<L: InLine>(alice: Participant) -> Result<()> {
    let line = L::line();
    for name in ["idle", "used"] {
        let below = Mutex::new(&alice.client, line.child(name)?.as_str())?;
        below.acquire().await?.release().await?;
    }
    let used = Mutex::new(&alice.client, line.child("used")?.as_str())?.acquire().await?;
    let error = lock_of::<L>(&alice)?.acquire().await.expect_err("the order is unknown");
    assert!(matches!(error, AcquireError::Foreign { .. }), "{error:?}");
    used.verify().await?;
    used.release().await?;
    lock_of::<L>(&alice)?.acquire().await?.release().await?;
    Ok(())
}

/// A node like a contender's that no session's end deletes, as one that was created by hand, kept all
/// others waiting for good and without a word.
async fn a_contender_that_is_not_ephemeral_is_refused_and_named<L: InLine>(
    alice: Participant,
) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    let guard = lock.acquire().await?;
    let left = guard.node().clone();
    guard.release().await?;
    alice.client.create(&left, "", lockkeeper::CreateMode::Persistent).await?;

    assert!(lock.try_acquire().await?.is_none(), "it is taken");
    let refused = tokio::time::timeout(Duration::from_secs(30), lock.acquire()).await?;
    let error = refused.expect_err("a node is ahead");
    let AcquireError::NotEphemeral { node, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*node, left);
    assert!(!error.is_retryable());

    contenders::<L>(&alice, 1).await?;
    alice.client.delete(&left, None).await?;
    lock.acquire().await?.release().await?;
    Ok(())
}

/// L24: locks that are never used again left millions of empty nodes.
///
/// Fails with plain parents in `Profile::parents`.
async fn l24_an_empty_lock_is_a_container<L: Exclusive>(alice: Participant) -> Result<()> {
    lock_of::<L>(&alice)?.acquire().await?.release().await?;
    let creates = alice.proxy.requests();
    let creates: Vec<_> = creates.iter().filter(|op| **op != OpCode::Create2).collect();
    assert!(creates.contains(&&OpCode::CreateContainer), "which servers reap: {creates:?}");
    Ok(())
}

/// L25: the release of one thread removed the watches of all others of the process.
///
/// Fails when `Watches::remove` ends the watch with any of its watchers: the other one is not
/// told.
async fn l25_a_waiter_that_gives_up_takes_no_watch_from_others<L: InLine>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let (_, mut other) = bob.client.data_watched(guard.node()).await?;
    // Which also reads the node once.
    let waiting = line_up::<L>(&bob, 2).await?;
    bob.proxy.passes(|passed| gets(passed) == reads::<L>() + 1).await;
    waiting.abort();
    bob.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::Delete))).await;
    guard.release().await?;
    assert_eq!(other.changed().await?.kind, EventKind::NodeDeleted);
    Ok(())
}

async fn a_guard_dropped_without_a_runtime_releases<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let dropped = std::thread::spawn(move || drop(guard));
    tokio::task::spawn_blocking(move || dropped.join()).await?.expect("no panic");
    contenders::<L>(&alice, 0).await
}

async fn closing_the_client_waits_for_dropped_guards<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let observer = alice.observer().await?;
    drop(lock_of::<L>(&alice)?.acquire().await?);
    alice.client.close().await;
    observer.sync(&lock_path()).await?;
    let (names, _) = observer.children(&L::line()).await?;
    assert_eq!(names, [""; 0]);
    let error = L::new(&alice.client, LOCK)?.acquire().await.expect_err("closed");
    assert!(matches!(error, AcquireError::ClientClosed { .. }), "{error:?}");
    Ok(())
}

async fn a_transaction_is_applied_only_while_held<L: Exclusive>((alice, bob): Pair) -> Result<()> {
    let account = lockkeeper::ZnodePath::new("/account")?;
    alice.client.create(&account, "0", lockkeeper::CreateMode::Persistent).await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    guard.transaction().set_data(&account, "1", None).commit().await?;
    bob.client.delete(guard.node(), None).await?;
    let result = guard.transaction().set_data(&account, "2", None).commit().await;
    assert!(result.is_err(), "{result:?}");
    let (data, _) = alice.client.data(&account).await?;
    assert_eq!(&data[..], b"1");
    Ok(())
}
