//! The pause between a holder that vanished and the next one.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::inspect::LockQueue;
use lockkeeper::{AcquireError, LossReason, MultiLock, Mutex, ZnodePath};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::{LOCK, Pair, contract, lock_path, queue_empties, queue_up};

contract!(lock_delay);

/// Long enough to tell from a busy machine's pauses.
const DELAY: Duration = Duration::from_millis(1500);

fn delayed(participant: &Participant, delay: Duration) -> Result<Mutex> {
    Ok(Mutex::builder(&participant.client, LOCK).lock_delay(delay).build()?)
}

async fn marks(participant: &Participant, expected: bool) -> Result<()> {
    let mark = ZnodePath::new(&format!("{LOCK}-__delay__"))?;
    let observer = participant.observer().await?;
    observer.sync(&mark).await?;
    assert_eq!(observer.exists(&mark).await?.is_some(), expected);
    Ok(())
}

/// Acquires, and loses its session.
async fn vanishes(participant: &Participant, delay: Duration) -> Result<()> {
    let guard = delayed(participant, delay)?.acquire().await?;
    participant.proxy.expire_session().await?;
    guard.lost().await;
    Ok(())
}

/// Acquires, and returns how long that took.
async fn timed(participant: &Participant, lock: &Mutex) -> Result<Duration> {
    let start = participant.client.now();
    lock.acquire().await?.release().await?;
    Ok(participant.client.now().since(start))
}

async fn it_costs_one_more_round_trip_at_the_grant_and_none_at_the_release(
    alice: Participant,
) -> Result<()> {
    let lock = delayed(&alice, DELAY)?;
    lock.acquire().await?.release().await?;
    alice.proxy.clear();
    let guard = lock.acquire().await?;
    use OpCode::{Create2, GetChildren2, Multi};
    assert_eq!(alice.proxy.requests(), [Create2, GetChildren2, Multi]);
    alice.proxy.clear();
    guard.release().await?;
    assert_eq!(alice.proxy.requests(), [Multi]);
    marks(&alice, false).await
}

async fn a_lock_that_was_given_back_is_free_at_once((alice, bob): Pair) -> Result<()> {
    let (first, second) = (delayed(&alice, DELAY * 100)?, delayed(&bob, DELAY * 100)?);
    drop(first.acquire().await?);
    second.acquire().await?.release().await?;
    let guard = first.acquire().await?;
    let waiting = queue_up(&alice, &second, 2).await?;
    marks(&alice, true).await?;
    guard.release().await?;
    waiting.await??.release().await?;
    let guard = first.acquire().await?;
    alice.client.close().await;
    drop(guard);
    Ok(())
}

/// L27: a holder that is paused, and whose session ends, may write on. The next one lets some
/// time pass first.
///
/// Fails with the wait left out of `LockDelay::grant`.
async fn l27_a_holder_that_vanished_is_waited_for((alice, bob): Pair) -> Result<()> {
    let guard = delayed(&alice, DELAY)?.acquire().await?;
    alice.proxy.expire_session().await?;
    assert_eq!(guard.lost().await, LossReason::SessionExpired);
    assert!(guard.release().await.is_err(), "that was no release");
    marks(&alice, true).await?;
    let lock = delayed(&bob, DELAY)?;
    let took = timed(&bob, &lock).await?;
    assert!(took >= DELAY, "after {took:?}");
    marks(&alice, false).await?;
    bob.proxy.clear();
    lock.acquire().await?.release().await?;
    use OpCode::{Create2, GetChildren2, Multi};
    let once = [Create2, GetChildren2, Multi, Multi];
    assert_eq!(bob.proxy.requests(), once, "it is waited for once");
    Ok(())
}

async fn a_holder_that_was_forced_out_is_waited_for((alice, bob): Pair) -> Result<()> {
    let guard = delayed(&alice, DELAY)?.acquire().await?;
    bob.client.delete(guard.node(), None).await?;
    drop(guard);
    let took = timed(&bob, &delayed(&bob, DELAY)?).await?;
    assert!(took >= DELAY, "after {took:?}");
    Ok(())
}

async fn the_delay_is_that_of_the_one_who_vanished((alice, bob): Pair) -> Result<()> {
    vanishes(&alice, DELAY).await?;
    let took = timed(&bob, &delayed(&bob, DELAY * 100)?).await?;
    assert!(took >= DELAY && took < DELAY * 100, "after {took:?}");
    Ok(())
}

async fn try_acquire_does_not_wait_for_it((alice, bob): Pair) -> Result<()> {
    vanishes(&alice, DELAY).await?;
    assert!(delayed(&bob, DELAY)?.try_acquire().await?.is_none());
    queue_empties(&alice).await?;
    marks(&alice, true).await
}

/// Symptom: a program that only tries never got the lock, because each try restarted the delay. The test hangs then.
async fn whoever_only_tries_gets_it_when_the_delay_is_over((alice, bob): Pair) -> Result<()> {
    vanishes(&alice, DELAY).await?;
    let (lock, started) = (delayed(&bob, DELAY)?, bob.client.now());
    let granted = loop {
        match lock.try_acquire().await? {
            Some(granted) => break granted,
            None => tokio::time::sleep(DELAY / 10).await,
        }
    };
    let took = bob.client.now().since(started);
    assert!(took >= DELAY, "after {took:?}");
    granted.release().await?;
    Ok(())
}

