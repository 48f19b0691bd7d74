//! Upgradeable readers: one at a time, no other holder in between, and no two that wait for each other.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Acl, AcquireError, Client, Failure, FencingToken, Permissions};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;

use crate::rw_lock::{replies, rw_lock};
use crate::{Pair, contract, enqueue, is_no_auth, lock_path, queue_empties};

contract!(upgrade);

async fn an_upgradeable_reader_goes_with_readers_and_alone_of_its_kind(
    (alice, bob): Pair,
) -> Result<()> {
    let (ours, theirs) = (rw_lock(&alice)?, rw_lock(&bob)?);
    let before = theirs.read().await?;
    let upgradeable = ours.upgradeable_read().await?;
    let after = theirs.try_read().await?.expect("it is a reader");
    assert!(theirs.try_upgradeable_read().await?.is_none(), "one at a time");
    assert!(theirs.try_write().await?.is_none());
    upgradeable.release().await?;
    theirs.try_upgradeable_read().await?.expect("the next one").release().await?;
    before.release().await?;
    after.release().await?;
    queue_empties(&alice).await
}

async fn an_upgrade_is_two_round_trips(alice: Participant) -> Result<()> {
    let reader = rw_lock(&alice)?.upgradeable_read().await?;
    alice.proxy.clear();
    let writer = reader.upgrade().await?;
    use OpCode::{Create2, Exists, GetChildren2, GetData, Multi};
    assert_eq!(alice.proxy.requests(), [GetData, Create2, GetChildren2, Multi, Exists]);
    children_reach(&alice.observer().await?, &lock_path(), 1).await?;
    writer.release().await?;
    queue_empties(&alice).await
}

async fn an_upgrade_waits_for_readers_and_lets_no_new_ones_in((alice, bob): Pair) -> Result<()> {
    let theirs = rw_lock(&bob)?;
    let before = theirs.read().await?;
    let upgradeable = rw_lock(&alice)?.upgradeable_read().await?;
    let after = theirs.read().await?;
    let upgrading = enqueue(&alice, 4, async { Ok(upgradeable.upgrade().await?) }).await?;
    assert!(theirs.try_read().await?.is_none(), "or it might wait for ever");
    after.release().await?;
    assert!(!upgrading.is_finished());
    before.release().await?;
    let writer = upgrading.await??;
    assert!(theirs.try_read().await?.is_none() && theirs.try_write().await?.is_none());
    writer.release().await?;
    queue_empties(&alice).await
}

async fn an_upgrade_goes_before_those_who_wait((alice, bob): Pair) -> Result<()> {
    let upgradeable = rw_lock(&alice)?.upgradeable_read().await?;
    let lock = rw_lock(&bob)?;
    let writer = enqueue(&alice, 2, async move { lock.write().await }).await?;
    let lock = rw_lock(&bob)?;
    let reader = enqueue(&alice, 3, async move { lock.read().await }).await?;
    // With a writer in the queue, new readers are already blocked, and there is no other holder to wait for.
    let upgraded = upgradeable.upgrade().await?;
    bob.client.sync(&lock_path()).await?;
    assert!(!writer.is_finished() && !reader.is_finished(), "both are behind it");
    upgraded.release().await?;
    let tokens = || bob.proxy.requests().iter().filter(|op| **op == OpCode::SetData).count();
    writer.await??.release().await?;
    assert_eq!(tokens(), 1, "one write for a token of its own");
    reader.await??.release().await?;
    assert_eq!(tokens(), 2, "and for each that had waited then");
    rw_lock(&bob)?.write().await?.release().await?;
    assert_eq!(tokens(), 2, "and not for later contenders");
    queue_empties(&alice).await
}

/// Semantics, rule 1: where grants do not follow the order of creation, the token is minted at the
/// grant. The waiters entered before the upgraded writer's node was created.
///
/// Fails without the write to the lock's own node in `trade`: the waiting writer's token is
/// lower than that of the upgraded one before it.
async fn tokens_grow_from_an_upgrade_to_those_who_came_before_it((alice, bob): Pair) -> Result<()> {
    let upgradeable = rw_lock(&alice)?.upgradeable_read().await?;
    let (read_token, lock) = (upgradeable.token(), rw_lock(&bob)?);
    let second = enqueue(&alice, 2, async move { lock.upgradeable_read().await }).await?;
    let lock = rw_lock(&bob)?;
    let third = enqueue(&alice, 3, async move { lock.write().await }).await?;
    let grows = |earlier: FencingToken, later: FencingToken| {
        assert!(earlier < later, "{earlier} before {later}");
        later
    };
    let upgraded = upgradeable.upgrade().await?;
    let token = grows(read_token, upgraded.token());
    upgraded.release().await?;
    let second = second.await??;
    let token = grows(token, second.token());
    let second = second.upgrade().await?;
    let token = grows(token, second.token());
    second.release().await?;
    let third = third.await??;
    let token = grows(token, third.token());
    third.release().await?;
    grows(token, rw_lock(&alice)?.read().await?.token());
    Ok(())
}

