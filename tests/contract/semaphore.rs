//! The semaphore: permits, their order, their number, and what becomes of them.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{AcquireError, BuildError, CreateMode, ErrorCode, Semaphore, SetPermitsError};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;

use crate::rw_lock::replies;
use crate::{LOCK, Pair, contract, enqueue, lock_path, queue_empties};

contract!(semaphore);

fn semaphore(participant: &Participant, permits: u32) -> Result<Semaphore> {
    Ok(Semaphore::new(&participant.client, LOCK, permits)?)
}

async fn so_many_hold_and_no_more((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (semaphore(&alice, 3)?, semaphore(&bob, 3)?);
    let (one, two) = (ours.acquire().await?, theirs.acquire_many(2).await?);
    assert_eq!((one.permits(), two.permits()), (1, 2));
    assert!(ours.try_acquire().await?.is_none() && theirs.try_acquire().await?.is_none());
    two.release().await?;
    assert!(ours.try_acquire_many(3).await?.is_none(), "two are free");
    let two = ours.try_acquire_many(2).await?.expect("two are free");
    drop((one, two));
    queue_empties(&alice).await
}

async fn several_permits_are_one_round_trip_too(alice: Participant) -> Result<()> {
    let semaphore = semaphore(&alice, 5)?;
    semaphore.acquire().await?.release().await?;
    alice.proxy.clear();
    let (two, three) = (semaphore.acquire_many(2).await?, semaphore.acquire_many(3).await?);
    let once = [OpCode::GetData, OpCode::Create2, OpCode::GetChildren2];
    assert_eq!(alice.proxy.requests(), [once, once].concat());
    three.release().await?;
    two.release().await?;
    Ok(())
}

async fn grants_follow_the_order_of_arrival_also_of_the_greedy((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (semaphore(&alice, 3)?, semaphore(&bob, 3)?);
    let (one, two) = (ours.acquire().await?, ours.acquire().await?);
    let (wants_two, wants_one) = (theirs.clone(), theirs.clone());
    let greedy = enqueue(&alice, 3, async move { wants_two.acquire_many(2).await }).await?;
    let modest = enqueue(&alice, 4, async move { wants_one.acquire().await }).await?;
    assert!(theirs.try_acquire().await?.is_none(), "one is free, but others came before");
    assert!(!greedy.is_finished() && !modest.is_finished());
    let tokens = [one.token(), two.token()];
    one.release().await?;
    let greedy = greedy.await??;
    assert!(!modest.is_finished());
    two.release().await?;
    let modest = modest.await??;
    assert!(tokens.iter().all(|token| *token < greedy.token()) && greedy.token() < modest.token());
    Ok(())
}

/// Fails with only one node watched, as Curator's mutex does with `maxLeases` above one:
/// it hangs when the other holder leaves first.
async fn whichever_holder_leaves_the_first_in_line_gets_in(backend: Backend) -> Result<()> {
    for leaves in 0..3 {
        let (alice, bob) = (backend.participant().await?, backend.participant().await?);
        let ours = semaphore(&alice, 3)?;
        let mut holders = vec![ours.acquire().await?, ours.acquire().await?, ours.acquire().await?];
        let theirs = semaphore(&bob, 3)?;
        let next = enqueue(&alice, 4, async move { theirs.acquire().await }).await?;
        bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 6).await;
        holders.remove(leaves).release().await?;
        next.await??.release().await?;
        drop(holders);
        queue_empties(&alice).await?;
    }
    Ok(())
}

async fn releases_in_order_of_arrival_wake_one_each(backend: Backend) -> Result<()> {
    const WAITERS: usize = 10;
    let mut participants = Vec::new();
    let (alice, mut waiting) = (backend.participant().await?, Vec::new());
    let ours = semaphore(&alice, 2)?;
    let mut holders = vec![ours.acquire().await?, ours.acquire().await?];
    for place in 0..WAITERS {
        // Separate sessions, because a session gets one event, however many of its tasks watch.
        let bob = backend.participant().await?;
        let theirs = semaphore(&bob, 2)?;
        let acquire = async move { theirs.acquire().await };
        waiting.push(enqueue(&alice, place + 3, acquire).await?);
        bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 5).await;
        participants.push(bob);
    }
    for (index, next) in waiting.into_iter().enumerate() {
        holders.remove(0).release().await?;
        holders.push(next.await??);
        // It has given up its watches on the number and on the other holder.
        let removed = |passed: &[Passed]| replies(passed, OpCode::RemoveWatches) == 2;
        participants[index].proxy.passes(removed).await;
        let events: usize = participants.iter().map(|bob| bob.proxy.events().len()).sum();
        assert_eq!(events, index + 1, "one event for each release");
    }
    Ok(())
}

