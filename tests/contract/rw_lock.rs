//! The read-write lock: which holds are shared, in which order, and at what cost.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{AcquireError, CreateMode, RwLock};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::{LOCK, Pair, contract, enqueue, lock_path, queue_empties};

contract!(rw_lock);

pub(crate) fn rw_lock(participant: &Participant) -> Result<RwLock> {
    Ok(RwLock::new(&participant.client, LOCK)?)
}

/// How many replies of a kind have passed.
pub(crate) fn replies(passed: &[Passed], op: OpCode) -> usize {
    passed.iter().filter(|p| **p == Passed::Reply(op)).count()
}

async fn readers_go_together_and_writers_alone((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (rw_lock(&alice)?, rw_lock(&bob)?);
    let (one, two) = (ours.read().await?, theirs.read().await?);
    assert!(ours.try_write().await?.is_none() && theirs.try_write().await?.is_none());
    one.release().await?;
    assert!(theirs.try_write().await?.is_none(), "one reader is left");
    two.release().await?;
    let writer = theirs.try_write().await?.expect("free");
    assert!(ours.try_read().await?.is_none() && ours.try_write().await?.is_none());
    writer.release().await?;
    assert!(ours.try_read().await?.is_some());
    queue_empties(&alice).await
}

async fn an_uncontended_read_or_write_is_one_round_trip(alice: Participant) -> Result<()> {
    let lock = rw_lock(&alice)?;
    lock.write().await?.release().await?;
    alice.proxy.clear();
    let (one, two) = (lock.read().await?, lock.read().await?);
    let once = [OpCode::Create2, OpCode::GetChildren2];
    assert_eq!(alice.proxy.requests(), [once, once].concat(), "also among other readers");
    two.release().await?;
    one.release().await?;
    alice.proxy.clear();
    lock.write().await?.release().await?;
    assert_eq!(alice.proxy.requests(), [&once[..], &[OpCode::Delete]].concat());
    Ok(())
}

async fn grants_follow_the_order_of_arrival((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (rw_lock(&alice)?, rw_lock(&bob)?);
    let first = ours.read().await?;
    let lock = theirs.clone();
    let writer = enqueue(&alice, 2, async move { lock.write().await }).await?;
    let lock = ours.clone();
    let reader = enqueue(&alice, 3, async move { lock.read().await }).await?;
    assert!(theirs.try_read().await?.is_none(), "readers do not pass a waiting writer");
    assert!(!writer.is_finished() && !reader.is_finished());
    let token = first.token();
    first.release().await?;
    let writer = writer.await??;
    assert!(writer.token() > token && !reader.is_finished());
    let token = writer.token();
    writer.release().await?;
    let reader = reader.await??;
    assert!(reader.token() > token);
    Ok(())
}

/// L14: readers and writers that watched contenders behind them waited for each other.
///
/// Fails with `WaitQueue::standing` looking at the whole line instead of what is ahead: they hang.
async fn l14_readers_and_writers_never_wait_for_each_other_in_a_circle(
    (alice, bob): Pair,
) -> Result<()> {
    let first = rw_lock(&alice)?.write().await?;
    let mut waiting = Vec::new();
    for place in 2..12 {
        let lock = rw_lock(if place % 2 == 0 { &alice } else { &bob })?;
        let writes = place % 3 == 0;
        let turn = async move {
            match writes {
                true => lock.write().await?.release().await.expect("held until now"),
                false => lock.read().await?.release().await.expect("held until now"),
            }
            Ok(())
        };
        waiting.push(enqueue(&alice, place, turn).await?);
    }
    first.release().await?;
    for turn in waiting {
        turn.await??;
    }
    queue_empties(&alice).await
}

/// L15: a downgraded reader lost its place, and a writer came in while it read.
///
/// Fails with `Kind::may_become` empty for writers: the contender that waited for the writer
/// does not remember another one ahead, and writes while the reader reads. It never looks for a reader.
async fn l15_a_downgraded_reader_keeps_its_place((alice, bob): Pair) -> Result<()> {
    let writing = rw_lock(&alice)?.write().await?;
    let lock = rw_lock(&bob)?;
    let next = enqueue(&alice, 2, async move { lock.write().await }).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2).await;
    let reading = writing.downgrade().await?;
    // It was woken, listed the queue again, and found the reader.
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 3).await;
    assert!(!next.is_finished(), "it writes while the other one reads");
    assert!(rw_lock(&alice)?.try_read().await?.is_none(), "new readers are behind the writer");
    reading.verify().await?;
    reading.release().await?;
    next.await??.release().await?;
    queue_empties(&alice).await
}

/// L15, in two steps as Curator makes it: the reader first, at the writer's number.
///
/// Fails like the one above.
async fn l15_a_writer_waits_for_the_reader_that_another_library_put_before_it(
    (alice, bob): Pair,
) -> Result<()> {
    rw_lock(&alice)?.read().await?.release().await?;
    let writer = lock_path().child("_c_0-__WRIT__")?;
    let writer = alice.client.create(&writer, "", CreateMode::EphemeralSequential).await?.path;
    let lock = rw_lock(&bob)?;
    let next = enqueue(&alice, 2, async move { lock.write().await }).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2).await;
    let reader = lock_path().child(&writer.name().replace("__WRIT__", "__READ__"))?;
    alice.client.create(&reader, "", CreateMode::Ephemeral).await?;
    alice.client.delete(&writer, None).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 3).await;
    assert!(!next.is_finished(), "it writes while the other one reads");
    alice.client.delete(&reader, None).await?;
    next.await??.release().await?;
    Ok(())
}

