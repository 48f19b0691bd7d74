//! Locks with kazoo's names: the names, the data, and the parent nodes.

use anyhow::Result;
use lockkeeper::{AcquireError, CreateMode, Mutex, Profile, RwLock};
use lockkeeper_testkit::backend::Participant;
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;

use crate::{LOCK, Pair, contract, enqueue, queue_empties};

contract!(kazoo_profile);

fn mutex(participant: &Participant) -> Result<Mutex> {
    let builder = Mutex::builder(&participant.client, LOCK);
    Ok(builder.profile(Profile::Kazoo).label("backup").build()?)
}

fn rw_lock(participant: &Participant) -> Result<RwLock> {
    let builder = RwLock::builder(&participant.client, LOCK);
    Ok(builder.profile(Profile::Kazoo).label("backup").build()?)
}

/// Whether kazoo's pattern finds the contender, and finds its own thirty-two digits before it.
fn is_named(name: &str, marker: &str) -> bool {
    let Some((owner, number)) = name.split_once(marker) else { return false };
    let hex = owner.len() == 32 && owner.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex && number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit())
}

async fn names_and_data_are_those_of_kazoo(alice: Participant) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    assert!(is_named(guard.node().name(), "__lock__"), "{}", guard.node());
    let (identifier, _) = alice.client.data(guard.node()).await?;
    assert_eq!(&identifier[..], b"backup");
    guard.release().await?;

    let lock = rw_lock(&alice)?;
    let guard = lock.write().await?;
    assert!(is_named(guard.node().name(), "__lock__"), "{}", guard.node());
    let number = guard.node().name()[40..].to_owned();
    let guard = guard.downgrade().await?;
    assert!(is_named(guard.node().name(), "__rlock__"), "{}", guard.node());
    assert!(guard.node().name().ends_with(&number), "the place is kept");
    guard.release().await?;
    let guard = lock.upgradeable_read().await?;
    assert!(is_named(guard.node().name(), "__upgr__rlock__"), "{}", guard.node());
    assert!(guard.node().name()[32..].contains("__rlock__"), "kazoo sees a reader");
    let guard = guard.upgrade().await?;
    assert!(is_named(guard.node().name(), "__lock__"), "{}", guard.node());
    guard.release().await?;
    queue_empties(&alice).await
}

/// kazoo remembers that it has made the parents, and fails when a server has reaped them since.
async fn parents_stay(alice: Participant) -> Result<()> {
    mutex(&alice)?.acquire().await?.release().await?;
    rw_lock(&alice)?.read().await?.release().await?;
    assert!(!alice.proxy.requests().contains(&OpCode::CreateContainer));
    Ok(())
}

async fn writers_and_readers_take_turns((alice, bob): Pair) -> Result<()> {
    let (ours, theirs) = (rw_lock(&alice)?, rw_lock(&bob)?);
    let (one, two) = (ours.read().await?, theirs.read().await?);
    let lock = theirs.clone();
    let writer = enqueue(&alice, 3, async move { lock.write().await }).await?;
    assert!(ours.try_read().await?.is_none());
    one.release().await?;
    two.release().await?;
    let writer = writer.await??;
    assert!(ours.try_read().await?.is_none() && ours.try_write().await?.is_none());
    writer.release().await?;
    queue_empties(&alice).await
}

async fn a_mutex_is_a_write_lock((alice, bob): Pair) -> Result<()> {
    let guard = mutex(&alice)?.acquire().await?;
    let lock = rw_lock(&bob)?;
    assert!(lock.try_read().await?.is_none() && lock.try_write().await?.is_none());
    guard.release().await?;
    let guard = lock.write().await?;
    assert!(mutex(&alice)?.try_acquire().await?.is_none());
    guard.release().await?;
    queue_empties(&alice).await
}

async fn curators_names_are_refused(alice: Participant) -> Result<()> {
    let curator = crate::mutex(&alice)?.acquire().await?;
    for error in [mutex(&alice)?.acquire().await.err(), rw_lock(&alice)?.read().await.err()] {
        assert!(matches!(error, Some(AcquireError::Foreign { .. })), "{error:?}");
    }
    curator.release().await?;
    queue_empties(&alice).await
}

/// As kazoo's `acquire(ephemeral=False)` makes them, and deletes them at its release.
///
/// Fails when such a node is refused.
async fn a_contender_that_is_not_ephemeral_is_waited_for((alice, bob): Pair) -> Result<()> {
    let ours = mutex(&alice)?;
    let guard = ours.acquire().await?;
    let theirs = guard.node().clone();
    guard.release().await?;
    bob.client.create(&theirs, "", CreateMode::Persistent).await?;
    let waiting = enqueue(&alice, 2, async move { ours.acquire().await }).await?;
    let watches = |passed: &[Passed]| passed.contains(&Passed::Reply(OpCode::GetData));
    alice.proxy.passes(watches).await;
    bob.client.delete(&theirs, None).await?;
    waiting.await??.release().await?;
    queue_empties(&alice).await
}
