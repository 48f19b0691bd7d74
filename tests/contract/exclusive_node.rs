//! The exclusive node: what it shares with the fair lock, and the price of its simplicity.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    AcquireError, CreateMode, EnsureError, ExclusiveNode, Guard, HolderState, LossReason, Owner,
    ReleaseError, TransactionError, VerifyError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::task::JoinHandle;

use crate::jeopardy::short;
use crate::{LOCK, Pair, contract, lock_path};

contract!(exclusive_node);

fn node(participant: &Participant) -> Result<ExclusiveNode> {
    Ok(ExclusiveNode::new(&participant.client, LOCK)?)
}

/// The folder of the lock, whose children are the lock's node or nothing.
fn folder() -> ZnodePath {
    lock_path().parent().expect("not the root")
}

async fn exists(participant: &Participant, nodes: usize) -> Result<()> {
    children_reach(&participant.observer().await?, &folder(), nodes).await
}

type Acquiring = JoinHandle<Result<lockkeeper::ExclusiveGuard, AcquireError>>;

/// Starts to acquire, and returns when the holder's node is watched.
async fn wait_behind(participant: &Participant, lock: ExclusiveNode) -> Acquiring {
    participant.proxy.clear();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    let watching = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::GetData));
    participant.proxy.passes(watching).await;
    acquiring
}

async fn a_free_lock_costs_one_round_trip_and_two_to_release(alice: Participant) -> Result<()> {
    let lock = node(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.clear();
    let guard = lock.acquire().await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Create2]);
    let again = lock.acquire().await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Create2], "nothing to enter again");
    again.release().await?;
    alice.proxy.clear();
    guard.release().await?;
    use OpCode::{Delete, GetData, Sync};
    assert_eq!(alice.proxy.requests(), [Sync, GetData, Delete], "a look, then the deletion");
    Ok(())
}

async fn its_owner_enters_again_and_the_last_release_gives_it_back(
    (alice, bob): Pair,
) -> Result<()> {
    let owner = Owner::new("alice");
    let first = ExclusiveNode::builder(&alice.client, LOCK).owner(&owner).build()?;
    let second = ExclusiveNode::builder(&alice.client, LOCK).owner(&owner).build()?;
    let outer = first.acquire().await?;
    let inner = second.try_acquire().await?.expect("the same owner");
    assert_eq!(inner.token(), outer.token());
    outer.release().await?;
    assert!(node(&bob)?.try_acquire().await?.is_none(), "one entry is left");
    inner.verify().await?;
    inner.release().await?;
    assert!(node(&bob)?.try_acquire().await?.is_some());
    Ok(())
}

async fn tokens_grow((alice, bob): Pair) -> Result<()> {
    let mut last = None;
    for round in 0..6 {
        let guard = node(if round % 2 == 0 { &alice } else { &bob })?.acquire().await?;
        assert!(last < Some(guard.token()), "round {round}");
        last = Some(guard.token());
        guard.release().await?;
    }
    Ok(())
}

async fn try_acquire_is_one_round_trip_and_leaves_no_watch((alice, bob): Pair) -> Result<()> {
    let guard = node(&alice)?.acquire().await?;
    bob.proxy.clear();
    assert!(node(&bob)?.try_acquire().await?.is_none());
    assert_eq!(bob.proxy.requests(), [OpCode::Create2]);
    guard.release().await?;
    bob.client.sync(&lock_path()).await?;
    assert_eq!(bob.proxy.events(), []);
    Ok(())
}

/// The herd, as the lock's page states it: n waiters cost n(n + 1)/2 events.
async fn a_release_wakes_every_waiter(backend: Backend) -> Result<()> {
    const WAITERS: usize = 12;
    let alice = backend.participant().await?;
    let guard = node(&alice)?.acquire().await?;
    let mut participants = Vec::new();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let participant = backend.participant().await?;
        let lock = node(&participant)?;
        let watching = wait_behind(&participant, lock).await;
        waiting.spawn(async move { anyhow::Ok(watching.await??) });
        participants.push(participant);
    }
    let count = |wanted: fn(&Passed) -> bool| {
        let of = |p: &Participant| p.proxy.passed().iter().filter(|p| wanted(p)).count();
        participants.iter().map(of).sum::<usize>()
    };
    let events = || count(|passed| matches!(passed, Passed::Event(..)));
    let creates = || count(|passed| *passed == Passed::Request(OpCode::Create2));
    let looks = || count(|passed| *passed == Passed::Reply(OpCode::GetData));
    assert_eq!((creates(), looks()), (WAITERS, WAITERS));
    guard.release().await?;
    let mut expected = WAITERS;
    for left in (0..WAITERS).rev() {
        let guard = waiting.join_next().await.expect("a waiter is left")??;
        // All others have come too late, and watch again.
        expected += left;
        while looks() < expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        guard.release().await?;
        expected += 1;
    }
    let herd = WAITERS * (WAITERS + 1) / 2;
    assert_eq!(events(), herd, "each waiter at each release, where a queue has {WAITERS}");
    assert_eq!(creates(), WAITERS + herd);
    Ok(())
}

