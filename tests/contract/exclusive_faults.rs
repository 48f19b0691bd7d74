//! A lock for one holder at a time when connections and messages are lost.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    AcquireError, Client, Contact, CreateMode, HolderState, LossReason, Mutex, ReleaseError,
    SessionId,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::locks::{Exclusive, Held, InLine, contenders, line_up, lock_of};
use crate::rw_lock::replies;
use crate::{Observed, Pair, contract, gets, lock_path, next_session};

contract!(exclusive_faults);

/// L1: a create failed half-way and its node stayed: a dead lock.
async fn l1_a_create_lost_on_its_way_leaves_one_node<L: Exclusive>(backend: Backend) -> Result<()> {
    lost_create::<L>(&backend, Loss::BeforeRequest).await
}

/// L1, with the create done and only the reply lost: the client would wait behind itself.
///
/// Fails with `Contender::recover` making a new attempt at once: it waits for its first node.
async fn l1_a_create_whose_reply_is_lost_leaves_one_node<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    lost_create::<L>(&backend, Loss::BeforeReply).await
}

async fn lost_create<L: Exclusive>(backend: &Backend, loss: Loss) -> Result<()> {
    let alice = backend.participant().await?;
    let lock = lock_of::<L>(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.lose_next(OpCode::Create2, loss);
    let guard = lock.acquire().await?;
    contenders::<L>(&alice, 1).await?;
    let observer = backend.observer().await?;
    assert!(observer.exists(guard.node()).await?.is_some());
    guard.release().await?;
    contenders::<L>(&alice, 0).await
}

/// L2: an acquire that was cancelled during its create left an orphan.
///
/// Fails, like the two tests that follow, with the deletion taken out of `Contender::drop`.
async fn l2_an_acquire_cancelled_during_its_create_leaves_nothing<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    contenders::<L>(&alice, 1).await?;
    acquiring.abort();
    assert!(acquiring.await.is_err(), "cancelled");
    alice.proxy.restore();
    contenders::<L>(&alice, 0).await
}

/// L2, with the connection lost before the reply too.
async fn l2_an_acquire_cancelled_after_a_lost_reply_leaves_nothing<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.hold_replies();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    contenders::<L>(&alice, 1).await?;
    alice.proxy.refuse();
    acquiring.abort();
    assert!(acquiring.await.is_err(), "cancelled");
    alice.proxy.restore();
    contenders::<L>(&alice, 0).await
}

async fn l2_an_acquire_cancelled_while_waiting_leaves_nothing<L: Exclusive>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    waiting.abort();
    contenders::<L>(&alice, 1).await?;
    guard.verify().await?;
    Ok(())
}

/// L4: after a reconnect the old session's node was adopted, and then vanished while "held". Here
/// a node of its name is still there when the new session looks.
///
/// Fails with the comparison of sessions taken out of `Contender::recover`, or of
/// `CreateAttempt::find`: the acquire fails, as the grant compares them once more.
async fn l4_a_node_of_an_expired_session_is_not_adopted<L: Exclusive>(
    (alice, observer): Observed,
) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.hold_replies();
    let acquiring = lock.acquire();
    tokio::pin!(acquiring);
    tokio::select! {
        result = &mut acquiring => panic!("without any reply: {result:?}"),
        entered = contenders::<L>(&alice, 1) => entered?,
    }
    let (names, _) = observer.children(&L::line()).await?;
    let left = L::line().child(&names[0])?;
    let (data, _) = observer.data(&left).await?;
    let old = alice.client.session_id();
    alice.proxy.refuse();
    alice.proxy.expire_session().await?;
    observer.create(&left, data, CreateMode::Ephemeral).await?;
    alice.proxy.clear();
    alice.proxy.restore();
    // Only now does the acquire go on.
    next_session(&alice, old).await?;
    if !L::FAIR {
        let looks = |passed: &[Passed]| replies(passed, OpCode::GetData) > 0;
        tokio::select! {
            result = &mut acquiring => panic!("another one has it: {result:?}"),
            () = alice.proxy.passes(looks) => observer.delete(&left, None).await?,
        }
    }
    let guard = acquiring.await?;
    let stat = observer.exists(guard.node()).await?.expect("held");
    assert_eq!(stat.ephemeral_owner, guard.session());
    assert!(guard.session() != old && guard.session() != SessionId::NONE);
    guard.verify().await?;
    Ok(())
}