async fn giving_up_during_the_delay_leaves_the_mark((alice, bob): Pair) -> Result<()> {
    vanishes(&alice, DELAY).await?;
    let (lock, started) = (delayed(&bob, DELAY)?, bob.client.now());
    let result = lock.acquire_timeout(DELAY / 4).await;
    assert!(matches!(result, Err(AcquireError::Timeout { .. })), "{result:?}");
    queue_empties(&alice).await?;
    marks(&alice, true).await?;
    timed(&bob, &lock).await?;
    let took = bob.client.now().since(started);
    assert!(took >= DELAY, "the delay counts from when the mark was first seen, not {took:?}");
    Ok(())
}

/// Fails when a mark is not compared with the own node: it waits for itself.
async fn lost_answers_are_no_holders_that_vanished(alice: Participant) -> Result<()> {
    let lock = delayed(&alice, DELAY * 100)?;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        alice.proxy.lose_next(OpCode::Multi, loss);
        let guard = lock.acquire().await?;
        marks(&alice, true).await?;
        alice.proxy.lose_next(OpCode::Multi, loss);
        guard.release().await?;
        marks(&alice, false).await?;
    }
    Ok(())
}

/// L7, for the mark, whose name is used again.
///
/// Fails if the pair is not deleted together: the next holder does not have a mark.
async fn l7_a_release_that_comes_late_leaves_the_mark_of_the_next(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = delayed(&alice, DELAY)?.acquire().await?;
    let waiting = queue_up(&alice, &delayed(&bob, DELAY)?, 2).await?;
    alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
    let releasing = tokio::spawn(guard.release());
    let next = waiting.await??;
    releasing.await??;
    marks(&alice, true).await?;
    next.release().await?;
    marks(&alice, false).await
}

/// Symptom: a contender without a delay of its own had the lock at once, whatever others had asked for.
async fn who_keeps_none_can_obey_those_of_others((alice, bob): Pair) -> Result<()> {
    let lock = Mutex::builder(&bob.client, LOCK).obey_lock_delay().build()?;
    let guard = delayed(&alice, DELAY)?.acquire().await?;
    let waiting = queue_up(&alice, &lock, 2).await?;
    let start = bob.client.now();
    alice.proxy.expire_session().await?;
    guard.lost().await;
    let guard = waiting.await??;
    let took = bob.client.now().since(start);
    assert!(took >= DELAY, "after {took:?}");
    marks(&alice, false).await?;
    guard.release().await?;

    vanishes(&alice, DELAY * 100).await?;
    assert!(lock.try_acquire().await?.is_none(), "it is not over");
    assert!(lock.lock_delay_left().is_some_and(|left| left > DELAY));
    let late = lock.acquire_timeout(DELAY / 4).await;
    assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
    queue_empties(&alice).await?;
    marks(&alice, true).await
}

async fn who_obeys_costs_one_more_round_trip_at_the_grant(alice: Participant) -> Result<()> {
    let lock = Mutex::builder(&alice.client, LOCK).obey_lock_delay().build()?;
    lock.acquire().await?.release().await?;
    alice.proxy.clear();
    let guard = lock.acquire().await?;
    use OpCode::{Create2, Delete, GetChildren2, GetData};
    assert_eq!(alice.proxy.requests(), [Create2, GetChildren2, GetData]);
    alice.proxy.clear();
    guard.release().await?;
    assert_eq!(alice.proxy.requests(), [Delete]);
    marks(&alice, false).await
}

/// Fails with grants that look for no delay.
async fn several_locks_obey_the_delay_of_each((alice, bob): Pair) -> Result<()> {
    let several = MultiLock::builder(&bob.client, ["/locks/a", LOCK]).obey_lock_delay().build()?;
    vanishes(&alice, DELAY).await?;
    let start = bob.client.now();
    let all = several.acquire().await?;
    let took = bob.client.now().since(start);
    assert!(took >= DELAY, "after {took:?}");
    marks(&alice, false).await?;
    all.release().await?;

    vanishes(&alice, DELAY * 100).await?;
    assert!(several.try_acquire().await?.is_none(), "it is not over");
    assert!(several.lock_delay_left().is_some_and(|left| left > DELAY));
    queue_empties(&alice).await?;
    marks(&alice, true).await
}

/// Symptom: the end of the session, of the client or of the node was reported only when the delay was over, and
/// the first of these was reported as the last.
async fn what_ends_a_wait_ends_a_delay_too(backend: Backend) -> Result<()> {
    const LONG: Duration = Duration::from_secs(600);
    for end in 0..3 {
        let (alice, bob) = (backend.participant().await?, backend.participant().await?);
        let guard = delayed(&alice, LONG)?.acquire().await?;
        let waiting = queue_up(&alice, &delayed(&bob, LONG)?, 2).await?;
        let queue = LockQueue::inspect(&alice.client, &lock_path()).await?.expect("two are in it");
        let node = queue.waiters().next().expect("one waits").node.clone();
        bob.proxy.clear();
        alice.client.delete(guard.node(), None).await?;
        // It has read the mark.
        bob.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;

        match end {
            0 => bob.proxy.expire_session().await?,
            1 => bob.client.close().await,
            _ => alice.client.delete(&node, None).await?,
        }
        let ended = tokio::time::timeout(Duration::from_secs(20), waiting).await??.map(drop);
        let is_told = match end {
            0 => matches!(ended, Err(AcquireError::SessionExpired { .. })),
            1 => matches!(ended, Err(AcquireError::ClientClosed { .. })),
            _ => ended == Err(AcquireError::NodeDeleted { node }),
        };
        assert!(is_told, "{end}: {ended:?}");
        queue_empties(&alice).await?;

        let mark = ZnodePath::new(&format!("{LOCK}-__delay__"))?;
        alice.client.delete(&mark, None).await?;
    }
    Ok(())
}