/// One that waits during an upgrade makes its token when it holds. Whoever comes in between was
/// created before that, and had its creation for its token: lower than the one before it, so that
/// a resource refused the holder and admitted late writes of the former one.
///
/// Fails with `vouches_for` looking only at the last upgrade.
async fn tokens_grow_from_those_who_came_before_an_upgrade_to_those_who_came_after(
    (alice, bob): Pair,
) -> Result<()> {
    let upgradeable = rw_lock(&alice)?.upgradeable_read().await?;
    let lock = rw_lock(&bob)?;
    let before = enqueue(&alice, 2, async move { lock.write().await }).await?;
    let upgraded = upgradeable.upgrade().await?;
    let lock = rw_lock(&bob)?;
    let after = enqueue(&alice, 3, async move { lock.write().await }).await?;
    upgraded.release().await?;
    let before = before.await??;
    let token = before.token();
    before.release().await?;
    let after = after.await??;
    assert!(token < after.token(), "{token} before {}", after.token());
    after.release().await?;
    queue_empties(&alice).await
}

/// The first writer in line keeps readers from coming in. It leaves between the moment when the
/// upgrade sees it and the moment when the upgrade relies on it.
///
/// Fails without the `check` in `trade`: it writes while the reader reads, and never looks
/// again.
async fn an_upgrade_waits_for_readers_that_get_in_when_a_writer_gives_up(
    (alice, bob): Pair,
) -> Result<()> {
    let upgradeable = rw_lock(&alice)?.upgradeable_read().await?;
    let lock = rw_lock(&bob)?;
    let writer = enqueue(&alice, 2, async move { lock.write().await }).await?;
    let lock = rw_lock(&bob)?;
    let reader = enqueue(&alice, 3, async move { lock.read().await }).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 4).await;

    alice.proxy.hold_replies();
    let upgrading = enqueue(&alice, 4, async { Ok(upgradeable.upgrade().await?) }).await?;
    writer.abort();
    let reader = reader.await??;
    alice.proxy.clear();
    alice.proxy.restore();
    // What it saw at first, the failed transaction, and what it sees then.
    alice.proxy.passes(|passed| replies(passed, OpCode::Multi) == 1).await;
    alice.proxy.passes(|passed| replies(passed, OpCode::GetChildren2) == 2).await;
    assert!(!upgrading.is_finished(), "another reader still holds the lock");
    reader.verify().await?;
    reader.release().await?;
    upgrading.await??.release().await?;
    queue_empties(&alice).await
}

/// A reader that waits for a writer behind an upgradeable reader must not believe that the writer
/// was all that was in its way.
///
/// Fails with `Kind::may_become` empty for upgradeable readers.
async fn a_reader_is_not_misled_by_a_writer_that_gives_up_under_an_upgrade(
    (alice, bob): Pair,
) -> Result<()> {
    let upgradeable = rw_lock(&alice)?.upgradeable_read().await?;
    let lock = rw_lock(&alice)?;
    let writer = enqueue(&alice, 2, async move { lock.write().await }).await?;
    let lock = rw_lock(&bob)?;
    let reader = enqueue(&alice, 3, async move { lock.read().await }).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2).await;
    let upgraded = upgradeable.upgrade().await?;
    writer.abort();
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 3).await;
    assert!(!reader.is_finished(), "it reads while the upgraded one writes");
    upgraded.release().await?;
    reader.await??.release().await?;
    Ok(())
}

async fn the_next_upgradeable_reader_waits_for_the_upgraded_writer(
    (alice, bob): Pair,
) -> Result<()> {
    let first = rw_lock(&alice)?.upgradeable_read().await?;
    let lock = rw_lock(&bob)?;
    let second = enqueue(&alice, 2, async move { lock.upgradeable_read().await }).await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 2).await;
    let first = first.upgrade().await?;
    bob.proxy.passes(|passed| replies(passed, OpCode::GetData) == 3).await;
    assert!(!second.is_finished());
    let first = first.downgrade().await?;
    let second = second.await??;
    first.release().await?;
    second.upgrade().await?.release().await?;
    queue_empties(&alice).await
}

async fn an_upgraded_writer_can_downgrade((alice, bob): Pair) -> Result<()> {
    let writer = rw_lock(&alice)?.upgradeable_read().await?.upgrade().await?;
    let token = writer.token();
    let reader = writer.downgrade().await?;
    assert_eq!(reader.token(), token);
    assert!(rw_lock(&bob)?.try_read().await?.is_some());
    reader.release().await?;
    queue_empties(&alice).await
}

async fn an_upgrade_whose_reply_is_lost_has_happened_once(backend: Backend) -> Result<()> {
    for (op, loss) in [
        (OpCode::Multi, Loss::BeforeRequest),
        (OpCode::Multi, Loss::BeforeReply),
        (OpCode::Create2, Loss::BeforeReply),
    ] {
        let alice = backend.participant().await?;
        let reader = rw_lock(&alice)?.upgradeable_read().await?;
        alice.proxy.lose_next(op, loss);
        let writer = reader.upgrade().await?;
        children_reach(&backend.observer().await?, &lock_path(), 1).await?;
        writer.verify().await?;
        writer.release().await?;
        queue_empties(&alice).await?;
    }
    Ok(())
}