/// L16: readers watched the first writer rather than the nearest, and woke for every one.
///
/// Fails without the `rev()` in `WaitQueue::standing`: the reader wakes for the first writer.
async fn l16_a_reader_watches_the_nearest_writer_ahead((alice, bob): Pair) -> Result<()> {
    let first = rw_lock(&alice)?.write().await?;
    let lock = rw_lock(&alice)?;
    let second = enqueue(&alice, 2, async move { lock.write().await }).await?;
    let lock = rw_lock(&bob)?;
    let reader = enqueue(&alice, 3, async move { lock.read().await }).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2).await;
    first.release().await?;
    let second = second.await??;
    bob.client.sync(&lock_path()).await?;
    assert_eq!(bob.proxy.events(), [], "it does not watch the first writer");
    second.release().await?;
    reader.await??.release().await?;
    assert_eq!(bob.proxy.events().len(), 1);
    Ok(())
}

async fn readers_behind_a_writer_wake_once_and_ask_nothing(backend: Backend) -> Result<()> {
    const READERS: usize = 20;
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let writer = rw_lock(&alice)?.write().await?;
    let mut readers = Vec::new();
    for place in 0..READERS {
        let lock = rw_lock(&bob)?;
        readers.push(enqueue(&alice, place + 2, async move { lock.read().await }).await?);
    }
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2 * READERS).await;
    bob.proxy.clear();
    writer.release().await?;
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await??);
    }
    assert_eq!(bob.proxy.requests(), [], "what they knew was enough");
    // All watch the same node, and a session gets one event.
    assert_eq!(bob.proxy.events().len(), 1);
    Ok(())
}

async fn a_writer_sleeps_while_readers_ahead_of_the_nearest_leave(
    (alice, bob): Pair,
) -> Result<()> {
    let lock = rw_lock(&alice)?;
    let readers = [lock.read().await?, lock.read().await?, lock.read().await?];
    let lock = rw_lock(&bob)?;
    let writer = enqueue(&alice, 4, async move { lock.write().await }).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2).await;
    for reader in readers {
        bob.client.sync(&lock_path()).await?;
        assert_eq!(bob.proxy.events(), []);
        reader.release().await?;
    }
    writer.await??.release().await?;
    assert_eq!(bob.proxy.events().len(), 1, "one for the whole run");
    Ok(())
}

async fn timeouts_and_tries_leave_nothing(backend: Backend) -> Result<()> {
    const SHORT: Duration = Duration::from_millis(50);
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let (ours, theirs) = (rw_lock(&alice)?, rw_lock(&bob)?);
    let writer = ours.write().await?;
    let late = |result: Option<AcquireError>| {
        assert!(matches!(result, Some(AcquireError::Timeout { .. })), "{result:?}");
    };
    late(theirs.read_timeout(SHORT).await.err());
    late(theirs.write_timeout(SHORT).await.err());
    late(theirs.upgradeable_read_timeout(SHORT).await.err());
    assert!(theirs.try_read().await?.is_none() && theirs.try_write().await?.is_none());
    assert!(theirs.try_upgradeable_read().await?.is_none());
    children_reach(&backend.observer().await?, &lock_path(), 1).await?;
    writer.release().await?;
    ours.read_timeout(Duration::ZERO).await?.release().await?;
    ours.upgradeable_read_timeout(Duration::ZERO).await?.release().await?;
    queue_empties(&alice).await
}

async fn a_downgrade_is_one_round_trip_and_keeps_the_token((alice, bob): Pair) -> Result<()> {
    let writer = rw_lock(&alice)?.write().await?;
    let token = writer.token();
    alice.proxy.clear();
    let reader = writer.downgrade().await?;
    assert_eq!(alice.proxy.requests(), [OpCode::Multi, OpCode::Exists]);
    assert_eq!(reader.token(), token);
    assert_eq!(reader.node().name().split("__").nth(1), Some("READ"));
    let other = rw_lock(&bob)?.try_read().await?.expect("readers go together");
    assert!(other.token() > token);
    reader.release().await?;
    other.release().await?;
    queue_empties(&alice).await
}

async fn a_downgrade_whose_reply_is_lost_has_happened_once(backend: Backend) -> Result<()> {
    for loss in [Loss::BeforeRequest, Loss::BeforeReply] {
        let alice = backend.participant().await?;
        let writer = rw_lock(&alice)?.write().await?;
        alice.proxy.lose_next(OpCode::Multi, loss);
        let reader = writer.downgrade().await?;
        children_reach(&backend.observer().await?, &lock_path(), 1).await?;
        reader.verify().await?;
        reader.release().await?;
        queue_empties(&alice).await?;
    }
    Ok(())
}

async fn a_lost_writer_cannot_downgrade(alice: Participant) -> Result<()> {
    let writer = rw_lock(&alice)?.write().await?;
    alice.proxy.expire_session().await?;
    writer.lost().await;
    let error = writer.downgrade().await.expect_err("nothing is left to downgrade");
    assert!(matches!(error, AcquireError::Lost { .. }), "{error:?}");

    let writer = rw_lock(&alice)?.write().await?;
    alice.observer().await?.delete(writer.node(), None).await?;
    let error = writer.downgrade().await.expect_err("nothing is left to downgrade");
    assert!(matches!(error, AcquireError::NodeDeleted { .. }), "{error:?}");
    queue_empties(&alice).await
}

async fn readers_do_not_mix_with_other_locks(alice: Participant) -> Result<()> {
    let guard = crate::mutex(&alice)?.acquire().await?;
    let error = rw_lock(&alice)?.read().await.expect_err("the order is unknown");
    assert!(matches!(error, AcquireError::Foreign { .. }), "{error:?}");
    assert!(error.to_string().contains("is in use as a mutex"), "{error}");
    guard.release().await?;
    queue_empties(&alice).await
}
