//! Queues: no item is lost or done twice, and no consumer is woken without need.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use lockkeeper::{
    AtMostOnce, Client, Contact, CreateMode, ErrorCode, Failure, HolderState, Item, ItemState,
    LossReason, Outcome, PutOptions, Queue, QueueError, Raw, Verdict, ZnodePath,
};
use lockkeeper_client::present;
use lockkeeper_testkit::backend::{Backend, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::jeopardy::short;
use crate::{Clients, Observed, Pair, contract, next_session};

contract!(queue);

const JOBS: &str = "/app/jobs";

/// What no wait comes near unless it hangs.
const LONG: Duration = Duration::from_secs(30);

/// A wait that ends without an item.
const SHORT: Duration = Duration::from_millis(100);

fn node(name: &str) -> ZnodePath {
    ZnodePath::new(&format!("{JOBS}{name}")).expect("a path")
}

fn jobs(client: &Client) -> Result<Queue<u32>> {
    Ok(Queue::new(client, JOBS)?)
}

fn taking(queue: &Queue<u32>) -> JoinHandle<Result<Item<u32>, QueueError>> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.take().await })
}

async fn taken(taking: JoinHandle<Result<Item<u32>, QueueError>>) -> Result<Item<u32>> {
    Ok(tokio::time::timeout(LONG, taking).await.context("nothing is taken")???)
}

/// Takes all items, and records them as done.
async fn drained(queue: &Queue<u32>) -> Result<Vec<u32>> {
    let mut values = Vec::new();
    while let Some(item) = queue.try_take().await? {
        values.push(*item.value());
        item.done().await?;
    }
    Ok(values)
}

/// Waits until this many consumers are in the queue.
async fn in_line(observer: &Client, count: usize) -> Result<()> {
    children_reach(observer, &node("/line"), count).await
}

