//! Asking a holder to give way, and forcing it.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use lockkeeper::inspect::{self, Entry, LockQueue};
use lockkeeper::revoke::{REQUEST, Revocation, RevokeOutcome, revoke, revoke_node, revoke_within};
use lockkeeper::{
    Client, Contact, CreateMode, ErrorCode, HolderState, LossReason, OwnerInfo, VerifyError,
    ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;

use crate::rw_lock::replies;
use crate::{Pair, contract, lock_path, mutex, queue_empties, queue_up};

contract!(revocation);

async fn a_holder_is_asked_by_the_mark_that_curator_sets((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let node = guard.node().clone();
    let asked = tokio::spawn(async move { (guard.revoke_requested().await, guard) });
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    assert!(!asked.is_finished());
    assert_eq!(revoke(&bob.client, &lock_path()).await?, vec![node.clone()]);
    let (requested, guard) = asked.await?;
    assert_eq!(requested, Ok(()));
    guard.verify().await?;
    assert_eq!(guard.state(), HolderState::Held, "a request does not take the lock");
    guard.release().await?;
    Ok(())
}

/// Symptom: the data no longer showed which holder ignored the request.
///
/// Fails when the holder does not write its owner back.
async fn a_holder_that_was_asked_is_still_known((alice, bob): Pair) -> Result<()> {
    let lock = lockkeeper::Mutex::builder(&alice.client, crate::LOCK).label("nightly").build()?;
    let guard = std::sync::Arc::new(lock.acquire().await?);
    let holder = std::sync::Arc::clone(&guard);
    let deaf = tokio::spawn(async move { holder.lost().await });
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;

    for _ in 0..2 {
        assert_eq!(revoke(&bob.client, &lock_path()).await?, vec![guard.node().clone()]);
        let mut data = bob.client.data(guard.node()).await?.0;
        while &data[..] == b"__REVOKE__" {
            data = bob.client.data(guard.node()).await?.0;
        }
        let owner = lockkeeper::OwnerInfo::from_data(&data).context("no owner")?;
        assert_eq!((owner.label.as_deref(), owner.revoked), (Some("nightly"), true));
    }
    guard.revoke_requested().await?;
    deaf.abort();
    Ok(())
}

/// The same for one whose node was watched while it waited: it had never read what it wrote into it.
///
/// Fails when the guard knew only what it had read: the label was gone.
async fn a_holder_that_was_asked_after_a_wait_is_still_known((alice, bob): Pair) -> Result<()> {
    let held = mutex(&alice)?.acquire().await?;
    let lock = lockkeeper::Mutex::builder(&bob.client, crate::LOCK).label("nightly").build()?;
    let waiting = queue_up(&alice, &lock, 2).await?;
    // The one ahead, and its own node.
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2).await;
    held.release().await?;
    let guard = waiting.await??;

    assert_eq!(revoke(&alice.client, &lock_path()).await?, [guard.node().clone()]);
    guard.revoke_requested().await?;
    let mut data = alice.client.data(guard.node()).await?.0;
    while &data[..] == b"__REVOKE__" {
        data = alice.client.data(guard.node()).await?.0;
    }
    let owner = lockkeeper::OwnerInfo::from_data(&data).context("no owner")?;
    assert_eq!((owner.label.as_deref(), owner.revoked), (Some("nightly"), true));
    guard.release().await?;
    Ok(())
}

/// The owner in a holder's node, once the holder has answered a request.
async fn answered(client: &Client, node: &ZnodePath) -> Result<OwnerInfo> {
    loop {
        let data = client.data(node).await?.0;
        if !data.starts_with(REQUEST) {
            return OwnerInfo::from_data(&data).context("no owner");
        }
    }
}

/// Fails with a request that leaves both out.
async fn who_asks_and_why_is_told_to_the_holder_and_shown((alice, bob): Pair) -> Result<()> {
    let lock = lockkeeper::Mutex::builder(&alice.client, crate::LOCK);
    let guard = lock.user("alice").why("restoring").build()?.acquire().await?;
    guard.note_held_since(UNIX_EPOCH + Duration::from_secs(7));
    assert_eq!(guard.revoke_request(), None);

    let request = Revocation::new(&bob.client, &lock_path()).by("bob").reason("an upgrade");
    assert_eq!(request.ask().await?, [guard.node().clone()]);
    let queue = LockQueue::inspect(&bob.client, &lock_path()).await?.context("a queue")?;
    assert!(queue.entries[0].is_revoked());

    guard.revoke_requested().await?;
    let owner = answered(&bob.client, guard.node()).await?;
    let told = guard.revoke_request().context("it was asked")?;
    assert_eq!((told.by.as_deref(), told.reason.as_deref()), (Some("bob"), Some("an upgrade")));
    assert_eq!((owner.revoked, owner.request.as_ref()), (true, Some(&told)));
    assert_eq!((owner.user.as_deref(), owner.why.as_deref()), (Some("alice"), Some("restoring")));
    assert_eq!(owner.held_since_unix_ms, Some(7_000), "the answer keeps it");
    let queue = LockQueue::inspect(&bob.client, &lock_path()).await?.context("a queue")?;
    assert_eq!(queue.entries[0].revoke_request(), Some(told));
    guard.release().await?;
    Ok(())
}

/// Curator compares the data of the node with the request.
///
/// Fails with a reason for holders without an owner.
async fn a_holder_of_another_program_gets_the_plain_request(alice: Participant) -> Result<()> {
    let client = &alice.client;
    client.ensure(&lock_path(), CreateMode::Container).await?;
    let node = lock_path().child("_c_x-lock-")?;
    let node = client.create(&node, "10.0.0.7", CreateMode::EphemeralSequential).await?.path;

    let request = Revocation::new(client, &lock_path()).by("bob").reason("an upgrade");
    assert_eq!(request.ask().await?, std::slice::from_ref(&node));
    assert_eq!(&client.data(&node).await?.0[..], REQUEST);
    Ok(())
}

/// Fails without the wait: the holder had not gone.
async fn those_who_were_asked_are_waited_for((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let node = guard.node().clone();
    let request = Revocation::new(&bob.client, &lock_path());
    let went = request.wait(Some(Duration::ZERO)).await?;
    assert_eq!(went, [(node, RevokeOutcome::Stayed)]);
    guard.verify().await?;
    guard.release().await?;

    let guard = mutex(&alice)?.acquire().await?;
    let node = guard.node().clone();
    let giving_way = tokio::spawn(async move {
        guard.revoke_requested().await?;
        anyhow::Ok(guard.release().await?)
    });
    assert_eq!(request.wait(None).await?, [(node, RevokeOutcome::GaveWay)]);
    giving_way.await??;
    Ok(())
}

/// Fails without the write.
async fn since_when_it_is_held_is_noted((alice, bob): Pair) -> Result<()> {
    let held = mutex(&alice)?.acquire().await?;
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    held.release().await?;
    let guard = waiting.await??;
    guard.note_held_since(UNIX_EPOCH + Duration::from_millis(1_500));
    // The next answer comes after that of the note.
    guard.verify().await?;
    let owner =
        OwnerInfo::from_data(&bob.client.data(guard.node()).await?.0).context("no owner")?;
    assert_eq!((owner.held_since_unix_ms, owner.revoked), (Some(1_500), false));
    guard.release().await?;
    Ok(())
}

/// Fails with a note at any version: the holder was never asked.
async fn a_note_overwrites_no_request((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    assert!(revoke_node(&bob.client, guard.node()).await?);
    guard.note_held_since(UNIX_EPOCH);
    guard.verify().await?;
    assert_eq!(&bob.client.data(guard.node()).await?.0[..], REQUEST);
    guard.revoke_requested().await?;
    guard.release().await?;
    Ok(())
}

/// Fails with a note that writes the owner alone.
async fn what_others_need_to_know_survives_a_note(alice: Participant) -> Result<()> {
    let lock = lockkeeper::Mutex::builder(&alice.client, crate::LOCK).obey_lock_delay().build()?;
    let guard = lock.acquire().await?;
    guard.note_held_since(UNIX_EPOCH);
    guard.verify().await?;
    let data = alice.client.data(guard.node()).await?.0;
    let fields: serde_json::Value = serde_json::from_slice(&data)?;
    assert_eq!(fields["obeys_lock_delay"], true, "{fields}");
    assert_eq!(fields["held_since_unix_ms"], 0, "{fields}");
    guard.release().await?;
    Ok(())
}

async fn a_request_that_came_before_the_wait_is_seen((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    assert!(revoke_node(&bob.client, guard.node()).await?);
    guard.revoke_requested().await?;
    guard.revoke_requested().await?;
    guard.release().await?;
    Ok(())
}

async fn asking_costs_three_round_trips_and_listening_one((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    bob.proxy.clear();
    revoke(&bob.client, &lock_path()).await?;
    use OpCode::{Exists, GetChildren2, GetData, RemoveWatches, SetData};
    // Sent together: is there a lock delay, and the listing.
    assert_eq!(bob.proxy.requests(), [Exists, GetChildren2, GetData, SetData]);
    alice.proxy.clear();
    guard.revoke_requested().await?;
    let mut requests = alice.proxy.requests();
    // The owner's data is written back, and no call waits for that.
    requests.retain(|op| !matches!(op, RemoveWatches | SetData));
    assert_eq!(requests, [GetData, GetData], "sent together: for the request, and for the loss");
    Ok(())
}

async fn nobody_is_asked_where_nobody_holds(alice: Participant) -> Result<()> {
    assert_eq!(revoke(&alice.client, &lock_path()).await?, []);
    let guard = mutex(&alice)?.acquire().await?;
    let node = guard.node().clone();
    guard.release().await?;
    assert_eq!(revoke(&alice.client, &lock_path()).await?, []);
    assert!(!revoke_node(&alice.client, &node).await?);
    assert_eq!(revoke_within(&alice.client, &lock_path(), Duration::ZERO).await?, []);
    Ok(())
}

/// Symptom: a node that disappeared between the listing and the read still blocked the contenders behind it. No
/// contender counted as the holder, and none was asked.
async fn who_holds_after_one_left_during_the_look_is_asked((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let waiting = queue_up(&alice, &mutex(&alice)?, 2).await?;
    // For this read the first node is gone. Another read finds the next holder.
    bob.proxy.refuse_next(OpCode::GetData, ErrorCode::NoNode, 1);
    assert_eq!(revoke(&bob.client, &lock_path()).await?, [guard.node().clone()]);
    guard.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

/// Symptom: if all listed contenders were gone, the lock looked free, although it had been passed
/// from holder to holder.
async fn a_look_at_those_who_leave_at_once_does_not_call_the_lock_free(
    (alice, bob): Pair,
) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    bob.proxy.refuse_next(OpCode::GetData, ErrorCode::NoNode, 1_000);
    bob.proxy.clear();
    let queue = LockQueue::inspect(&bob.client, &lock_path()).await?.context("a queue")?;
    let holders: Vec<_> = queue.holders().map(|entry| entry.node.clone()).collect();
    assert_eq!(holders, [guard.node().clone()]);
    let listings = |op: &OpCode| *op == OpCode::GetChildren2;
    assert_eq!(bob.proxy.requests().iter().filter(|op| listings(op)).count(), 4, "it looks again");
    Ok(())
}

/// One contender whose list was closed to the others made every look at a lock fail, and that at all locks.
async fn a_contender_that_may_not_be_read_is_seen((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let waiting = queue_up(&alice, &mutex(&alice)?, 2).await?;
    let is_hidden = |entry: &Entry| entry.holds && !entry.is_readable && entry.data.is_empty();

    bob.proxy.refuse_next(OpCode::GetData, ErrorCode::NoAuth, 1);
    let queue = LockQueue::inspect(&bob.client, &lock_path()).await?.context("a queue")?;
    let [holder, waiter] = queue.entries.as_slice() else { bail!("{queue:?}") };
    assert!(holder.node == *guard.node() && is_hidden(holder), "{holder:?}");
    assert!(!waiter.holds && waiter.is_readable && waiter.owner.is_some(), "{waiter:?}");

    bob.proxy.refuse_next(OpCode::GetData, ErrorCode::NoAuth, 1);
    let queues = inspect::queues(&bob.client, &lock_path()).await?.queues;
    let [queue] = queues.as_slice() else { bail!("{queues:?}") };
    assert!(is_hidden(&queue.entries[0]) && queue.entries.len() == 2, "{queue:?}");
    guard.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

/// A person decides by what a page shows, and another program may hold the lock by then.
async fn only_the_holder_that_was_seen_is_asked((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let (node, token) = (guard.node().clone(), guard.token());
    guard.release().await?;
    let next = mutex(&alice)?.acquire().await?;

    let request = || Revocation::new(&bob.client, &lock_path());
    assert!(request().only(node.clone(), token).ask().await?.is_empty());
    assert!(request().only(next.node().clone(), token).ask().await?.is_empty(), "another token");
    let forced = request().only(node, token).force_after(Duration::ZERO).await?;
    assert!(forced.is_empty(), "{forced:?}");
    next.verify().await?;

    let seen = request().only(next.node().clone(), next.token());
    assert_eq!(seen.ask().await?, [next.node().clone()]);
    next.release().await?;
    Ok(())
}

async fn those_who_wait_are_not_asked((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    assert_eq!(revoke(&bob.client, &lock_path()).await?, [guard.node().clone()]);
    guard.release().await?;
    let next = waiting.await??;
    let (data, _) = bob.client.data(next.node()).await?;
    assert_ne!(&data[..], b"__REVOKE__");
    Ok(())
}

async fn a_waiter_can_be_asked_by_its_node((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    let (names, _) = alice.client.children(&lock_path()).await?;
    let other = names.iter().find(|name| *name != guard.node().name()).expect("the waiter");
    assert!(revoke_node(&alice.client, &lock_path().child(other)?).await?);
    guard.release().await?;
    let next = waiting.await??;
    next.revoke_requested().await?;
    Ok(())
}

/// The longest grace time of all panicked once the holders had been asked.
async fn a_holder_that_gives_way_is_not_forced((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let node = guard.node().clone();
    let giving_way = tokio::spawn(async move {
        guard.revoke_requested().await?;
        anyhow::Ok(guard.release().await?)
    });
    let went = revoke_within(&bob.client, &lock_path(), Duration::MAX).await?;
    assert_eq!(went, [(node, RevokeOutcome::GaveWay)]);
    giving_way.await??;
    queue_empties(&alice).await
}

/// Fails with the force left out: the lock stays held.
async fn a_holder_that_does_not_is_forced_and_told(backend: Backend) -> Result<()> {
    const GRACE: Duration = Duration::from_millis(200);
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let guard = mutex(&alice)?.acquire().await?;
    let node = guard.node().clone();
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    let lost = tokio::spawn(async move { (guard.lost().await, guard) });
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    let start = std::time::Instant::now();
    let went = revoke_within(&bob.client, &lock_path(), GRACE).await?;
    assert!(start.elapsed() >= GRACE, "after {:?}", start.elapsed());
    assert_eq!(went, [(node, RevokeOutcome::Forced)]);
    let (reason, guard) = lost.await?;
    assert_eq!(reason, LossReason::Revoked);
    assert_eq!(guard.verify().await, Err(VerifyError::Lost(reason)));
    waiting.await??.verify().await?;
    children_reach(&backend.observer().await?, &lock_path(), 0).await
}

async fn the_loss_of_the_lock_ends_the_wait_for_a_request(alice: Participant) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let asked = tokio::spawn(async move { guard.revoke_requested().await });
    alice.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    alice.proxy.expire_session().await?;
    assert_eq!(asked.await?, Err(LossReason::SessionExpired));
    Ok(())
}

async fn a_holder_without_any_server_is_told_of_its_loss(backend: Backend) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(4));
    let alice = backend.participant_with(builder).await?;
    let guard = mutex(&alice)?.acquire().await?;
    alice.proxy.refuse();
    alice.client.status().wait_for(|status| status.contact == Contact::Unreachable).await?;
    assert_eq!(guard.revoke_requested().await, Err(LossReason::DeadlinePassed));
    Ok(())
}

/// How often a server refuses for now, and the shortest time that this must take: 10 ms each time.
const REFUSALS: usize = 30;
const PAUSES: Duration = Duration::from_millis(250);

/// A server that refused for now was asked again at once, as fast as it could answer.
///
/// Fails with `retry::retry_pause` without its pause.
async fn a_waiter_that_is_refused_for_now_pauses((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    bob.proxy.refuse_next(OpCode::GetData, ErrorCode::ThrottledOp, REFUSALS);
    let start = std::time::Instant::now();
    let waiting = queue_up(&alice, &mutex(&bob)?, 2).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == REFUSALS + 2).await;
    assert!(start.elapsed() >= PAUSES, "{REFUSALS} times in {:?}", start.elapsed());
    guard.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

/// Fails with `Guard::asked_for` looking again at once.
async fn a_holder_that_is_refused_for_now_pauses((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    assert!(revoke_node(&bob.client, guard.node()).await?);
    alice.proxy.refuse_next(OpCode::GetData, ErrorCode::ThrottledOp, REFUSALS);
    let start = std::time::Instant::now();
    guard.revoke_requested().await?;
    assert!(start.elapsed() >= PAUSES, "{REFUSALS} times in {:?}", start.elapsed());
    guard.release().await?;
    Ok(())
}
