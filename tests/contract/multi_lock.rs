//! Several locks as one.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    AcquireError, BuildError, Contact, ErrorCode, HolderState, LossReason, MultiGuard, MultiLock,
    Mutex, ReleaseError, VerifyError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;
use tokio::task::JoinHandle;

use crate::{Pair, contract, gets, is_no_auth, shut};

contract!(multi_lock);

const A: &str = "/locks/a";
const B: &str = "/locks/b";
const C: &str = "/locks/c";

fn multi(participant: &Participant, paths: &[&str]) -> Result<MultiLock> {
    Ok(MultiLock::new(&participant.client, paths.iter().copied())?)
}

fn single(participant: &Participant, path: &str) -> Result<Mutex> {
    Ok(Mutex::new(&participant.client, path)?)
}

async fn places(participant: &Participant, expected: &[(&str, usize)]) -> Result<()> {
    let observer = participant.observer().await?;
    for (path, count) in expected {
        children_reach(&observer, &ZnodePath::new(path)?, *count).await?;
    }
    Ok(())
}

fn start(lock: MultiLock) -> JoinHandle<Result<MultiGuard, AcquireError>> {
    tokio::spawn(async move { lock.acquire().await })
}

async fn free_locks_are_one_round_trip_each_way(alice: Participant) -> Result<()> {
    let lock = multi(&alice, &[A, B, C])?;
    lock.acquire().await?.release().await?;
    alice.proxy.clear();
    alice.proxy.hold_replies();
    let acquiring = start(lock);
    alice.proxy.passes(|passed| passed.len() == 4).await;
    use OpCode::{GetChildren2, Multi};
    let requests = [Multi, GetChildren2, GetChildren2, GetChildren2];
    assert_eq!(alice.proxy.requests(), requests, "all were sent before any reply came");
    alice.proxy.restore();
    let guard = acquiring.await??;
    assert_eq!(alice.proxy.requests(), requests, "and nothing more was needed");
    alice.proxy.clear();
    guard.verify().await?;
    assert_eq!(alice.proxy.requests(), [Multi]);
    guard.release().await?;
    assert_eq!(alice.proxy.requests(), [Multi, Multi]);
    places(&alice, &[(A, 0), (B, 0), (C, 0)]).await
}

async fn a_lock_that_is_waited_for_is_two_round_trips_and_an_event(
    (alice, bob): Pair,
) -> Result<()> {
    let lock = multi(&alice, &[A, B])?;
    lock.acquire().await?.release().await?;
    let guard = single(&bob, A)?.acquire().await?;
    alice.proxy.clear();
    let acquiring = start(lock);
    alice.proxy.passes(|passed| gets(passed) == 2).await;
    guard.release().await?;
    let guard = acquiring.await??;
    let mut requests = alice.proxy.requests();
    // Its place in the other line, given up without waiting for the answer.
    requests.retain(|op| *op != OpCode::Delete);
    use OpCode::{GetChildren2, GetData, Multi};
    let enter = [Multi, GetChildren2, GetChildren2];
    let wait = [GetData, GetData];
    let enter_the_rest = [Multi, GetChildren2];
    assert_eq!(requests, [&enter[..], &wait, &enter_the_rest].concat());
    assert_eq!(alice.proxy.events().len(), 1);
    guard.release().await?;
    Ok(())
}

async fn the_paths_are_put_in_order_and_checked(alice: Participant) -> Result<()> {
    let lock = multi(&alice, &[C, A, B])?;
    assert_eq!(lock.paths().map(ZnodePath::as_str).collect::<Vec<_>>(), [A, B, C]);
    let refused = |paths: &[&str]| MultiLock::new(&alice.client, paths.iter().copied()).err();
    assert_eq!(refused(&[]), Some(BuildError::None));
    assert_eq!(refused(&[A, B, A]), Some(BuildError::Repeated(ZnodePath::new(A)?)));
    assert_eq!(refused(&[A, "/"]), Some(BuildError::Root));
    assert!(matches!(refused(&["locks"]), Some(BuildError::Path(_))));
    Ok(())
}