async fn items_come_in_order_and_are_gone_when_they_are_done((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    let first = ours.put(&1).await?;
    let more = ours.put_all(&[2, 3, 4]).await?;
    assert_eq!(more.iter().chain([&first]).collect::<BTreeSet<_>>().len(), 4);

    let item = theirs.take().await?;
    assert_eq!((*item.value(), item.id(), item.attempt()), (1, first.as_str(), 1));
    assert!(item.is_held() && item.deadline().is_some() && !item.is_ended());
    let token = item.token();
    item.done().await?;
    assert!(item.is_ended());
    assert!(matches!(item.done().await, Err(QueueError::Ended { .. })));

    let second = theirs.take().await?;
    assert!(second.token() > token);
    second.done().await?;
    assert_eq!(drained(&theirs).await?, [3, 4]);
    assert!(theirs.try_take().await?.is_none() && ours.try_take().await?.is_none());
    assert!(theirs.take_timeout(SHORT).await?.is_none());
    for part in ["/bodies", "/claims", "/entries/0000000000", "/line"] {
        children_reach(&one, &node(part), 0).await?;
    }
    Ok(())
}

async fn an_item_has_one_holder((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    ours.put_all(&[1, 2]).await?;
    let (mine, other) = (ours.take().await?, theirs.take().await?);
    assert_ne!(mine.value(), other.value());
    assert!(ours.try_take().await?.is_none() && theirs.try_take().await?.is_none());
    mine.done().await?;
    Ok(other.done().await?)
}

/// A put, a take, and each kind of end is applied once, whichever reply is lost.
async fn a_lost_reply_changes_nothing((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    // Both have their markers by then.
    ours.put(&0).await?;
    theirs.take().await?.done().await?;

    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        alice.proxy.lose_next(OpCode::Multi, loss);
        ours.put_all(&[1, 2, 3, 4]).await?;
        bob.proxy.lose_next(OpCode::Multi, loss);
        let done = theirs.take().await?;
        bob.proxy.lose_next(OpCode::Multi, loss);
        done.done().await?;
        let retried = theirs.take().await?;
        bob.proxy.lose_next(OpCode::Multi, loss);
        retried.retry("later").await?;
        let buried = theirs.take().await?;
        bob.proxy.lose_next(OpCode::Multi, loss);
        buried.bury("never").await?;
        assert_eq!((*done.value(), *retried.value(), *buried.value()), (1, 2, 3));
        assert_eq!(alice.proxy.losses_to_come() + bob.proxy.losses_to_come(), 0);

        assert_eq!(drained(&theirs).await?, [4, 2]);
        let [letter] = ours.dead_letters().await?.try_into().expect("one dead letter");
        assert!(ours.discard(&letter.id).await?);
    }
    children_reach(&alice.client, &node("/bodies"), 0).await
}

/// The idle consumer is woken by the death, which no listing would show.
/// In the order in which they are taken, each with the reason of its delay. Only an item without a holder is set aside.
async fn items_are_listed_and_one_that_waits_is_buried((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    assert!(matches!(ours.items(9).await, Err(QueueError::Deleted { .. })), "it makes no queue");
    let ids = ours.put_all(&[1, 2, 3]).await?;
    let later = PutOptions::new().delay(LONG).id("later");
    ours.put_with(&4, &later).await?;
    let urgent = PutOptions::new().priority(-5).key("k").id("urgent");
    ours.put_with(&5, &urgent).await?;
    let taken = theirs.take().await?;
    assert_eq!(taken.id(), "urgent");
    let again = theirs.take().await?;
    again.retry("not now").await?;

    let items = ours.items(9).await?;
    let listed: Vec<_> =
        items.iter().map(|item| (item.id.as_str(), item.state, item.attempts)).collect();
    let waits = ItemState::Waiting;
    let all = [
        ("urgent", ItemState::Claimed, 1),
        (ids[1].as_str(), waits, 0),
        (ids[2].as_str(), waits, 0),
        (ids[0].as_str(), waits, 1),
        ("later", ItemState::Delayed, 0),
    ];
    assert_eq!(listed, all);
    assert!(items[0].holder.is_some() && items[0].key.as_deref() == Some("k"), "{:?}", items[0]);
    assert_eq!((items[0].priority, items[3].reason.as_deref()), (-5, Some("not now")));
    assert!(items[4].due_unix_ms > Some(items[4].since_unix_ms), "{:?}", items[4]);
    assert_eq!(ours.items(2).await?, items[..2]);

    assert!(!ours.bury("urgent", "mine").await?, "a consumer works on it");
    assert!(!ours.bury("unknown", "mine").await? && !ours.bury("no/id", "mine").await?);
    assert!(ours.bury(&ids[2], "poison").await? && ours.bury("later", "poison").await?);
    assert!(!ours.bury(&ids[2], "poison").await?, "it is one");
    taken.done().await?;
    assert_eq!(drained(&theirs).await?, [2, 1]);
    let dead = ours.dead_letters().await?;
    let dead: Vec<_> = dead.iter().map(|it| (it.id.as_str(), it.reason.as_str())).collect();
    assert_eq!(dead, [(ids[2].as_str(), "poison"), ("later", "poison")]);
    assert!(ours.put_back("later").await?);
    let back = ours.items(9).await?;
    assert_eq!((back.len(), back[0].state), (1, ItemState::Delayed), "it is not due yet");
    Ok(())
}

/// A person takes an item from a consumer that hangs.
///
/// Seen to fail when the claim was named by the version before the take.
async fn an_item_whose_claim_is_deleted_goes_to_another((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let id = ours.put(&7).await?;
    assert_eq!(ours.items(1).await?[0].claim, None);
    let lost = theirs.take().await?;

    let claim = ours.items(1).await?[0].claim.clone().context("a consumer works on it")?;
    alice.client.delete(&claim, None).await?;
    let again = ours.take().await?;
    assert_eq!((again.id(), *again.value()), (id.as_str(), 7));
    assert!(lost.done().await.is_err(), "another consumer has it");
    again.done().await?;
    Ok(())
}

async fn what_a_dead_consumer_had_goes_to_another((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let id = ours.put(&7).await?;
    let lost = theirs.take().await?;
    let waiting = taking(&ours);
    in_line(&alice.observer().await?, 1).await?;
    let old = bob.client.session_id();
    bob.proxy.refuse();
    bob.proxy.expire_session().await?;

    let item = taken(waiting).await?;
    assert_eq!((item.id(), *item.value(), item.attempt()), (id.as_str(), 7, 2));
    assert!(item.token() > lost.token());
    bob.proxy.restore();
    next_session(&bob, old).await?;
    let late = lost.done().await;
    let reason = LossReason::SessionExpired;
    assert!(matches!(late, Err(QueueError::Lost { reason: r, .. }) if r == reason), "{late:?}");
    assert_eq!(lost.state(), HolderState::Lost(reason));
    item.done().await?;
    // It continues in the next session.
    ours.put(&8).await?;
    assert_eq!(*theirs.take().await?.value(), 8);
    Ok(())
}

/// A consumer that waited in line has died. Failed while its share of the items was left to it until its session had
/// expired.
async fn a_free_item_does_not_wait_for_a_dead_consumer((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let waiting = taking(&theirs);
    in_line(&alice.client, 1).await?;
    bob.proxy.refuse();

    ours.put_all(&[1, 2, 3, 4]).await?;
    let mut values = BTreeSet::new();
    for _ in 0..4 {
        let item = taken(taking(&ours)).await?;
        values.insert(*item.value());
        item.done().await?;
    }
    assert_eq!(values, BTreeSet::from([1, 2, 3, 4]));
    let (line, _) = alice.client.children(&node("/line")).await?;
    assert_eq!(line.len(), 1, "its session has not expired");
    waiting.abort();
    Ok(())
}

async fn who_waits_goes_on_with_the_next_session((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let waiting = taking(&theirs);
    let observer = alice.observer().await?;
    in_line(&observer, 1).await?;
    let old = bob.client.session_id();
    bob.proxy.refuse();
    bob.proxy.expire_session().await?;
    in_line(&observer, 0).await?;
    bob.proxy.restore();
    next_session(&bob, old).await?;
    in_line(&observer, 1).await?;
    ours.put(&1).await?;
    let item = taken(waiting).await?;
    assert_eq!(item.session(), bob.client.session_id());
    Ok(item.done().await?)
}

/// Somebody deletes the node by which others see this consumer. Fails while the first in line tried to take
/// again and again with the node that was gone.
async fn a_consumer_whose_node_is_deleted_goes_on((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let waiting = taking(&theirs);
    in_line(&alice.client, 1).await?;
    bob.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::MultiRead))).await;
    let (names, _) = alice.client.children(&node("/workers")).await?;
    let [name] = &names[..] else { bail!("{names:?}") };
    alice.client.delete(&node("/workers").child(name)?, None).await?;
    ours.put(&1).await?;
    taken(waiting).await?.done().await?;
    let (names, _) = alice.client.children(&node("/workers")).await?;
    assert_eq!(names.len(), 1, "it has another one");
    Ok(())
}

/// Its caller is not polled until another consumer may have it. Fails while it was handed over as it was.
async fn an_item_that_is_lost_before_it_is_handed_over_is_taken_again(
    (alice, bob): Pair,
) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    ours.put(&1).await?;
    let mut taking = std::pin::pin!(theirs.take());
    let once = std::future::poll_fn(|context| Poll::Ready(taking.as_mut().poll(context)));
    assert!(once.await.is_pending(), "nothing has been answered yet");
    children_reach(&alice.client, &node("/claims"), 1).await?;
    let old = bob.client.session_id();
    bob.proxy.refuse();
    bob.proxy.expire_session().await?;
    children_reach(&alice.client, &node("/claims"), 0).await?;
    bob.proxy.restore();
    next_session(&bob, old).await?;

    let item = taking.await?;
    assert!(item.is_held() && item.session() != old, "{item:?}");
    assert_eq!(item.attempt(), 2);
    Ok(item.done().await?)
}

/// An item that was put while the first in line had no connection.
async fn nothing_is_missed_without_a_connection((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let waiting = taking(&theirs);
    bob.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetChildren2))).await;
    in_line(&alice.client, 1).await?;
    bob.proxy.refuse();
    ours.put(&1).await?;
    bob.proxy.restore();
    taken(waiting).await?.done().await?;
    Ok(())
}

/// The limit is the caller's, and longer than the outage.
async fn a_take_with_a_limit_outlasts_an_outage(backend: Backend) -> Result<()> {
    let (observer, bob) = (backend.observer().await?, short(&backend).await?);
    let (ours, theirs) = (jobs(&observer)?, jobs(&bob.client)?);
    ours.put(&1).await?;
    theirs.take().await?.done().await?;
    assert!(theirs.take_timeout(Duration::from_millis(1)).await?.is_none());

    bob.proxy.freeze();
    let mut status = bob.client.status();
    status.wait_for(|status| status.contact == Contact::Unreachable).await?;
    assert!(theirs.take().await.is_err_and(|error| error.is_retryable()));
    let waiting = tokio::spawn(async move { theirs.take_timeout(LONG).await });
    ours.put(&2).await?;
    bob.proxy.restore();
    let item = waiting.await??.context("nothing was taken")?;
    assert_eq!(*item.value(), 2);
    Ok(item.done().await?)
}

async fn what_is_given_back_keeps_its_place((alice, bob): Pair) -> Result<()> {
    let ours = jobs(&alice.client)?;
    let theirs: Queue<u32> =
        Queue::<u32>::builder(&bob.client, JOBS).strictly_in_order(true).build()?;
    ours.put_all(&[1, 2]).await?;
    let (first, second) = (ours.take().await?, ours.take().await?);
    let waiting = taking(&theirs);
    in_line(&alice.client, 1).await?;
    // Whoever waits is woken.
    drop(second);
    let item = taken(waiting).await?;
    assert_eq!((*item.value(), item.attempt()), (2, 2));
    drop(item);
    drop(first);
    children_reach(&alice.client, &node("/claims"), 0).await?;
    assert_eq!(drained(&theirs).await?, [1, 2]);
    Ok(())
}

async fn a_take_that_is_dropped_gives_back((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    ours.put(&0).await?;
    theirs.take().await?.done().await?;

    // While it waits in line, and while the answer to its claim is on its way.
    let waiting = taking(&theirs);
    in_line(&alice.client, 1).await?;
    waiting.abort();
    in_line(&alice.client, 0).await?;
    ours.put(&1).await?;
    bob.proxy.hold_replies();
    let waiting = taking(&theirs);
    bob.proxy.restore();
    bob.proxy.clear();
    bob.proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::MultiRead))).await;
    bob.proxy.hold_replies();
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    bob.proxy.restore();
    let item = tokio::time::timeout(LONG, ours.take()).await??;
    assert_eq!(*item.value(), 1);
    Ok(item.done().await?)
}