/// L4, with the end of the session after the node was found: what is left of an idle lock has the line
/// listed again. Symptom: the acquire failed with the end of a session that it had no place in yet.
///
/// Fails when `Contender::recover` takes the queue as it is, without `Contender::entered`.
async fn l4_a_session_that_ends_on_the_way_back_into_the_line_is_noticed<L: InLine>(
    alice: Participant,
) -> Result<()> {
    let below = Mutex::new(&alice.client, L::line().child("below")?.as_str())?;
    below.acquire().await?.release().await?;
    let lock = lock_of::<L>(&alice)?;
    alice.proxy.clear();
    alice.proxy.lose_next(OpCode::Create2, Loss::BeforeReply);
    let acquiring = lock.acquire();
    tokio::pin!(acquiring);
    let lists_again = |passed: &[Passed]| {
        let found = passed.iter().position(|passed| *passed == Passed::Reply(OpCode::Exists));
        found.is_some_and(|at| passed[at..].contains(&Passed::Request(OpCode::GetChildren2)))
    };
    tokio::select! {
        biased;
        () = alice.proxy.passes(lists_again) => {}
        result = &mut acquiring => panic!("it has not listed again: {result:?}"),
    }

    let old = alice.client.session_id();
    alice.proxy.expire_session().await?;
    next_session(&alice, old).await?;
    let guard = acquiring.await?;
    assert!(guard.session() != old && guard.session() == alice.client.session_id());
    guard.verify().await?;
    contenders::<L>(&alice, 1).await
}

/// L5: a waiter's own session expired, and it kept waiting, or counted as a holder.
///
/// Fails when lost watches are left out of `Contender::outwait`: it waits for ever.
async fn l5_a_waiter_whose_session_expires_gets_an_error<L: InLine>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    // A contender whose create is still unanswered would just enter again.
    bob.proxy.passes(|passed| replies(passed, OpCode::GetChildren2) > 0).await;
    bob.proxy.expire_session().await?;
    let error = waiting.await?.expect_err("its place in the line is gone");
    assert!(matches!(error, AcquireError::SessionExpired { .. }), "{error:?}");
    assert!(error.is_retryable());
    guard.release().await?;
    lock_of::<L>(&bob)?.acquire().await?.release().await?;
    Ok(())
}

/// L5, with the end of the session before the waiter has its watches: its node is missing then, but
/// no other client has deleted it.
///
/// Fails with `Contender::deleted` that does not compare the sessions.
async fn l5_a_waiter_whose_session_expires_before_it_watches_gets_the_same_error<L: InLine>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let lock = lock_of::<L>(&bob)?;
    let acquiring = lock.acquire();
    tokio::pin!(acquiring);
    let entered = |passed: &[Passed]| replies(passed, OpCode::GetChildren2) == 1;
    tokio::select! {
        biased;
        () = bob.proxy.passes(entered) => {}
        result = &mut acquiring => panic!("another one has it: {result:?}"),
    }
    let old = bob.client.session_id();
    bob.proxy.expire_session().await?;
    next_session(&bob, old).await?;
    let error = acquiring.await.expect_err("its place in the line is gone");
    assert!(matches!(error, AcquireError::SessionExpired { .. }), "{error:?}");
    guard.release().await?;
    contenders::<L>(&alice, 0).await
}

/// L5, with the node deleted by another client.
///
/// Fails without watches on the own node: it waits for ever.
async fn l5_a_waiter_whose_node_is_deleted_gets_an_error<L: InLine>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    let (names, _) = alice.client.children(&lock_path()).await?;
    let other = names.iter().find(|name| *name != guard.node().name()).expect("the waiter");
    alice.client.delete(&lock_path().child(other)?, None).await?;
    let error = waiting.await?.expect_err("its node is gone");
    assert!(matches!(error, AcquireError::NodeDeleted { .. }), "{error:?}");
    Ok(())
}

/// L5, with the node of one that is not the next.
///
/// Fails without the late watch on the own node (`OwnWatch::Late`): it waits for ever.
async fn l5_a_waiter_further_back_whose_node_is_deleted_gets_an_error<L: InLine>(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let carol = backend.participant().await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let next = line_up::<L>(&bob, 2).await?;
    let (before, _) = alice.client.children(&L::line()).await?;
    let waiting = line_up::<L>(&carol, 3).await?;
    let (names, _) = alice.client.children(&L::line()).await?;
    let last = names.iter().find(|name| !before.contains(name)).expect("the last");
    alice.client.delete(&L::line().child(last)?, None).await?;
    let error = waiting.await?.expect_err("its node is gone");
    assert!(matches!(error, AcquireError::NodeDeleted { .. }), "{error:?}");
    guard.release().await?;
    next.await??.verify().await?;
    Ok(())
}

/// L6: the local state was cleared before the delete had succeeded, and the node stayed.
///
/// Fails with a plain delete in `Guard::begin_release`: the node stays.
async fn l6_a_release_that_is_lost_is_tried_again<L: Exclusive>(alice: Participant) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    alice.proxy.lose_next(OpCode::Delete, Loss::BeforeRequest);
    guard.release().await?;
    contenders::<L>(&alice, 0).await
}

/// L7: an unlock that was tried again deleted a newer lock.
async fn l7_a_release_tried_again_does_not_touch_the_next_holder<L: Exclusive>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    alice.proxy.lose_next(OpCode::Delete, Loss::BeforeReply);
    let releasing = tokio::spawn(guard.release());
    let next = waiting.await??;
    releasing.await??;
    next.verify().await?;
    contenders::<L>(&alice, 1).await
}