async fn each_lock_has_a_token_that_grows((alice, bob): Pair) -> Result<()> {
    let guard = multi(&alice, &[A, B])?.acquire().await?;
    let old: Vec<_> = guard.tokens().map(|(path, token)| (path.clone(), token)).collect();
    guard.release().await?;
    let between = single(&bob, B)?.acquire().await?;
    assert!(between.token() > old[1].1);
    let token = between.token();
    between.release().await?;
    let guard = multi(&bob, &[B, A])?.acquire().await?;
    let new: Vec<_> = guard.tokens().collect();
    assert_eq!((new[0].0, new[1].0), (&old[0].0, &old[1].0));
    assert!(new[0].1 > old[0].1 && new[1].1 > token);
    for held in guard.guards() {
        let stat = alice.client.exists(held.node()).await?.expect("held");
        assert_eq!((stat.czxid, stat.ephemeral_owner), (held.token().zxid(), held.session()));
    }
    Ok(())
}

async fn try_acquire_is_all_or_nothing((alice, bob): Pair) -> Result<()> {
    let guard = single(&bob, B)?.acquire().await?;
    assert!(multi(&alice, &[A, B, C])?.try_acquire().await?.is_none());
    places(&alice, &[(A, 0), (B, 1), (C, 0)]).await?;
    guard.release().await?;
    let guard = multi(&alice, &[A, B, C])?.try_acquire().await?.expect("free");
    assert!(single(&bob, C)?.try_acquire().await?.is_none());
    guard.release().await?;
    places(&alice, &[(A, 0), (B, 0), (C, 0)]).await
}

async fn l1_a_transaction_lost_on_its_way_leaves_one_node_each(backend: Backend) -> Result<()> {
    lost_transaction(&backend, Loss::BeforeRequest).await
}

/// L1. Fails with the deletion taken out of `Contender::drop`: it waits for itself.
async fn l1_a_transaction_whose_reply_is_lost_leaves_one_node_each(backend: Backend) -> Result<()> {
    lost_transaction(&backend, Loss::BeforeReply).await
}

async fn lost_transaction(backend: &Backend, loss: Loss) -> Result<()> {
    let alice = backend.participant().await?;
    let lock = multi(&alice, &[A, B])?;
    lock.acquire().await?.release().await?;
    alice.proxy.lose_next(OpCode::Multi, loss);
    let guard = lock.acquire().await?;
    places(&alice, &[(A, 1), (B, 1)]).await?;
    guard.verify().await?;
    guard.release().await?;
    places(&alice, &[(A, 0), (B, 0)]).await
}

async fn l2_an_acquire_cancelled_during_its_transaction_leaves_nothing(
    alice: Participant,
) -> Result<()> {
    let lock = multi(&alice, &[A, B])?;
    lock.acquire().await?.release().await?;
    alice.proxy.hold_replies();
    let acquiring = start(lock);
    places(&alice, &[(A, 1), (B, 1)]).await?;
    acquiring.abort();
    assert!(acquiring.await.is_err(), "cancelled");
    alice.proxy.restore();
    places(&alice, &[(A, 0), (B, 0)]).await
}

async fn l2_an_acquire_cancelled_while_waiting_leaves_nothing((alice, bob): Pair) -> Result<()> {
    let guard = single(&bob, B)?.acquire().await?;
    let acquiring = start(multi(&alice, &[A, B])?);
    places(&alice, &[(A, 1), (B, 2)]).await?;
    acquiring.abort();
    places(&alice, &[(A, 0), (B, 1)]).await?;
    guard.verify().await?;
    Ok(())
}

async fn l6_a_release_whose_reply_is_lost_is_done_once(alice: Participant) -> Result<()> {
    let lock = multi(&alice, &[A, B])?;
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        let guard = lock.acquire().await?;
        alice.proxy.lose_next(OpCode::Multi, loss);
        guard.release().await?;
        places(&alice, &[(A, 0), (B, 0)]).await?;
    }
    Ok(())
}

/// The lock that the handle waited for when the time was over. An attempt that is late before it has entered
/// a queue names the first lock, so the next attempt gets more time: a machine may have been busy.
async fn late_for(lock: &MultiLock) -> String {
    let mut timeout = Duration::from_millis(250);
    loop {
        let result = lock.acquire_timeout(timeout).await;
        let Err(AcquireError::Timeout { path, .. }) = result else { panic!("{result:?}") };
        if path.as_str() != A || timeout > Duration::from_secs(30) {
            return path.as_str().to_owned();
        }
        timeout *= 2;
    }
}