async fn what_is_retried_comes_last_and_then_dies((one, two): Clients) -> Result<()> {
    let ours = jobs(&one)?;
    let theirs: Queue<u32> = Queue::<u32>::builder(&two, JOBS).max_tries(2).label("w").build()?;
    let id = ours.put(&1).await?;
    ours.put(&2).await?;
    let item = theirs.take().await?;
    item.retry("the disk is full").await?;
    assert!(matches!(item.bury("").await, Err(QueueError::Ended { .. })));
    theirs.take().await?.done().await?;
    let again = theirs.take().await?;
    assert_eq!((again.id(), *again.value(), again.attempt()), (id.as_str(), 1, 2));
    again.retry("the disk is full").await?;
    assert!(theirs.try_take().await?.is_none());

    let letters = ours.dead_letters().await?;
    let [letter] = &letters[..] else { bail!("{letters:?}") };
    assert_eq!((letter.id.as_str(), letter.attempts), (id.as_str(), 2));
    assert_eq!(letter.reason, "tried 2 times: the disk is full");
    let holder = letter.holder.as_ref().context("its holder is known")?;
    assert_eq!((holder.pid, holder.label.as_deref()), (std::process::id(), Some("w")));
    assert_eq!(ours.dead_value(&id).await?, Some(1));
    let report = ours.inspect().await?;
    assert_eq!((report.waiting, report.claimed, report.dead, report.retries), (0, 0, 1, 1));

    assert!(ours.put_back(&id).await? && !ours.put_back(&id).await?);
    let item = theirs.take().await?;
    assert_eq!((item.id(), item.attempt()), (id.as_str(), 1));
    item.bury("it is no picture").await?;
    assert_eq!(ours.dead_letters().await?[0].reason, "it is no picture");
    assert!(ours.discard(&id).await? && !ours.discard(&id).await?);
    assert_eq!(ours.dead_value(&id).await?, None);
    children_reach(&one, &node("/bodies"), 0).await
}