async fn an_upgrade_given_up_leaves_nothing((alice, bob): Pair) -> Result<()> {
    let other = rw_lock(&bob)?.read().await?;
    let reader = rw_lock(&alice)?.upgradeable_read().await?;
    let failed = reader.upgrade_timeout(Duration::from_millis(50)).await.expect_err("one reads");
    assert!(matches!(failed.error(), AcquireError::Timeout { .. }), "{failed:?}");
    drop(failed);
    children_reach(&alice.observer().await?, &lock_path(), 1).await?;
    other.verify().await?;
    drop(rw_lock(&bob)?.try_read().await?.expect("no barrier is left"));

    let reader = rw_lock(&alice)?.upgradeable_read().await?;
    alice.proxy.expire_session().await?;
    reader.lost().await;
    let failed = reader.upgrade().await.expect_err("it is lost");
    assert!(matches!(failed.error(), AcquireError::Lost { .. }), "{failed:?}");
    assert!(failed.into_reader().is_none());
    other.release().await?;
    queue_empties(&alice).await
}

/// Symptom: an upgrade that ended in time to do something else released the reader, so what had been read
/// under it was no longer true. Now the reader is in the error, with its place, its token and its right.
async fn a_reader_outlives_its_upgrade_that_took_too_long((alice, bob): Pair) -> Result<()> {
    let other = rw_lock(&bob)?.read().await?;
    let reader = rw_lock(&alice)?.upgradeable_read().await?;
    let (node, token) = (reader.node().clone(), reader.token());

    let failed = reader.upgrade_timeout(Duration::from_millis(50)).await.expect_err("one reads");
    assert!(matches!(failed.error(), AcquireError::Timeout { .. }), "{failed:?}");
    assert!(failed.is_retryable());
    let reader = failed.into_reader().expect("it still reads");
    assert_eq!((reader.node(), reader.token()), (&node, token));
    reader.verify().await?;
    children_reach(&alice.observer().await?, &lock_path(), 2).await?;
    assert!(rw_lock(&bob)?.try_write().await?.is_none(), "two read");
    assert!(rw_lock(&bob)?.try_upgradeable_read().await?.is_none(), "one at a time");
    rw_lock(&bob)?.try_read().await?.expect("no barrier is left").release().await?;

    other.release().await?;
    let writer = reader.upgrade().await?;
    assert!(writer.token() > token);
    writer.release().await?;
    queue_empties(&alice).await
}

/// A reader whose exchange was in flight when the time was over may have been replaced, so it is given up.
/// Otherwise it would count as a holder together with the next writer.
async fn a_reader_that_may_be_replaced_is_given_up((alice, bob): Pair) -> Result<()> {
    let reader = rw_lock(&alice)?.upgradeable_read().await?;
    (0..20).for_each(|_| alice.proxy.lose_next(OpCode::Multi, Loss::BeforeReply));
    let failed = reader.upgrade_timeout(Duration::from_millis(200)).await.expect_err("no answer");
    assert!(matches!(failed.error(), AcquireError::Timeout { .. }), "{failed:?}");
    assert!(alice.proxy.losses_to_come() < 20, "the exchange was sent");
    assert!(failed.into_reader().is_none(), "its node may be gone");
    rw_lock(&bob)?.write().await?.release().await?;
    queue_empties(&alice).await
}

/// Gives all clients only these permissions on the lock's own node.
async fn only(client: &Client, permissions: Permissions) -> Result<()> {
    client.set_acl(&lock_path(), vec![Acl::new(permissions, "world", "anyone")], None).await?;
    Ok(())
}

/// Symptom: it was tried again and again, for ever and without a pause.
async fn an_upgrade_that_is_refused_says_so(alice: Participant) -> Result<()> {
    let reader = rw_lock(&alice)?.upgradeable_read().await?;
    // Everything but writing to it.
    only(&alice.client, Permissions::READ | Permissions::CREATE | Permissions::DELETE).await?;
    let upgraded = tokio::time::timeout(Duration::from_secs(20), reader.upgrade()).await?;
    let refused = upgraded.map(drop).expect_err("it may not write there");
    assert!(
        matches!(refused.error(), AcquireError::Refused { source, .. } if is_no_auth(source)),
        "{refused:?}"
    );
    let reader = refused.into_reader().expect("it still reads");
    assert!(reader.is_held());
    reader.release().await?;
    queue_empties(&alice).await
}

/// Symptom: it said that another client had deleted the writer's node.
async fn a_downgrade_that_is_refused_says_so(alice: Participant) -> Result<()> {
    let writer = rw_lock(&alice)?.write().await?;
    only(&alice.client, Permissions::READ | Permissions::WRITE | Permissions::DELETE).await?;
    let refused = writer.downgrade().await.map(drop).expect_err("it may create nothing there");
    assert!(
        matches!(&refused, AcquireError::Refused { source, .. } if is_no_auth(source)),
        "{refused:?}"
    );
    queue_empties(&alice).await
}