/// Somebody deletes the node of a lock after its contender was made, and before the queue is listed.
///
/// Fails with `NoNode` for the list taken for a refusal.
async fn one_whose_queue_is_deleted_as_it_is_entered_is_entered_again(
    alice: Participant,
) -> Result<()> {
    let lock = multi(&alice, &[A, B])?;
    lock.acquire_timeout(Duration::ZERO).await?.release().await?;
    alice.proxy.refuse_next(OpCode::GetChildren2, ErrorCode::NoNode, 1);
    let guard = lock.acquire().await?;
    places(&alice, &[(A, 1), (B, 1)]).await?;
    guard.release().await?;
    places(&alice, &[(A, 0), (B, 0)]).await
}

/// L19: it went on after a failure, with some of the locks held.
async fn l19_a_lock_that_cannot_be_had_leaves_none((alice, bob): Pair) -> Result<()> {
    let lock = multi(&alice, &[A, B, C])?;
    lock.acquire().await?.release().await?;
    let guard = single(&bob, B)?.acquire().await?;
    assert_eq!(late_for(&lock).await, B, "the one that was waited for");
    places(&alice, &[(A, 0), (B, 1), (C, 0)]).await?;

    let foreign = ZnodePath::new(C)?.child("foreign")?;
    alice.client.create(&foreign, "", lockkeeper::CreateMode::Persistent).await?;
    guard.release().await?;
    let error = lock.acquire().await.expect_err("the order of the third one is unknown");
    assert!(matches!(error, AcquireError::Foreign { .. }), "{error:?}");
    places(&alice, &[(A, 0), (B, 0), (C, 1)]).await
}

/// L19: a contender that waits for one lock while it is in the queue of a later one blocks a program that
/// holds the first and waits for the later one: a deadlock.
///
/// Fails when the places behind the one that is waited for are kept.
async fn l19_no_place_is_kept_behind_the_lock_that_is_waited_for((alice, bob): Pair) -> Result<()> {
    let first = single(&bob, A)?.acquire().await?;
    let acquiring = start(multi(&alice, &[A, B, C])?);
    places(&alice, &[(A, 2), (B, 0), (C, 0)]).await?;
    let second = single(&bob, B)?.acquire().await?;
    first.release().await?;
    places(&alice, &[(A, 1), (B, 2), (C, 0)]).await?;
    second.release().await?;
    acquiring.await??.release().await?;
    places(&alice, &[(A, 0), (B, 0), (C, 0)]).await
}

/// L19, with the failure in what was won before.
///
/// Fails with the checks taken out of the transaction: it says that all are held.
async fn l19_a_lock_lost_while_waiting_for_the_next_ends_it((alice, bob): Pair) -> Result<()> {
    for paths in [&[A, B][..], &[A, B, C]] {
        let guard = single(&bob, B)?.acquire().await?;
        let acquiring = start(multi(&alice, paths)?);
        places(&alice, &[(A, 1), (B, 2)]).await?;
        let path = ZnodePath::new(A)?;
        let (names, _) = bob.client.children(&path).await?;
        let won = path.child(&names[0])?;
        bob.client.delete(&won, None).await?;
        guard.release().await?;
        let error = acquiring.await?.expect_err("one was lost");
        assert_eq!(error, AcquireError::NodeDeleted { node: won });
        places(&alice, &[(A, 0), (B, 0), (C, 0)]).await?;
    }
    Ok(())
}

/// Symptom: it said that another client had deleted the node of the first lock.
async fn a_check_of_one_that_is_refused_while_waiting_says_so((alice, bob): Pair) -> Result<()> {
    let guard = single(&bob, B)?.acquire().await?;
    let acquiring = start(multi(&alice, &[A, B, C])?);
    places(&alice, &[(A, 1), (B, 2)]).await?;
    let path = ZnodePath::new(A)?;
    let (names, _) = bob.client.children(&path).await?;
    shut(&bob.client, &path.child(&names[0])?).await?;
    guard.release().await?;

    let error = acquiring.await?.expect_err("the check of one is refused");
    let AcquireError::Refused { path: refused, source } = &error else { panic!("{error:?}") };
    assert_eq!(*refused, path);
    assert!(is_no_auth(source), "{error:?}");
    places(&alice, &[(A, 0), (B, 0), (C, 0)]).await
}

