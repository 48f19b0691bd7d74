//! A thousand waiters, each with a session of its own: how many of them a release wakes.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Client, CreateMode, ExclusiveNode, RwLock, RwLockReadGuard};
use lockkeeper_testkit::backend::{Backend, Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::locks::{Exclusive, Held, lock_of};
use crate::rw_lock::{replies, rw_lock};
use crate::{LOCK, lock_path};

const WAITERS: usize = 1_000;

/// How many crowds there may be at once: each takes four thousand descriptors of this process.
static CROWDS: Semaphore = Semaphore::const_new(2);

/// How many events have come to anyone.
fn events(participants: &[Participant]) -> usize {
    participants.iter().map(|participant| participant.proxy.events().len()).sum()
}

/// With a long session, so that a thousand of them do not drown everything in pings, and that none
/// expires while all of them have a listing of a thousand names to read.
async fn participant(backend: &Backend) -> Result<Participant> {
    let builder = Client::builder().session_timeout(Duration::from_secs(60));
    backend.participant_with(builder).await
}

async fn participants(backend: &Backend, number: usize) -> Result<Vec<Participant>> {
    let mut participants = Vec::with_capacity(number);
    for _ in 0..number {
        participants.push(participant(backend).await?);
    }
    Ok(participants)
}

/// Waits until each participant has the replies to this many watched reads, and therefore waits.
async fn settled(participants: &[Participant], reads: usize) {
    for participant in participants {
        participant.proxy.passes(|passed| replies(passed, OpCode::GetData) == reads).await;
    }
}

async fn each_release_wakes_one<L: Exclusive>() -> Result<()> {
    let _room = CROWDS.acquire().await?;
    let backend = Backend::embedded().await?;
    let alice = participant(&backend).await?;
    let waiters = participants(&backend, WAITERS).await?;
    let mut guard = lock_of::<L>(&alice)?.acquire().await?;
    let mut acquiring = JoinSet::new();
    for participant in &waiters {
        let lock = lock_of::<L>(participant)?;
        acquiring.spawn(async move { lock.acquire().await });
    }
    children_reach(&backend.observer().await?, &lock_path(), WAITERS + 1).await?;
    let reads = L::CONTENDED.iter().filter(|op| **op == OpCode::GetData).count();
    settled(&waiters, reads).await;
    for release in 1..=WAITERS {
        guard.release().await?;
        guard = acquiring.join_next().await.expect("one more waits")??;
        if release % 100 == 0 {
            assert_eq!(events(&waiters), release, "one event for each release");
        }
    }
    guard.release().await?;
    assert_eq!(events(&waiters), WAITERS);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_a_mutex_wakes_one_of_a_thousand() -> Result<()> {
    each_release_wakes_one::<lockkeeper::Mutex>().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_a_write_lock_wakes_one_of_a_thousand() -> Result<()> {
    each_release_wakes_one::<crate::locks::WriteLock>().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resignation_wakes_one_of_a_thousand_candidates() -> Result<()> {
    each_release_wakes_one::<lockkeeper::Election>().await
}

/// A run of readers, and a writer behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_readers_wakes_once_and_wakes_the_writer_once() -> Result<()> {
    let _room = CROWDS.acquire().await?;
    let backend = Backend::embedded().await?;
    let (alice, bob) = (participant(&backend).await?, participant(&backend).await?);
    let readers = participants(&backend, WAITERS).await?;
    let first = rw_lock(&alice)?.write().await?;
    let mut reading = JoinSet::new();
    for participant in &readers {
        let lock = RwLock::new(&participant.client, LOCK)?;
        reading.spawn(async move { lock.read().await });
    }
    let observer = backend.observer().await?;
    children_reach(&observer, &lock_path(), WAITERS + 1).await?;
    let lock = rw_lock(&bob)?;
    let writing = tokio::spawn(async move { lock.write().await });
    children_reach(&observer, &lock_path(), WAITERS + 2).await?;
    settled(&readers, 2).await;
    settled(std::slice::from_ref(&bob), 2).await;

    first.release().await?;
    let mut guards: Vec<RwLockReadGuard> = Vec::new();
    while let Some(guard) = reading.join_next().await {
        guards.push(guard??);
    }
    assert_eq!(events(&readers), WAITERS, "all of them hold now, and each got one event");
    assert_eq!(bob.proxy.events(), []);

    // In order of arrival, the last one is the one that the writer watches.
    guards.sort_by_key(|guard| guard.token());
    for guard in guards {
        guard.release().await?;
    }
    writing.await??.release().await?;
    assert_eq!(bob.proxy.events().len(), 1, "one for the whole run");
    assert_eq!(events(&readers), WAITERS);
    Ok(())
}

/// Waits until each of these has received an event.
async fn all_are_told(participants: &[Participant]) {
    for participant in participants {
        let told = |passed: &[Passed]| passed.iter().any(|p| matches!(p, Passed::Event(..)));
        participant.proxy.passes(told).await;
    }
}

/// The reason for fair locks: here all contenders wait for the same node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_an_exclusive_node_wakes_all_of_a_thousand() -> Result<()> {
    let _room = CROWDS.acquire().await?;
    let backend = Backend::embedded().await?;
    let alice = participant(&backend).await?;
    let waiters = participants(&backend, WAITERS).await?;
    let guard = lock_of::<ExclusiveNode>(&alice)?.acquire().await?;
    let mut acquiring = JoinSet::new();
    for participant in &waiters {
        let lock = lock_of::<ExclusiveNode>(participant)?;
        acquiring.spawn(async move { lock.acquire().await });
    }
    settled(&waiters, 1).await;
    guard.release().await?;
    let _next = acquiring.join_next().await.expect("they wait")??;
    all_are_told(&waiters).await;
    assert_eq!(events(&waiters), WAITERS, "one holds, and all others were woken for nothing");
    Ok(())
}

/// The naive lock: numbered nodes, and each contender watches the whole queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_the_naive_lock_wakes_all_of_a_thousand() -> Result<()> {
    let _room = CROWDS.acquire().await?;
    let backend = Backend::embedded().await?;
    let alice = participant(&backend).await?;
    let waiters = participants(&backend, WAITERS).await?;
    alice.client.ensure(&lock_path(), CreateMode::Container).await?;
    let contender = lock_path().child("lock-")?;
    let enter = |participant: &Participant| {
        participant.client.create(&contender, "", CreateMode::EphemeralSequential)
    };
    let first = enter(&alice).await?;
    for participant in &waiters {
        enter(participant).await?;
    }
    let mut watches = Vec::new();
    for participant in &waiters {
        watches.push(participant.client.children_watched(&lock_path()).await?.1);
    }
    alice.client.delete(&first.path, None).await?;
    all_are_told(&waiters).await;
    assert_eq!(events(&waiters), WAITERS, "and only one of them is next");
    Ok(())
}