/// L9: the predecessor disappears between the listing and the watch.
///
/// Fails when `Contender::watch` takes a missing node for one that is there: it waits for ever.
async fn l9_a_predecessor_that_leaves_before_the_watch_is_set<L: InLine>(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    bob.proxy.hold_replies();
    let waiting = line_up::<L>(&bob, 2).await?;
    guard.release().await?;
    bob.proxy.restore();
    let guard = waiting.await??;
    assert!(bob.proxy.passed().contains(&Passed::Request(OpCode::GetData)), "it had seen her");
    guard.release().await?;
    Ok(())
}

/// L10: a reset on every reconnect made 2.6 million nodes in two hours.
///
/// Fails with an acquire that begins anew when the connection is lost: it makes new nodes.
async fn l10_reconnects_make_no_new_nodes<L: InLine>((alice, bob): Pair) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    let (before, _) = alice.client.children(&lock_path()).await?;
    for participant in [&alice, &bob] {
        participant.proxy.clear();
        for _ in 0..5 {
            participant.proxy.cut();
            participant.client.sync(&lock_path()).await.or_else(again)?;
        }
        assert!(!participant.proxy.requests().contains(&OpCode::Create2));
    }
    let (after, _) = alice.client.children(&lock_path()).await?;
    assert_eq!(sorted(after), sorted(before));
    guard.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

fn again(error: lockkeeper::Error) -> Result<()> {
    if error.is_retryable() { Ok(()) } else { Err(error.into()) }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

async fn a_wait_survives_reconnects<L: Exclusive>((alice, bob): Pair) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    bob.proxy.refuse();
    guard.release().await?;
    bob.proxy.restore();
    waiting.await??.verify().await?;
    Ok(())
}

/// Symptom: the error was that the lock was not free, with advice to look for its holder.
async fn a_timeout_without_a_connection_says_so<L: Exclusive>(bob: Participant) -> Result<()> {
    let lock = lock_of::<L>(&bob)?;
    lock.acquire().await?.release().await?;
    bob.proxy.refuse();
    bob.client.status().wait_for(|status| status.contact != Contact::Connected).await?;

    let error = lock.acquire_timeout(Duration::from_millis(50)).await.expect_err("no server");
    assert!(matches!(error, AcquireError::Timeout { is_connected: false, .. }), "{error:?}");
    assert!(error.to_string().contains("no connection"), "{error}");
    Ok(())
}

/// Symptom: the error was that the session had expired, with the advice to acquire again.
async fn a_waiter_whose_client_is_closed_is_told_so<L: Exclusive>(
    (alice, bob): Pair,
) -> Result<()> {
    let _guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    bob.client.close().await;

    let lock = lock_of::<L>(&bob)?;
    for result in [waiting.await?, lock.acquire().await] {
        let error = result.expect_err("the client is closed");
        assert!(matches!(error, AcquireError::ClientClosed { .. }), "{error:?}");
        assert!(!error.is_retryable());
    }
    Ok(())
}

/// Symptom: the error was that another client had deleted the node. A server sends the event of the deletion before it
/// replies that it has closed the session.
async fn a_holder_whose_client_is_closed_is_told_so<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let lost = guard.lost();
    alice.proxy.clear();
    tokio::pin!(lost);
    tokio::select! {
        biased;
        reason = &mut lost => panic!("{reason}"),
        () = alice.proxy.passes(|passed| gets(passed) > 0) => {}
    }

    let ((), reason) = tokio::join!(alice.client.close(), lost);
    assert_eq!(reason, LossReason::ClientClosed);
    assert_eq!(guard.state(), HolderState::Lost(LossReason::ClientClosed));
    Ok(())
}

/// Symptom: after a reported loss, a program hung in `release` for as long as the outage lasted.
async fn a_lost_lock_is_released_without_waiting_for_a_server<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(4));
    let alice = backend.participant_with(short).await?;
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    alice.proxy.refuse();
    let lost = guard.lost().await;
    assert_eq!(guard.release().await, Err(ReleaseError::Lost(lost)));
    alice.proxy.restore();
    contenders::<L>(&alice, 0).await
}

async fn an_expired_holder_is_told_and_can_acquire_again<L: Exclusive>(
    alice: Participant,
) -> Result<()> {
    let lock = lock_of::<L>(&alice)?;
    let guard = lock.acquire().await?;
    alice.proxy.expire_session().await?;
    assert_eq!(guard.lost().await, LossReason::SessionExpired);
    let token = guard.token();
    let released = guard.release().await;
    assert!(released.is_err(), "it was lost before: {released:?}");
    let again = lock.acquire().await?;
    assert!(again.token() > token);
    again.verify().await?;
    Ok(())
}