/// L19: a deadlock for want of an order. Here five tasks want two or three of three locks, given
/// in any order, and two programs take single ones, or two of them one after the other.
async fn l19_any_order_and_any_company_comes_to_an_end(backend: Backend) -> Result<()> {
    const ROUNDS: usize = 12;
    let mut tasks = tokio::task::JoinSet::new();
    for paths in [&[A, B][..], &[B, A], &[C, A], &[B, C, A], &[C, B]] {
        let participant = backend.participant().await?;
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = multi(&participant, paths)?.acquire().await?;
                guard.verify().await?;
                guard.release().await?;
            }
            anyhow::Ok(())
        });
    }
    for paths in [&[B][..], &[A, C]] {
        let participant = backend.participant().await?;
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let mut guards = Vec::new();
                for path in paths {
                    guards.push(single(&participant, path)?.acquire().await?);
                }
                for guard in guards {
                    guard.release().await?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    places(&backend.participant().await?, &[(A, 0), (B, 0), (C, 0)]).await
}

async fn the_loss_of_one_is_the_loss_of_all((alice, bob): Pair) -> Result<()> {
    let guard = multi(&alice, &[A, B])?.acquire().await?;
    let (state, left) = (guard.state(), guard.deadline());
    assert!(state == HolderState::Held && left.is_some() && guard.ensure(Duration::ZERO).is_ok());
    let node = guard.guards()[1].node().clone();
    bob.client.delete(&node, None).await?;
    let (path, reason) = guard.lost().await;
    assert_eq!((path.as_str(), reason), (B, LossReason::NodeDeleted));
    assert_eq!(guard.state(), HolderState::Lost(reason));
    assert_eq!(guard.verify().await, Err(VerifyError::Lost(reason)));
    assert!(guard.deadline().is_none() && guard.ensure(Duration::ZERO).is_err());
    assert_eq!(guard.run(std::future::pending::<()>()).await, Err(reason));
    let written = guard.transaction().create(&ZnodePath::new("/x")?, "", Default::default());
    assert!(written.commit().await.is_err(), "only while all are held");
    Ok(())
}

/// A server that refuses to check a node says nothing of it. Symptom: the lock counted as lost.
///
/// Fails when any operation that fails is taken for a node that is missing.
async fn a_check_of_one_that_is_refused_verifies_nothing(alice: Participant) -> Result<()> {
    let guard = multi(&alice, &[A, B])?.acquire().await?;
    shut(&alice.client, guard.guards()[1].node()).await?;
    let verified = guard.verify().await;
    assert!(
        matches!(&verified, Err(VerifyError::Refused(error)) if is_no_auth(error)),
        "{verified:?}"
    );
    assert!(guard.is_held(), "{:?}", guard.state());
    Ok(())
}

async fn a_release_with_one_lock_lost_gives_the_others_back((alice, bob): Pair) -> Result<()> {
    let guard = multi(&alice, &[A, B, C])?.acquire().await?;
    bob.client.delete(guard.guards()[1].node(), None).await?;
    let lost = Err(ReleaseError::Lost(LossReason::NodeDeleted));
    assert_eq!(guard.release().await, lost);
    places(&alice, &[(A, 0), (B, 0), (C, 0)]).await
}

/// Symptom: the locks were gone with their session, and the release said that it had given them back.
async fn a_release_in_the_next_session_is_a_loss(alice: Participant) -> Result<()> {
    let guard = multi(&alice, &[A, B])?.acquire().await?;
    let mut status = alice.client.status();
    alice.proxy.refuse();
    status.wait_for(|status| status.contact == Contact::Disconnected).await?;
    alice.proxy.expire_session().await?;
    assert!(guard.is_held(), "no event has arrived yet: {:?}", guard.state());
    let releasing = tokio::spawn(guard.release());
    // Its requests wait for a connection by then.
    tokio::task::yield_now().await;
    alice.proxy.restore();
    assert_eq!(releasing.await?, Err(ReleaseError::Lost(LossReason::SessionExpired)));
    Ok(())
}