async fn l1_a_create_lost_on_its_way_makes_one_node(backend: Backend) -> Result<()> {
    lost_create(&backend, Loss::BeforeRequest).await
}

/// L1, with only the reply lost: the data and the session of the node identify the holder.
///
/// Fails with the look and the deletion left out: it waits for its own node.
async fn l1_a_create_whose_reply_is_lost_makes_one_node(backend: Backend) -> Result<()> {
    lost_create(&backend, Loss::BeforeReply).await
}

async fn lost_create(backend: &Backend, loss: Loss) -> Result<()> {
    let alice = backend.participant().await?;
    let lock = node(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.lose_next(OpCode::Create2, loss);
    let guard = lock.acquire().await?;
    guard.verify().await?;
    guard.release().await?;
    exists(&alice, 0).await
}

/// L2. Fails with `CreateAttempt::drop` empty.
async fn l2_an_acquire_cancelled_during_its_create_leaves_nothing(
    alice: Participant,
) -> Result<()> {
    let lock = node(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.hold_replies();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    exists(&alice, 1).await?;
    acquiring.abort();
    assert!(acquiring.await.is_err(), "cancelled");
    alice.proxy.restore();
    exists(&alice, 0).await
}

/// L2: the create waits for a connection, and so does the deletion that looks for its node. It
/// must not go first.
///
/// Fails when a new connection begins with all deletes: the node stays.
async fn l2_an_acquire_cancelled_before_its_create_was_sent_leaves_nothing(
    alice: Participant,
) -> Result<()> {
    let lock = node(&alice)?;
    lock.acquire().await?.release().await?;
    alice.proxy.clear();
    alice.proxy.refuse();
    let mut status = alice.client.status();
    status.wait_for(|s| s.contact == lockkeeper::Contact::Disconnected).await?;
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    tokio::task::yield_now().await;
    acquiring.abort();
    assert!(acquiring.await.is_err(), "cancelled");
    alice.proxy.restore();
    let looked = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::GetData));
    alice.proxy.passes(looked).await;
    assert!(alice.proxy.requests().contains(&OpCode::Create2), "it was on its way");
    exists(&alice, 0).await
}

async fn l3_l8_a_timeout_leaves_neither_node_nor_watch((alice, bob): Pair) -> Result<()> {
    let guard = node(&alice)?.acquire().await?;
    let result = node(&bob)?.acquire_timeout(Duration::from_millis(50)).await;
    assert!(matches!(result, Err(AcquireError::Timeout { .. })), "{result:?}");
    guard.release().await?;
    bob.client.sync(&lock_path()).await?;
    assert_eq!(bob.proxy.events(), []);
    exists(&alice, 0).await
}

async fn l6_a_release_that_is_lost_is_tried_again(alice: Participant) -> Result<()> {
    for op in [OpCode::GetData, OpCode::Delete] {
        let guard = node(&alice)?.acquire().await?;
        alice.proxy.lose_next(op, Loss::BeforeRequest);
        guard.release().await?;
        exists(&alice, 0).await?;
    }
    Ok(())
}

/// L7: the name is used again, so that a deletion that is sent a second time would hit the next
/// holder.
///
/// Fails with the look left out: the next holder's node is gone.
async fn l7_a_release_tried_again_does_not_touch_the_next_holder((alice, bob): Pair) -> Result<()> {
    let guard = node(&alice)?.acquire().await?;
    let waiting = wait_behind(&bob, node(&bob)?).await;
    alice.proxy.lose_next(OpCode::Delete, Loss::BeforeReply);
    let releasing = tokio::spawn(guard.release());
    let next = waiting.await??;
    releasing.await??;
    next.verify().await?;
    Ok(())
}

/// L7, after another client has deleted the holder's node.
async fn l7_a_release_does_not_touch_a_holder_that_came_by_force((alice, bob): Pair) -> Result<()> {
    let guard = node(&alice)?.acquire().await?;
    bob.client.delete(&lock_path(), None).await?;
    let next = node(&bob)?.acquire().await?;
    guard.release().await?;
    next.verify().await?;
    Ok(())
}

/// L12. Fails with one table of entries for all owners.
async fn l12_two_owners_of_one_session_exclude_each_other(alice: Participant) -> Result<()> {
    let owners = [Owner::new("alice"), Owner::new("alice")];
    let [first, second] =
        owners.map(|o| ExclusiveNode::builder(&alice.client, LOCK).owner(&o).build());
    let guard = first?.acquire().await?;
    assert!(second?.try_acquire().await?.is_none(), "also if they have one name");
    guard.release().await?;
    Ok(())
}