/// Its consumers die before they can report a failure.
async fn an_item_that_kills_its_consumers_is_buried((alice, bob): Pair) -> Result<()> {
    let ours = jobs(&alice.client)?;
    let theirs: Queue<u32> = Queue::<u32>::builder(&bob.client, JOBS).max_tries(2).build()?;
    ours.put(&1).await?;
    for attempt in 1..=2 {
        assert_eq!(theirs.take().await?.attempt(), attempt);
        children_reach(&alice.client, &node("/claims"), 0).await?;
    }
    assert!(theirs.try_take().await?.is_none());
    let letters = ours.dead_letters().await?;
    let [letter] = &letters[..] else { bail!("{letters:?}") };
    assert_eq!(letter.attempts, 2);
    assert!(letter.reason.contains("given back or lost"), "{}", letter.reason);
    assert_eq!(letter.holder.as_ref().map(|holder| holder.pid), Some(std::process::id()));
    Ok(())
}

/// Fails when its only consumer passed it over from then on.
async fn an_item_whose_burial_is_unknown_is_buried_later((alice, bob): Pair) -> Result<()> {
    const LOSSES: usize = 50;
    let ours = jobs(&alice.client)?;
    let theirs: Queue<u32> = Queue::<u32>::builder(&bob.client, JOBS).max_tries(1).build()?;
    ours.put_all(&[1, 2]).await?;
    let first = theirs.take().await?;
    drop(ours.take().await?);
    children_reach(&alice.client, &node("/claims"), 1).await?;

    // It learns that the second one was taken before, and nothing else.
    bob.proxy.refuse_next(OpCode::MultiRead, ErrorCode::NoAuth, 1);
    assert!(theirs.try_take().await.is_err());

    (0..LOSSES).for_each(|_| bob.proxy.lose_next(OpCode::Multi, Loss::BeforeRequest));
    let consumer = theirs.clone();
    let burying = tokio::spawn(async move { consumer.try_take().await.map(drop) });
    while bob.proxy.losses_to_come() == LOSSES {
        tokio::task::yield_now().await;
    }
    let markers = ZnodePath::new("/lockkeeper-outcomes")?;
    for marker in alice.client.children(&markers).await?.0 {
        alice.client.delete(&markers.child(&marker)?, None).await?;
    }
    bob.proxy.lose_no_more();
    let unknown = tokio::time::timeout(LONG, burying).await??;
    assert!(matches!(unknown, Err(QueueError::Unknown { .. })), "{unknown:?}");

    assert!(theirs.try_take().await?.is_none());
    assert_eq!(ours.dead_letters().await?.len(), 1);
    Ok(first.done().await?)
}

