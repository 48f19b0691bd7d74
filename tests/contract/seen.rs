//! What other programs see of a lock without a queue, or of a lock with a delay.

use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::inspect::{self, LockQueue, QueueWatch};
use lockkeeper::revoke::{RevokeOutcome, revoke, revoke_within};
use lockkeeper::{
    Client, CreateMode, ExclusiveNode, FencingToken, LossReason, Mutex, Names, RwLock, SessionId,
    ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;

use crate::{LOCK, Observed, Pair, contract, lock_path, queue_up};

contract!(seen);

/// Long enough to tell from a busy machine's pauses.
const DELAY: Duration = Duration::from_millis(1500);

const LONG: Duration = Duration::from_secs(600);

/// The one holder that is seen at a path, which is the node there, in the look at it and in that at all.
async fn holder_of(client: &Client, path: &ZnodePath) -> Result<(FencingToken, SessionId)> {
    let queue = LockQueue::inspect(client, path).await?.context("a node")?;
    let all = inspect::queues(client, &ZnodePath::root()).await?.queues;
    let listed = all.iter().find(|queue| queue.path == *path).context("it is listed")?;
    for queue in [&queue, listed] {
        assert!(queue.is_node() && queue.profile.is_none(), "{queue:?}");
        assert_eq!((queue.holders().count(), queue.waiters().count()), (1, 0), "{queue:?}");
        assert_eq!(queue.entries[0].node, *path);
    }
    assert_eq!(queue.entries[0].token, listed.entries[0].token);
    Ok((queue.entries[0].token, queue.entries[0].session))
}

/// Symptom: a held `ExclusiveNode`, or a name, looked free to other programs.
async fn a_node_that_is_the_lock_is_seen((alice, observer): Observed) -> Result<()> {
    let lock = ExclusiveNode::builder(&alice.client, LOCK).label("nightly").build()?;
    let guard = lock.acquire().await?;
    let names = Names::builder(&alice.client, "/workers").label("10.0.0.7").build()?;
    let claim = names.claim("worker-1").await?;

    let found = holder_of(&observer, &lock_path()).await?;
    assert_eq!(found, (guard.token(), alice.client.session_id()));
    let found = holder_of(&observer, &ZnodePath::new("/workers/worker-1")?).await?;
    assert_eq!(found, (claim.token(), alice.client.session_id()));
    let queue = LockQueue::inspect(&observer, &lock_path()).await?.context("a node")?;
    let owner = queue.entries[0].owner.as_ref().context("one of ours")?;
    assert_eq!((owner.pid, owner.label.as_deref()), (std::process::id(), Some("nightly")));

    // What any other program has in this way, whatever it writes into it.
    let theirs = ZnodePath::new("/controller")?;
    alice.client.create(&theirs, "broker 3", CreateMode::Ephemeral).await?;
    let (_, session) = holder_of(&observer, &theirs).await?;
    assert_eq!(session, alice.client.session_id());

    guard.release().await?;
    claim.release().await?;
    observer.sync(&lock_path()).await?;
    assert!(LockQueue::inspect(&observer, &lock_path()).await?.is_none());
    // A persistent node is not a hold.
    alice.client.create(&lock_path(), "x", CreateMode::Persistent).await?;
    let queue = LockQueue::inspect(&observer, &lock_path()).await?.context("a node")?;
    assert!(!queue.is_node() && queue.entries.is_empty(), "{queue:?}");
    Ok(())
}

async fn a_wait_for_a_node_ends_with_it((alice, bob): Pair) -> Result<()> {
    let guard = ExclusiveNode::new(&alice.client, LOCK)?.acquire().await?;
    bob.proxy.clear();
    let client = bob.client.clone();
    let waiting =
        tokio::spawn(async move { inspect::wait_until_free(&client, &lock_path()).await });
    // It has looked at the node, and then watches it.
    let reads = |passed: &[Passed]| crate::gets(passed) >= 2;
    bob.proxy.passes(reads).await;
    assert!(!waiting.is_finished());
    guard.release().await?;
    waiting.await??;
    Ok(())
}

async fn the_holder_of_a_node_is_asked_and_forced((alice, bob): Pair) -> Result<()> {
    let guard = ExclusiveNode::new(&alice.client, LOCK)?.acquire().await?;
    assert_eq!(revoke(&bob.client, &lock_path()).await?, [lock_path()]);
    guard.revoke_requested().await?;
    assert!(guard.is_held(), "a request does not take the lock");

    let went = revoke_within(&bob.client, &lock_path(), Duration::ZERO).await?;
    assert_eq!(went, [(lock_path(), RevokeOutcome::Forced)]);
    assert_eq!(guard.lost().await, LossReason::Revoked);

    let guard = ExclusiveNode::new(&alice.client, LOCK)?;
    drop(guard.try_acquire().await?);
    let guard = ExclusiveNode::new(&alice.client, LOCK)?.acquire().await?;
    let leaving = tokio::spawn(async move {
        guard.revoke_requested().await?;
        guard.release().await?;
        anyhow::Ok(())
    });
    let went = revoke_within(&bob.client, &lock_path(), LONG).await?;
    assert_eq!(went, [(lock_path(), RevokeOutcome::GaveWay)]);
    leaving.await?
}

/// A request would replace what the node is there to say.
async fn the_node_of_another_program_is_not_written_to((alice, bob): Pair) -> Result<()> {
    alice.client.ensure(&lock_path().parent().context("no root")?, CreateMode::Container).await?;
    alice.client.create(&lock_path(), "broker 3", CreateMode::Ephemeral).await?;
    assert_eq!(revoke(&bob.client, &lock_path()).await?, []);
    let (data, stat) = bob.client.data(&lock_path()).await?;
    assert_eq!((&data[..], stat.version), (&b"broker 3"[..], 0));

    let went = revoke_within(&bob.client, &lock_path(), Duration::ZERO).await?;
    assert_eq!(went, [(lock_path(), RevokeOutcome::Forced)]);
    assert!(bob.client.exists(&lock_path()).await?.is_none());
    Ok(())
}

/// The grace time was over for a node whose name another program had by then.
///
/// Fails when only the name of the node is looked at: it is taken from the next holder.
async fn a_node_that_others_have_by_now_is_not_taken_from_them((alice, bob): Pair) -> Result<()> {
    let other = alice.observer().await?;
    let guard = ExclusiveNode::new(&alice.client, LOCK)?.acquire().await?;
    bob.proxy.clear();
    let client = bob.client.clone();
    let revoking = tokio::spawn(async move { revoke_within(&client, &lock_path(), DELAY).await });
    let asked = |passed: &[Passed]| {
        let written = passed.iter().position(|one| *one == Passed::Reply(OpCode::SetData));
        written.is_some_and(|index| crate::gets(&passed[index..]) > 0)
    };
    bob.proxy.passes(asked).await;
    // The event of the release is lost with the connection.
    bob.proxy.refuse();
    guard.release().await?;
    let next = ExclusiveNode::new(&other, LOCK)?.acquire().await?;
    bob.proxy.restore();

    assert_eq!(revoking.await??, [(lock_path(), RevokeOutcome::GaveWay)]);
    next.verify().await?;
    next.release().await?;
    Ok(())
}

/// The leases of other libraries' semaphores are ephemeral nodes of one queue.
async fn leases_are_no_locks(backend: Backend) -> Result<()> {
    use lockkeeper::{Profile, Semaphore};
    let alice = backend.participant().await?;
    for (path, profile) in [("/curator", Profile::Curator), ("/kazoo", Profile::Kazoo)] {
        let semaphore = Semaphore::builder(&alice.client, path, 3).profile(profile).build()?;
        let guard = semaphore.acquire_many(2).await?;
        let found = inspect::queues(&alice.client, &ZnodePath::root()).await?.queues;
        let paths: Vec<_> = found.iter().map(|queue| queue.path.as_str()).collect();
        assert_eq!(paths, [path], "{profile:?}");
        assert_eq!(found[0].holders().count(), 2, "{profile:?}");
        guard.release().await?;
    }
    Ok(())
}

/// A writer's token is the transaction that created its node; the reader that it becomes keeps that token.
async fn an_entry_has_what_created_its_node((alice, observer): Observed) -> Result<()> {
    let shown = async || {
        let queue = LockQueue::inspect(&observer, &lock_path()).await?.context("a queue")?;
        anyhow::Ok(queue.holders().next().context("a holder")?.token)
    };
    let writer = RwLock::new(&alice.client, LOCK)?.write().await?;
    let token = writer.token();
    assert_eq!(shown().await?, token);
    let reader = writer.downgrade().await?;
    assert!(reader.token() == token && shown().await? > token);
    Ok(reader.release().await?)
}

/// Symptom: a lock delay was not visible. The lock looked free, but an acquire waited.
async fn a_due_lock_delay_is_seen((alice, observer): Observed) -> Result<()> {
    let lock = Mutex::builder(&alice.client, LOCK).lock_delay(LONG).label("nightly").build()?;
    let guard = lock.acquire().await?;
    let held = LockQueue::inspect(&observer, &lock_path()).await?.context("a queue")?;
    assert_eq!((held.holders().count(), held.delay), (1, None), "it is held, and nothing is due");

    let node = guard.node().clone();
    alice.client.close().await;
    children_reach(&observer, &lock_path(), 0).await?;
    let queue = LockQueue::inspect(&observer, &lock_path()).await?.context("a queue")?;
    let listed = inspect::queues(&observer, &ZnodePath::new("/locks")?).await?.queues;
    let alone = inspect::queues(&observer, &lock_path()).await?.queues;
    for queue in [&queue, listed.first().context("listed")?, alone.first().context("listed")?] {
        assert_eq!((&queue.path, queue.entries.len()), (&lock_path(), 0));
        let delay = queue.delay.as_ref().context("a delay")?;
        assert_eq!((delay.length, delay.left_by.as_ref()), (Some(LONG), Some(&node)));
        let owner = delay.owner.as_ref().context("an owner")?;
        assert_eq!((owner.pid, owner.label.as_deref()), (std::process::id(), Some("nightly")));
    }
    assert_eq!(listed.len(), 1, "the mark is not a lock: {listed:?}");
    Ok(())
}

async fn a_lock_delay_that_is_waited_out_is_nobodys_hold((alice, bob): Pair) -> Result<()> {
    let observer = alice.observer().await?;
    let delayed = |client| Mutex::builder(client, LOCK).lock_delay(LONG).build();
    let _guard = delayed(&alice.client)?.acquire().await?;
    let lock = delayed(&bob.client)?;
    let waiting = queue_up(&alice, &lock, 2).await?;
    alice.client.close().await;
    children_reach(&observer, &lock_path(), 1).await?;

    let queue = LockQueue::inspect(&observer, &lock_path()).await?.context("a queue")?;
    assert_eq!((queue.holders().count(), queue.waiters().count()), (0, 1), "{queue:?}");
    assert_eq!(queue.delay.context("a delay")?.length, Some(LONG));
    assert_eq!(revoke(&observer, &lock_path()).await?, [], "it is free");

    // Only a contender that waits it out knows how much is left.
    while lock.lock_delay_left().is_none() {
        tokio::task::yield_now().await;
    }
    assert!(lock.lock_delay_left().is_some_and(|left| left <= LONG && left > LONG / 2));
    assert_eq!(delayed(&observer)?.lock_delay_left(), None);
    waiting.abort();
    children_reach(&observer, &lock_path(), 0).await?;

    // A contender that ignores the delay holds the lock, and is not shown as waiting.
    let guard = Mutex::new(&observer, LOCK)?.acquire().await?;
    let queue = LockQueue::inspect(&observer, &lock_path()).await?.context("a queue")?;
    let holders: Vec<_> = queue.holders().map(|entry| &entry.node).collect();
    assert_eq!(holders, [guard.node()]);
    assert!(queue.delay.is_some());
    Ok(())
}

/// The node is a container, which servers delete when the only holder has vanished.
async fn a_lock_delay_is_seen_without_the_locks_node((alice, observer): Observed) -> Result<()> {
    let lock = Mutex::builder(&alice.client, LOCK).lock_delay(LONG).build()?;
    let _guard = lock.acquire().await?;
    alice.client.close().await;
    children_reach(&observer, &lock_path(), 0).await?;
    observer.delete(&lock_path(), None).await?;

    let queue = LockQueue::inspect(&observer, &lock_path()).await?.context("a delay")?;
    assert!(queue.entries.is_empty() && queue.delay.is_some(), "{queue:?}");
    let listed = inspect::queues(&observer, &ZnodePath::root()).await?.queues;
    assert_eq!(listed.first().context("listed")?.path, lock_path());
    Ok(())
}

async fn a_wait_outlasts_a_lock_delay((alice, bob): Pair) -> Result<()> {
    let delayed = |client| Mutex::builder(client, LOCK).lock_delay(DELAY).build();
    let _guard = delayed(&alice.client)?.acquire().await?;
    alice.client.close().await;
    children_reach(&bob.client, &lock_path(), 0).await?;

    let start = bob.client.now();
    inspect::wait_until_free(&bob.client, &lock_path()).await?;
    let took = bob.client.now().since(start);
    assert!(took >= DELAY, "after {took:?}");
    // What it waited for is over for all.
    assert!(delayed(&bob.client)?.try_acquire().await?.is_some(), "it is free");
    Ok(())
}

/// Fails with a watch on the path alone.
async fn a_watch_tells_each_change_of_a_queue((alice, bob): Pair) -> Result<()> {
    // The node does not exist yet.
    let mut watch = QueueWatch::new(&bob.client, &lock_path()).await?;
    let guard = Mutex::new(&alice.client, LOCK)?.acquire().await?;
    watch.changed().await?;
    while LockQueue::inspect(&bob.client, &lock_path()).await?.is_none_or(|q| q.entries.is_empty())
    {
        watch.changed().await?;
    }
    revoke(&bob.client, &lock_path()).await?;
    watch.changed().await?;
    let node = guard.node().clone();
    guard.release().await?;
    while bob.client.exists(&node).await?.is_some() {
        watch.changed().await?;
    }
    Ok(())
}

/// Fails without the watch on the mark, which is not below the lock.
async fn a_watch_tells_a_change_of_the_lock_delay((alice, bob): Pair) -> Result<()> {
    // No server reaps it, which would be a change too.
    alice.client.ensure(&lock_path(), CreateMode::Persistent).await?;
    let lock = Mutex::builder(&alice.client, LOCK).lock_delay(LONG).build()?;
    let _guard = lock.acquire().await?;
    alice.client.close().await;
    let queue = LockQueue::inspect(&bob.client, &lock_path()).await?.context("a queue")?;
    let mark = queue.delay.context("a delay that is due")?.mark;

    let mut watch = QueueWatch::new(&bob.client, &lock_path()).await?;
    bob.client.delete(&mark, None).await?;
    watch.changed().await?;
    Ok(())
}

async fn a_watch_outlasts_a_lost_connection_and_ends_with_its_session(
    alice: Participant,
) -> Result<()> {
    let mut watch = QueueWatch::new(&alice.client, &lock_path()).await?;
    alice.proxy.cut();
    // Changes in the meantime were not reported.
    watch.changed().await?;
    alice.proxy.expire_session().await?;
    while watch.changed().await.is_ok() {}
    Ok(())
}