async fn l24_the_parent_is_a_container(alice: Participant) -> Result<()> {
    node(&alice)?.acquire().await?.release().await?;
    assert!(alice.proxy.requests().contains(&OpCode::CreateContainer), "which servers reap");
    Ok(())
}

/// Has the node deleted, and taken by another client.
async fn next_holder(participant: &Participant) -> Result<lockkeeper::ExclusiveGuard> {
    participant.client.delete(&lock_path(), None).await?;
    Ok(node(participant)?.acquire().await?)
}

/// How a lock stands for a holder that waits for nothing: as soon as a loss is known, and after three
/// heartbeats at the latest.
pub(crate) async fn after_heartbeats(participant: &Participant, guard: &Guard) -> HolderState {
    participant.proxy.clear();
    let beats = |passed: &[Passed]| {
        passed.iter().filter(|p| **p == Passed::Reply(OpCode::Multi)).count() >= 3
    };
    let mut status = participant.client.status();
    tokio::select! {
        () = participant.proxy.passes(beats) => {}
        _ = status.wait_for(|_| !guard.is_held()) => {}
    }
    guard.state()
}

/// Another client deleted the node, and the next holder made one at the same path: both held the lock
/// for as long as their sessions lived, as the heartbeats of the first one found a node.
///
/// Fails with heartbeats that check the path alone.
async fn a_holder_that_only_asks_for_its_state_is_told_of_the_next_one(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (short(&backend).await?, backend.participant().await?);
    let guard = node(&alice)?.acquire().await?;
    let next = next_holder(&bob).await?;
    let lost = LossReason::NodeDeleted;
    assert_eq!(after_heartbeats(&alice, &guard).await, HolderState::Lost(lost));
    assert_eq!(guard.ensure(Duration::ZERO), Err(EnsureError::Lost(lost)));
    assert_eq!(guard.release().await, Err(ReleaseError::Lost(lost)));
    next.verify().await?;
    next.release().await?;
    Ok(())
}

/// Fails with a `verify` that checks the path alone.
async fn verify_tells_a_holder_of_the_next_one((alice, bob): Pair) -> Result<()> {
    let guard = node(&alice)?.acquire().await?;
    alice.proxy.clear();
    guard.verify().await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Multi, OpCode::Exists]);
    let next = next_holder(&bob).await?;
    assert_eq!(guard.verify().await, Err(VerifyError::Lost(LossReason::NodeDeleted)));
    next.verify().await?;
    Ok(())
}

/// The check in front of it finds the node of the next holder, at the same path.
///
/// Fails with a transaction that does not depend on what its holder knows: it is applied.
async fn a_transaction_of_a_holder_that_knows_of_its_loss_is_not_sent(
    (alice, bob): Pair,
) -> Result<()> {
    let data = ZnodePath::new("/data")?;
    bob.client.ensure(&data, CreateMode::Persistent).await?;
    let guard = node(&alice)?.acquire().await?;
    guard.transaction().set_data(&data, "by alice", None).commit().await?;
    let next = next_holder(&bob).await?;
    assert!(guard.verify().await.is_err(), "the node belongs to another holder");

    for transaction in [guard.transaction(), guard.transaction().in_session(guard.session())] {
        let late = transaction.set_data(&data, "late", None).commit().await;
        let refused = |late: &TransactionError| matches!(late, TransactionError::Request(error) if error.is_not_held());
        assert!(late.as_ref().is_err_and(refused), "{late:?}");
    }
    next.transaction().set_data(&data, "by bob", None).commit().await?;
    assert_eq!(bob.client.data(&data).await?.0, "by bob");
    Ok(())
}

async fn a_waiter_goes_on_when_its_session_expires((alice, bob): Pair) -> Result<()> {
    let guard = node(&alice)?.acquire().await?;
    let waiting = wait_behind(&bob, node(&bob)?).await;
    bob.proxy.expire_session().await?;
    guard.release().await?;
    let guard = waiting.await??;
    bob.proxy.expire_session().await?;
    assert_eq!(guard.lost().await, LossReason::SessionExpired);
    let released = guard.release().await;
    assert_eq!(released, Err(ReleaseError::Lost(LossReason::SessionExpired)));
    Ok(())
}

/// Other programs may make a plain node, and delete it when they are done.
///
/// Fails when such a node is refused.
async fn a_node_that_is_not_ephemeral_is_waited_for(alice: Participant) -> Result<()> {
    alice.client.ensure(&lock_path(), CreateMode::Persistent).await?;
    assert!(node(&alice)?.try_acquire().await?.is_none(), "it is taken");
    let waiting = wait_behind(&alice, node(&alice)?).await;
    alice.client.delete(&lock_path(), None).await?;
    waiting.await??.release().await?;
    Ok(())
}