async fn writes_of_the_holder_are_made_with_the_end((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    let (effect, taken_path) = (ZnodePath::new("/effect")?, ZnodePath::new("/taken")?);
    one.create(&taken_path, "", CreateMode::Persistent).await?;
    ours.put(&1).await?;
    let item = theirs.take().await?;
    let create = |path: &ZnodePath| two.transaction().create(path, "", CreateMode::Persistent);
    let refused = item.done_with(create(&effect).create(&taken_path, "", CreateMode::Persistent));
    match refused.await {
        Err(QueueError::Refused {
            source: lockkeeper::TransactionError::Failed { index, code, .. },
            ..
        }) => {
            assert_eq!((index, code), (1, ErrorCode::NodeExists));
        }
        other => bail!("{other:?}"),
    }
    // Neither: it is still held.
    assert!(one.exists(&effect).await?.is_none() && item.is_held() && !item.is_ended());
    item.done_with(create(&effect)).await?;
    assert!(one.exists(&effect).await?.is_some());
    assert!(ours.try_take().await?.is_none());

    // Whoever has lost the item has no effect.
    ours.put(&2).await?;
    let item = theirs.take().await?;
    one.delete(item.node(), None).await?;
    one.delete(&effect, None).await?;
    let late = item.done_with(create(&effect)).await;
    assert!(
        matches!(late, Err(QueueError::Lost { reason: LossReason::NodeDeleted, .. })),
        "{late:?}"
    );
    assert!(one.exists(&effect).await?.is_none());
    assert_eq!(ours.take().await?.attempt(), 2);
    Ok(())
}

/// Many tasks of a handle share a transaction. One that is refused does not spoil it for the others.
async fn a_stale_item_does_not_spoil_the_ends_of_others((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    ours.put_all(&(0..20).collect::<Vec<_>>()).await?;
    let mut items = Vec::new();
    for _ in 0..20 {
        items.push(theirs.take().await?);
    }
    alice.client.delete(items[7].node(), None).await?;
    alice.client.delete(items[13].node(), None).await?;

    bob.proxy.clear();
    bob.proxy.hold_replies();
    let mut ends = tokio::task::JoinSet::new();
    for (index, item) in items.into_iter().enumerate() {
        ends.spawn(async move { (index, item.done().await) });
    }
    bob.proxy.restore();
    while let Some(ended) = ends.join_next().await {
        let (index, ended) = ended?;
        let is_lost = matches!(ended, Err(QueueError::Lost { .. }));
        assert_eq!(is_lost, [7, 13].contains(&index), "{index}: {ended:?}");
        assert!(is_lost || ended.is_ok(), "{index}: {ended:?}");
    }
    let requests = bob.proxy.requests();
    let multis = requests.iter().filter(|op| **op == OpCode::Multi).count();
    assert!(multis < 10, "{multis} transactions for 20 ends");
    assert_eq!(drained(&ours).await?.len(), 2);
    Ok(())
}

async fn an_item_that_is_held_for_too_long_is_lost(backend: Backend) -> Result<()> {
    let (observer, bob) = (backend.observer().await?, short(&backend).await?);
    let ours = jobs(&observer)?;
    let options = Queue::<u32>::builder(&bob.client, JOBS);
    let theirs: Queue<u32> = options.max_run(Duration::from_millis(50)).build()?;
    ours.put(&1).await?;
    let item = theirs.take().await?;
    let deadline = item.deadline().context("it is held")?;
    let waiting = taking(&ours);
    assert_eq!(item.lost().await, LossReason::HeldTooLong);
    let late = item.done().await;
    assert!(
        matches!(late, Err(QueueError::Lost { reason: LossReason::HeldTooLong, .. })),
        "{late:?}"
    );

    // The holder may have relied on the reported deadline.
    let next = taken(waiting).await?;
    assert!(bob.client.now() >= deadline);
    assert_eq!(next.attempt(), 2);
    next.done().await?;

    // One that is in time is not disturbed, and its end stays.
    ours.put(&2).await?;
    theirs.take().await?.done().await?;
    assert!(ours.try_take().await?.is_none());
    Ok(())
}

/// It stays for consumers that can read it, however often others have tried.
async fn an_item_that_cannot_be_read_is_told_and_stays((one, two): Clients) -> Result<()> {
    const TRIES: u32 = 2;
    let raw = Queue::<Bytes>::builder(&one, JOBS).max_tries(TRIES).build_with(Raw)?;
    let new_jobs = || Queue::<u32>::builder(&two, JOBS).max_tries(TRIES).build();
    let theirs = new_jobs()?;
    let id = raw.put(&Bytes::from_static(b"no number")).await?;
    raw.put(&Bytes::from_static(b"5")).await?;
    match theirs.take().await {
        Err(error @ QueueError::Undecodable { .. }) => {
            assert!(error.to_string().contains(&id) && error.is_retryable(), "{error}");
        }
        other => bail!("{other:?}"),
    }
    assert_eq!(drained(&theirs).await?, [5]);
    assert!(theirs.take_timeout(SHORT).await?.is_none());
    for _ in 0..2 * TRIES {
        let theirs = new_jobs()?;
        let told = theirs.take().await;
        ensure!(matches!(told, Err(QueueError::Undecodable { .. })), "{told:?}");
        children_reach(&one, &node("/claims"), 0).await?;
    }
    let item = raw.take().await?;
    assert_eq!((item.id(), item.value().as_ref()), (id.as_str(), &b"no number"[..]));
    assert_eq!(item.attempt(), 1);
    Ok(item.done().await?)
}

async fn at_most_once_is_gone_when_it_is_taken((alice, bob): Pair) -> Result<()> {
    let ours = jobs(&alice.client)?;
    let theirs: Queue<u32, AtMostOnce> =
        Queue::<u32>::builder(&bob.client, JOBS).delivery(AtMostOnce).build()?;
    let waiting = {
        let theirs = theirs.clone();
        tokio::spawn(async move { theirs.take().await })
    };
    in_line(&alice.client, 1).await?;
    ours.put(&1).await?;
    assert_eq!(tokio::time::timeout(LONG, waiting).await???, 1);
    ours.put_all(&[2, 3, 4]).await?;
    for value in 2..4 {
        bob.proxy.lose_next(OpCode::Multi, Loss::BeforeReply);
        assert_eq!(theirs.take().await?, value);
    }
    assert_eq!(theirs.try_take().await?, Some(4));
    assert_eq!((theirs.try_take().await?, theirs.take_timeout(SHORT).await?), (None, None));
    for part in ["/bodies", "/claims", "/entries/0000000000"] {
        children_reach(&alice.client, &node(part), 0).await?;
    }

    // An item that another consumer had and returned.
    ours.put(&5).await?;
    drop(ours.take().await?);
    children_reach(&alice.client, &node("/claims"), 0).await?;
    assert_eq!(theirs.try_take().await?, Some(5));
    Ok(())
}

/// However many consumers wait: one event for the put, and one for the place of the consumer that takes it.
async fn an_item_costs_two_events_however_many_wait(backend: Backend) -> Result<()> {
    const CONSUMERS: usize = 12;
    const ITEMS: usize = 10;
    let producer = backend.observer().await?;
    let queue = jobs(&producer)?;
    // Everything is there before anything is counted.
    queue.put(&0).await?;
    let mut consumers = Vec::new();
    let mut waiting = tokio::task::JoinSet::new();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    for _ in 0..CONSUMERS {
        let consumer = backend.participant().await?;
        let jobs = jobs(&consumer.client)?;
        drained(&jobs).await?;
        let gate = gate.clone();
        waiting.spawn(async move {
            // No consumer returns, so that a needless wake-up shows.
            let item = jobs.take().await?;
            item.done().await?;
            gate.acquire().await?.forget();
            anyhow::Ok(jobs)
        });
        consumers.push(consumer);
        in_line(&producer, consumers.len()).await?;
    }
    let first = &consumers[0].proxy;
    first
        .passes(|passed| {
            passed.iter().filter(|it| **it == Passed::Reply(OpCode::MultiRead)).count() > 2
        })
        .await;

    for consumer in &consumers {
        consumer.proxy.clear();
    }
    for item in 1..=ITEMS {
        queue.put(&0).await?;
        in_line(&producer, CONSUMERS - item).await?;
    }
    children_reach(&producer, &node("/bodies"), 0).await?;
    let events: usize = consumers.iter().map(|consumer| consumer.proxy.events().len()).sum();
    assert!(events <= 2 * ITEMS, "{events} events for {ITEMS} items");
    let idle = consumers.last().context("there are some")?;
    assert!(idle.proxy.events().is_empty(), "the last in line was not woken");
    gate.add_permits(CONSUMERS);
    Ok(())
}

async fn whoever_is_woken_leaves_the_rest_to_the_next((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let all: Vec<_> = (0..3).map(|_| taking(&theirs)).collect();
    in_line(&alice.client, 3).await?;
    // One event covers all of them.
    ours.put_all(&[1, 2, 3]).await?;
    let mut values = BTreeSet::new();
    for waiting in all {
        let item = taken(waiting).await?;
        values.insert(*item.value());
        item.done().await?;
    }
    assert_eq!(values, BTreeSet::from([1, 2, 3]));
    Ok(())
}

/// Over many segments, of which those that are empty go.
async fn a_long_queue_keeps_its_order((one, two): Clients) -> Result<()> {
    const ALL: u32 = 1_000;
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    let mut next = 0;
    while next < ALL {
        let chunk: Vec<_> = (next..(next + 90).min(ALL)).collect();
        ours.put_all(&chunk).await?;
        next += 90;
    }
    let (segments, _) = one.children(&node("/entries")).await?;
    assert!((4..=5).contains(&segments.len()), "{segments:?}");
    let report = ours.inspect().await?;
    assert_eq!((report.waiting, report.claimed, report.workers), (1_000, 0, 0));
    assert!(report.oldest_unix_ms.is_some());

    let held = theirs.take().await?;
    assert_eq!(*held.value(), 0);
    for wanted in 1..ALL {
        let item = theirs.take().await?;
        assert_eq!(*item.value(), wanted);
        item.done().await?;
    }
    let report = theirs.inspect().await?;
    assert_eq!((report.waiting, report.claimed, report.workers, report.idle), (0, 1, 1, 0));
    held.done().await?;
    assert!(theirs.try_take().await?.is_none());
    children_reach(&one, &node("/entries"), 1).await
}

/// Of many producers, and over the ends of segments.
async fn strictly_in_order_is_so_beside_others((one, two): Clients) -> Result<()> {
    const ALL: u32 = 300;
    let ours = jobs(&one)?;
    let strictly = |client| Queue::<u32>::builder(client, JOBS).strictly_in_order(true).build();
    let consumers: [Queue<u32>; 2] = [strictly(&one)?, strictly(&two)?];
    for value in 0..ALL {
        ours.put(&value).await?;
    }
    let mut working = tokio::task::JoinSet::new();
    for queue in consumers.iter().cycle().take(4) {
        let queue = queue.clone();
        working.spawn(async move {
            let mut taken = Vec::new();
            while let Some(item) = queue.try_take().await? {
                taken.push((item.token(), *item.value()));
                item.done().await?;
            }
            anyhow::Ok(taken)
        });
    }
    let mut taken = Vec::new();
    while let Some(some) = working.join_next().await {
        taken.extend(some??);
    }
    taken.sort_unstable();
    let order: Vec<_> = taken.into_iter().map(|(_, value)| value).collect();
    assert_eq!(order, (0..ALL).collect::<Vec<_>>());
    Ok(())
}

async fn a_handler_works_on_each_item((alice, bob): Pair) -> Result<()> {
    let ours = jobs(&alice.client)?;
    let theirs: Queue<u32> = Queue::<u32>::builder(&bob.client, JOBS).max_tries(3).build()?;
    ours.put_all(&(1..=30).collect::<Vec<_>>()).await?;
    let (seen, tries, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let running = AtomicUsize::new(0);
    let handler = async |item: Arc<Item<u32>>| {
        most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        running.fetch_sub(1, Ordering::Relaxed);
        seen.fetch_add(1, Ordering::Relaxed);
        match *item.value() {
            10 => {
                tries.fetch_add(1, Ordering::Relaxed);
                Err("it cannot be done")
            }
            11 => Ok(Verdict::Bury("it must not be done".to_owned())),
            12 => match item.done().await {
                Ok(()) => Ok(Verdict::Retry("no client asks any more".to_owned())),
                Err(_) => Err("it is held"),
            },
            _ => Ok(Verdict::Done),
        }
    };
    let stop = async {
        while ours.inspect().await.is_ok_and(|it| (it.waiting, it.claimed, it.dead) != (0, 0, 2)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, theirs.work_until(4, stop, handler)).await??;
    assert_eq!((seen.into_inner(), tries.into_inner()), (32, 3));
    assert!((2..=4).contains(&most.into_inner()));
    let mut reasons: Vec<_> =
        ours.dead_letters().await?.into_iter().map(|letter| letter.reason).collect();
    reasons.sort();
    assert_eq!(reasons, ["it must not be done", "tried 3 times: it cannot be done"]);
    Ok(())
}

/// A handler that ended its item itself, as with writes of its own, was dropped at its next wait.
async fn a_handler_goes_on_when_it_has_ended_its_item((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    ours.put(&1).await?;
    let went_on = Notify::new();
    let handler = async |item: Arc<Item<u32>>| -> Result<(), QueueError> {
        item.done().await?;
        for _ in 0..20 {
            ours.inspect().await?;
        }
        went_on.notify_one();
        Ok(())
    };
    tokio::time::timeout(LONG, theirs.work_until(1, went_on.notified(), handler)).await??;
    Ok(())
}

/// The handler is dropped with its item, and continues in the next session.
async fn a_handler_outlives_sessions((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (jobs(&alice.client)?, jobs(&bob.client)?);
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let working = tokio::spawn(async move {
        let handler = |item: Arc<Item<u32>>| {
            let _ = begun.send(item.attempt());
            async move {
                if item.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
            }
        };
        theirs.work(2, handler).await
    });
    ours.put(&1).await?;
    assert_eq!(tokio::time::timeout(LONG, begins.recv()).await?, Some(1));
    let old = bob.client.session_id();
    bob.proxy.refuse();
    bob.proxy.expire_session().await?;
    bob.proxy.restore();
    next_session(&bob, old).await?;
    assert_eq!(tokio::time::timeout(LONG, begins.recv()).await?, Some(2));
    children_reach(&alice.client, &node("/bodies"), 0).await?;

    // What is stopped is given back.
    ours.put(&2).await?;
    assert_eq!(tokio::time::timeout(LONG, begins.recv()).await?, Some(1));
    working.abort();
    children_reach(&alice.client, &node("/claims"), 0).await?;
    assert_eq!(ours.take().await?.attempt(), 2);
    Ok(())
}

async fn a_queue_in_use_is_not_deleted((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    assert!(!ours.delete().await?);
    ours.put_all(&[1, 2, 3]).await?;
    let item = theirs.take().await?;
    match ours.delete().await {
        Err(QueueError::InUse { workers: 1, claims: 1, .. }) => {}
        other => bail!("{other:?}"),
    }
    item.bury("for the test").await?;
    drop(item);
    drop(theirs);
    children_reach(&one, &node("/workers"), 0).await?;

    let producer = jobs(&two)?;
    producer.put(&4).await?;
    assert!(ours.delete().await?);
    assert!(one.exists(&node("")).await?.is_none());
    let told = producer.put(&5).await;
    assert!(matches!(told, Err(QueueError::Deleted { .. })), "{told:?}");
    // It is another queue from then on.
    producer.put(&6).await?;
    assert_eq!(drained(&ours).await?, [6]);
    assert!(ours.inspect().await?.dead == 0);
    Ok(())
}

/// By hand, or by an earlier call that was cut short.
async fn a_queue_that_is_going_is_refused_and_goes((one, two): Clients) -> Result<()> {
    let (ours, theirs) = (jobs(&one)?, jobs(&two)?);
    ours.put_all(&[1, 2]).await?;
    one.set_data(&node(""), r#"{"lockkeeper-queue":1,"is_going":true}"#, None).await?;
    let told = [theirs.put(&3).await.err(), theirs.try_take().await.err()];
    for told in told {
        assert!(matches!(told, Some(QueueError::Deleted { .. })), "{told:?}");
    }
    assert!(theirs.delete().await?);
    assert!(one.exists(&node("")).await?.is_none());

    // Consumers that wait while an operator deletes everything get an error.
    let ours = jobs(&one)?;
    ours.put(&1).await?;
    assert_eq!(drained(&theirs).await?, [1]);
    let waiting = taking(&theirs);
    in_line(&one, 1).await?;
    delete_below(&one, &node("")).await?;
    let told = tokio::time::timeout(LONG, waiting).await??;
    assert!(matches!(told, Err(QueueError::Deleted { .. })), "{told:?}");
    Ok(())
}

/// Deletes a node and all nodes below it, as an operator might.
async fn delete_below(client: &Client, top: &ZnodePath) -> Result<()> {
    // Nodes that their owner deletes during this are gone as well.
    let names = present(client.children(top).await)?.map(|(names, _)| names);
    for name in names.unwrap_or_default() {
        Box::pin(delete_below(client, &top.child(&name)?)).await?;
    }
    present(client.delete(top, None).await)?;
    Ok(())
}

async fn what_is_no_queue_is_left_alone(client: Client) -> Result<()> {
    let queue = jobs(&client)?;
    client.create(&ZnodePath::new("/app")?, "", CreateMode::Persistent).await?;
    for data in ["", "192.0.2.1", r#"{"lockkeeper-queue":2}"#] {
        client.create(&node(""), data, CreateMode::Persistent).await?;
        client.create(&node("/queue-0000000000"), "x", CreateMode::Persistent).await?;
        let told = [
            queue.put(&1).await.err(),
            queue.try_take().await.err(),
            queue.inspect().await.err(),
            queue.delete().await.err(),
        ];
        for told in told {
            assert!(matches!(told, Some(QueueError::Foreign { .. })), "{data}: {told:?}");
        }
        assert_eq!(client.children(&node("")).await?.0, ["queue-0000000000"]);
        delete_below(&client, &node("")).await?;
    }
    queue.put(&1).await?;
    // Nodes of others among the entries are passed over.
    let foreign = node("/entries/0000000000/qn-0000000000");
    client.create(&foreign, "x", CreateMode::Persistent).await?;
    client.create(&node("/entries/notes"), "x", CreateMode::Persistent).await?;
    assert_eq!(drained(&queue).await?, [1]);
    assert!(queue.take_timeout(SHORT).await?.is_none());
    assert!(client.exists(&foreign).await?.is_some());
    Ok(())
}

async fn what_is_too_large_is_refused(client: Client) -> Result<()> {
    let queue: Queue<String> = Queue::new(&client, JOBS)?;
    let huge = "x".repeat(17 << 20);
    let told = queue.put(&huge).await;
    assert!(matches!(told, Err(QueueError::ValueTooLong { .. })), "{told:?}");
    assert_eq!(told.map_err(|error| error.outcome()), Err(Outcome::NotApplied));
    let nan: Queue<f64> = Queue::new(&client, JOBS)?;
    assert!(matches!(nan.put(&f64::NAN).await, Err(QueueError::Unencodable { .. })));
    assert_eq!(queue.put_all(&[]).await?, Vec::<String>::new());
    assert!(queue.try_take().await?.is_none());
    assert!(matches!(Queue::<u32>::new(&client, "/"), Err(QueueError::Path(_))));
    Ok(())
}

/// What is asked for by work under a lock is bound to it, and waits for no other task.
async fn work_under_a_lock_puts_and_takes((observed, client): Observed) -> Result<()> {
    let (ours, theirs) = (jobs(&observed.client)?, jobs(&client)?);
    theirs.put(&1).await?;
    let item = ours.take().await?;
    let id = item.run(async { ours.put(&2).await }).await??;
    let other = item.run(ours.take()).await??;
    assert_eq!(other.id(), id);
    item.run(other.done()).await??;
    Ok(item.done().await?)
}

/// Its consumers make room.
#[tokio::test]
async fn a_full_server_refuses_puts_and_lets_items_be_taken() -> Result<()> {
    let engine = lockkeeper_engine::Engine::builder().data_budget(200_000).start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    let queue: Queue<String> = Queue::<String>::builder(&client, JOBS).max_tries(2).build()?;
    let body = "x".repeat(1_000);
    let mut put = 0;
    let refused = loop {
        match queue.put(&body).await {
            Ok(_) => put += 1,
            Err(error) => break error,
        }
    };
    assert!(put > 20 && refused.to_string().contains("no room"), "{put}: {refused}");
    assert_eq!(refused.outcome(), Outcome::NotApplied);
    // Whatever is left.
    while client.create(&node("/bodies/fill-"), "", CreateMode::PersistentSequential).await.is_ok()
    {
    }

    let item = queue.take().await?;
    item.retry("later").await?;
    for _ in 1..put {
        queue.take().await?.done().await?;
    }
    let item = queue.take().await?;
    assert_eq!(item.attempt(), 2);
    item.done().await?;
    assert!(queue.try_take().await?.is_none());
    queue.put(&body).await?;
    client.close().await;
    Ok(())
}