/// L18: changing the number of permits did not wake the waiters.
///
/// Fails with `Permits::changed` pending for ever: it hangs.
async fn l18_more_permits_let_in_those_who_wait((alice, bob): Pair) -> Result<()> {
    let ours = semaphore(&alice, 1)?;
    let first = ours.acquire().await?;
    let mut waiting = Vec::new();
    for place in 2..6 {
        let theirs = semaphore(&bob, 1)?;
        waiting.push(enqueue(&alice, place, async move { theirs.acquire().await }).await?);
    }
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 4 * 4).await;
    alice.proxy.clear();
    ours.set_permits(3).await?;
    assert_eq!(alice.proxy.requests(), [OpCode::SetData]);
    let mut waiting = waiting.into_iter();
    let mut holders = vec![first];
    for next in waiting.by_ref().take(2) {
        holders.push(next.await??);
    }
    let rest: Vec<_> = waiting.collect();
    bob.client.sync(&lock_path()).await?;
    assert!(rest.iter().all(|next| !next.is_finished()), "three, and no more");
    ours.set_permits(4).await?;
    ours.set_permits(5).await?;
    for next in rest {
        holders.push(next.await??);
    }
    assert_eq!(semaphore(&bob, 1)?.permits().await?, 5);
    Ok(())
}

/// L5: a waiter counted as a holder. More permits let it in by the old listing, which still contained its
/// node.
///
/// Fails without the listing after a change of the number (`Contenders::hold`): it is granted.
async fn l5_more_permits_do_not_let_in_a_waiter_whose_node_is_gone(
    (alice, bob): Pair,
) -> Result<()> {
    let ours = semaphore(&alice, 1)?;
    let first = ours.acquire().await?;
    let theirs = semaphore(&bob, 1)?;
    let second = enqueue(&alice, 2, async move { theirs.acquire().await }).await?;
    let (before, _) = alice.client.children(&lock_path()).await?;
    let theirs = semaphore(&bob, 1)?;
    let third = enqueue(&alice, 3, async move { theirs.acquire().await }).await?;
    let (names, _) = alice.client.children(&lock_path()).await?;
    let last = names.iter().find(|name| !before.contains(name)).expect("the third");
    bob.proxy.passes(|passed| replies(passed, OpCode::GetChildren2) == 2).await;
    alice.client.delete(&lock_path().child(last)?, None).await?;
    ours.set_permits(3).await?;
    let error = third.await?.expect_err("its node is gone");
    assert!(matches!(error, AcquireError::NodeDeleted { .. }), "{error:?}");
    second.await??.verify().await?;
    first.verify().await?;
    Ok(())
}

async fn fewer_permits_take_none_away((alice, bob): Pair) -> Result<()> {
    let ours = semaphore(&alice, 3)?;
    let mut holders = vec![ours.acquire().await?, ours.acquire().await?, ours.acquire().await?];
    let theirs = semaphore(&bob, 3)?;
    let next = enqueue(&alice, 4, async move { theirs.acquire().await }).await?;
    ours.set_permits(1).await?;
    while let Some(holder) = holders.pop() {
        holder.verify().await?;
        bob.client.sync(&lock_path()).await?;
        assert!(!next.is_finished(), "{} hold", holders.len() + 1);
        holder.release().await?;
    }
    next.await??.release().await?;
    queue_empties(&alice).await
}

async fn permits_come_back_when_their_holder_dies((alice, bob): Pair) -> Result<()> {
    let guard = semaphore(&alice, 2)?.acquire_many(2).await?;
    let theirs = semaphore(&bob, 2)?;
    let next = enqueue(&alice, 2, async move { theirs.acquire_many(2).await }).await?;
    alice.proxy.expire_session().await?;
    let next = next.await??;
    guard.lost().await;
    assert!(next.token() > guard.token());
    Ok(())
}

/// Symptom: a program that was made with another number used the first one's, and only its log said so.
async fn another_number_than_the_first_is_refused_or_accepted((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (semaphore(&alice, 2)?, semaphore(&bob, 7)?);
    let guard = ours.acquire().await?;
    assert_eq!((ours.permits().await?, theirs.permits().await?), (2, 2));
    let refused = AcquireError::OtherPermits { path: lock_path(), permits: 7, stored: 2 };
    for _ in 0..2 {
        assert_eq!(theirs.try_acquire().await.err(), Some(refused.clone()));
        assert_eq!(theirs.acquire().await.err(), Some(refused.clone()));
    }

    let accepting = Semaphore::builder(&bob.client, LOCK, 7).accept_other_permits().build()?;
    assert!(accepting.try_acquire_many(2).await?.is_none());
    accepting.try_acquire().await?.expect("one is free").release().await?;
    guard.release().await?;
    queue_empties(&alice).await?;
    let (data, _) = alice.client.data(&lock_path()).await?;
    assert_eq!(&data[..], b"2");
    Ok(())
}

async fn a_number_that_is_changed_later_is_followed((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (semaphore(&alice, 2)?, semaphore(&bob, 2)?);
    theirs.acquire().await?.release().await?;
    ours.set_permits(1).await?;
    let guard = theirs.acquire().await?;
    assert!(ours.try_acquire().await?.is_none(), "there is one");
    guard.release().await?;
    let late = semaphore(&bob, 2)?.acquire().await.err();
    let refused = AcquireError::OtherPermits { path: lock_path(), permits: 2, stored: 1 };
    assert_eq!(late, Some(refused));
    Ok(())
}

/// Somebody deleted the semaphore's node just then, and the acquire failed.
async fn a_number_whose_node_is_gone_as_it_is_written_is_looked_at_again(
    alice: Participant,
) -> Result<()> {
    alice.proxy.refuse_next(OpCode::SetData, ErrorCode::NoNode, 1);
    let guard = semaphore(&alice, 3)?.acquire_many(2).await?;
    guard.release().await?;
    Ok(())
}

async fn what_can_never_be_had_is_refused((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (semaphore(&alice, 2)?, semaphore(&bob, 2)?);
    let error = ours.acquire_many(3).await.expect_err("there are two");
    assert!(matches!(error, AcquireError::TooMany { wanted: 3, permits: 2, .. }), "{error:?}");
    assert!(!error.is_retryable());

    let guard = ours.acquire().await?;
    let next = enqueue(&alice, 2, async move { theirs.acquire_many(2).await }).await?;
    ours.set_permits(1).await?;
    let error = next.await?.expect_err("there is one");
    assert!(matches!(error, AcquireError::TooMany { wanted: 2, permits: 1, .. }), "{error:?}");
    guard.release().await?;
    queue_empties(&alice).await
}

/// 0 counted as 1.
async fn no_permits_at_all_are_refused(alice: Participant) -> Result<()> {
    let error = Semaphore::new(&alice.client, LOCK, 0).expect_err("no permit could be acquired");
    assert_eq!(error, BuildError::NoPermits(lock_path()));
    assert!(error.to_string().contains("0 permits"), "{error}");

    let ours = semaphore(&alice, 2)?;
    let none = AcquireError::NoPermits { path: lock_path() };
    assert_eq!(ours.acquire_many(0).await.expect_err("none"), none);
    assert_eq!(ours.try_acquire_many(0).await.expect_err("none"), none);
    let patience = Duration::from_secs(60);
    assert_eq!(ours.acquire_many_timeout(0, patience).await.expect_err("none"), none);
    assert!(!none.is_retryable() && none.to_string().contains("at least 1"), "{none}");

    let error = ours.set_permits(0).await.expect_err("no permit could be acquired");
    assert_eq!(error, SetPermitsError::Zero { path: lock_path() });
    assert!(error.to_string().contains("cannot be 0"), "{error}");
    assert_eq!(alice.proxy.requests(), [], "no server was asked");
    assert_eq!(ours.permits().await?, 2);
    Ok(())
}

async fn what_is_no_number_is_refused(alice: Participant) -> Result<()> {
    alice.client.ensure(&lock_path(), CreateMode::Persistent).await?;
    alice.client.set_data(&lock_path(), "ten", None).await?;
    let error = semaphore(&alice, 2)?.acquire().await.expect_err("the data is not a number");
    assert!(matches!(&error, AcquireError::BadPermits { found, .. } if found == "ten"), "{error}");
    queue_empties(&alice).await?;
    alice.client.set_data(&lock_path(), "10", None).await?;
    let accepting = Semaphore::builder(&alice.client, LOCK, 2).accept_other_permits().build()?;
    assert_eq!(accepting.acquire_many(10).await?.permits(), 10);
    Ok(())
}

async fn timeouts_and_tries_leave_nothing((alice, bob): Pair) -> Result<()> {
    let guard = semaphore(&alice, 2)?.acquire().await?;
    let theirs = semaphore(&bob, 2)?;
    let late = theirs.acquire_many_timeout(2, Duration::from_millis(50)).await;
    assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
    assert!(theirs.try_acquire_many(2).await?.is_none());
    children_reach(&alice.observer().await?, &lock_path(), 1).await?;
    guard.release().await?;
    queue_empties(&alice).await
}
