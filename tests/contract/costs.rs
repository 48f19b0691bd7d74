//! What each lock costs: every figure of the table in `docs/locks.md`, by frames and in round trips.
//!
//! A round trip is what is sent before any answer to it has come: the proxy keeps the answers back
//! until all of it has passed.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    AcquireError, Client, ExclusiveNode, Locks, MultiLock, Mutex, Owner, ReentrantMutex, RwLock,
    Semaphore, SemaphoreProfile,
};
use lockkeeper_testkit::backend::{Backend, Participant, TICK};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;
use lockkeeper_wire::OpCode::{
    Create2, Delete, Exists, GetChildren2, GetData, Multi, RemoveWatches, SetData, Sync,
};
use tokio::task::JoinHandle;

use crate::{LOCK, Pair, contract, gets};

contract!(costs);

/// What is sent while nothing is waited for: places and watches that are given up.
const UNAWAITED: [OpCode; 2] = [RemoveWatches, Delete];

/// Something that is being acquired, with the answers to it kept back.
struct Costs<'a, T> {
    participant: &'a Participant,
    acquiring: JoinHandle<Result<T, AcquireError>>,
    /// What has been sent so far.
    sent: Vec<OpCode>,
}

/// Starts to acquire something of a participant.
fn costs<T: Send + 'static>(
    participant: &Participant,
    acquire: impl Future<Output = Result<T, AcquireError>> + Send + 'static,
) -> Costs<'_, T> {
    participant.proxy.clear();
    participant.proxy.hold_replies();
    Costs { participant, acquiring: tokio::spawn(acquire), sent: Vec::new() }
}

impl<T> Costs<'_, T> {
    /// One round trip, in which just this is sent.
    async fn trip(mut self, requests: &[OpCode]) -> Self {
        self.sent.extend(requests);
        let proxy = &self.participant.proxy;
        let as_wanted_or_never = |passed: &[Passed]| {
            let sent = awaited(passed);
            sent == self.sent || !self.sent.starts_with(&sent)
        };
        proxy.passes(as_wanted_or_never).await;
        assert_eq!(awaited(&proxy.passed()), self.sent, "sent together");
        proxy.answer();
        // And has come about: what others do now comes after it.
        let replies = |passed: &[Passed]| {
            passed.iter().filter(|p| matches!(p, Passed::Reply(op) if counts(*op))).count()
        };
        proxy.passes(|passed| replies(passed) == self.sent.len()).await;
        self
    }

    /// It has what it wants, with nothing more sent, and has set so many watches.
    async fn held(self, watches: usize) -> Result<T> {
        let proxy = &self.participant.proxy;
        proxy.restore();
        let held = self.acquiring.await??;
        assert_eq!(awaited(&proxy.passed()), self.sent, "and nothing more was needed");
        assert_eq!(proxy.watches(), watches, "watches");
        Ok(held)
    }
}

fn counts(op: OpCode) -> bool {
    op != OpCode::Ping && !UNAWAITED.contains(&op)
}

/// The requests that are waited for.
fn awaited(passed: &[Passed]) -> Vec<OpCode> {
    let awaited = passed.iter().filter_map(|passed| match passed {
        Passed::Request(op) if counts(*op) => Some(*op),
        _ => None,
    });
    awaited.collect()
}

/// Releases, for the price of these requests that anything waits for.
macro_rules! release {
    ($participant:expr, $guard:expr, $requests:expr) => {
        $participant.proxy.clear();
        $guard.release().await?;
        let mut requests = $participant.proxy.requests();
        requests.retain(|op| *op != RemoveWatches);
        assert_eq!(requests, $requests, "to release it");
    };
}

async fn a_mutex((alice, bob): Pair) -> Result<()> {
    let [ours, theirs] = [&alice, &bob].map(|p| Mutex::new(&p.client, LOCK).expect("a path"));
    ours.acquire().await?.release().await?;
    let lock = ours.clone();
    let guard = costs(&alice, async move { lock.acquire().await });
    let guard = guard.trip(&[Create2, GetChildren2]).await.held(0).await?;
    let next = costs(&bob, async move { theirs.acquire().await });
    let next = next.trip(&[Create2, GetChildren2]).await.trip(&[GetData, GetData]).await;
    release!(alice, guard, [Delete]);
    let next = next.held(2).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    release!(bob, next, [Delete]);
    Ok(())
}

async fn a_release_and_the_next_acquire_are_one_write((alice, bob): Pair) -> Result<()> {
    let lock = Mutex::new(&alice.client, LOCK)?;
    let guard = lock.acquire().await?;
    let first = guard.token();
    alice.proxy.clear();
    drop(guard);
    let guard = lock.acquire().await?;
    assert_eq!(awaited(&alice.proxy.passed()), [Multi]);
    assert!(!alice.proxy.requests().contains(&Delete), "it is in the transaction");
    let (nodes, _) = bob.client.children(lock.path()).await?;
    assert_eq!(nodes.len(), 1);
    let (_, stat) = bob.client.data(&lock.path().child(&nodes[0])?).await?;
    assert_eq!(guard.token().zxid(), stat.czxid);
    assert_eq!(stat.ephemeral_owner, alice.client.session_id());
    assert!(guard.token() > first);
    guard.release().await?;
    assert_eq!(bob.client.children(lock.path()).await?.0, [""; 0]);
    Ok(())
}

/// Among many that come again and again, a hand-off takes three requests: the transaction, the look at
/// the one ahead, and the listing when that one has gone.
async fn a_line_that_is_known_is_not_listed(backend: Backend) -> Result<()> {
    const CLIENTS: usize = 3;
    let mut line = Vec::new();
    for _ in 0..CLIENTS {
        let participant = backend.participant().await?;
        let lock = Mutex::new(&participant.client, LOCK)?;
        line.push((participant, lock));
    }
    line[0].1.acquire().await?.release().await?;
    let mut turns = Vec::new();
    for (participant, lock) in &line {
        participant.proxy.clear();
        let lock = lock.clone();
        turns.push(tokio::spawn(async move { lock.acquire().await }));
        let listed = |passed: &[Passed]| passed.contains(&Passed::Reply(GetChildren2));
        participant.proxy.passes(listed).await;
    }
    let mut token = None;
    for turn in 0..3 * CLIENTS {
        let (participant, lock) = &line[turn % CLIENTS];
        let guard = turns.remove(0).await??;
        assert!(token < Some(guard.token()), "turn {turn}");
        token = Some(guard.token());
        let sent = participant.proxy.passed();
        participant.proxy.clear();
        // Before that, they came in one after the other.
        if turn >= 2 * CLIENTS {
            let mut sent = awaited(&sent);
            assert_eq!(sent[..2], [Multi, GetData], "turn {turn}");
            // On a slow disk, one that waits for long watches its own node as well.
            sent.retain(|op| *op != GetData);
            assert_eq!(sent, [Multi, GetChildren2], "turn {turn}");
        }
        let lock = lock.clone();
        turns.push(tokio::spawn(async move {
            drop(guard);
            lock.acquire().await
        }));
        let watched = |passed: &[Passed]| passed.contains(&Passed::Reply(GetData));
        participant.proxy.passes(watched).await;
    }
    Ok(())
}

/// Somebody came since the holder listed the line; or it was another handle whose node went.
async fn a_line_that_is_not_known_is_listed((alice, bob): Pair) -> Result<()> {
    let [ours, theirs] = [&alice, &bob].map(|p| Mutex::new(&p.client, LOCK).expect("a path"));
    let guard = ours.acquire().await?;
    let next = tokio::spawn(async move { theirs.acquire().await });
    let watches = |passed: &[Passed]| passed.contains(&Passed::Reply(GetData));
    bob.proxy.passes(watches).await;
    let lock = ours.clone();
    let again = costs(&alice, async move {
        drop(guard);
        lock.try_acquire().await
    });
    let again = again.trip(&[Multi]).await.trip(&[GetChildren2]).await.held(0).await?;
    assert!(again.is_none(), "a contender waits in the queue");
    next.await??.release().await?;

    let other = Mutex::new(&alice.client, LOCK)?;
    ours.acquire().await?.release().await?;
    let guard = other.acquire().await?;
    let again = costs(&alice, async move {
        drop(guard);
        ours.acquire().await
    });
    again.trip(&[Multi, GetChildren2]).await.held(0).await?.release().await?;
    Ok(())
}

/// Who was in line when the holder listed it has given up: the lock is free for it.
async fn who_has_left_a_known_line_is_not_waited_for(backend: Backend) -> Result<()> {
    for waits in [true, false] {
        let (alice, bob) = (backend.participant().await?, backend.participant().await?);
        let [ours, theirs] = [&alice, &bob].map(|p| Mutex::new(&p.client, LOCK).expect("a path"));
        // Two ahead, so that it lists the line again at its turn; and one behind.
        let ahead = [Mutex::new(&bob.client, LOCK)?, Mutex::new(&bob.client, LOCK)?];
        let first = ahead[0].acquire().await?;
        let mut line = Vec::new();
        // The first of them is the next one, and watches its own node as well.
        for (participant, lock, watches) in
            [(&bob, &ahead[1], 2), (&alice, &ours, 1), (&bob, &theirs, 1)]
        {
            participant.proxy.clear();
            let lock = lock.clone();
            line.push(tokio::spawn(async move { lock.acquire().await }));
            participant.proxy.passes(|passed| gets(passed) == watches).await;
        }
        first.release().await?;
        line.remove(0).await??.release().await?;
        let guard = line.remove(0).await??;
        line.remove(0).abort();
        while bob.client.children(ours.path()).await?.0.len() > 1 {
            bob.client.sync(ours.path()).await?;
        }
        alice.proxy.clear();
        drop(guard);
        let (again, sent) = match waits {
            true => (Some(ours.acquire().await?), &[Multi, GetData, GetData][..]),
            false => (ours.try_acquire().await?, &[Multi, GetChildren2][..]),
        };
        assert_eq!(awaited(&alice.proxy.passed()), sent);
        again.expect("the queue is empty").release().await?;
    }
    Ok(())
}

/// The node has been deleted by force, so the transaction is refused. The task that waited for the next hold
/// has given up by then.
async fn a_release_that_is_refused_takes_nothing_with_it((alice, bob): Pair) -> Result<()> {
    let lock = Mutex::new(&alice.client, LOCK)?;
    for gives_up in [true, false] {
        let guard = lock.acquire().await?;
        let (nodes, _) = bob.client.children(lock.path()).await?;
        bob.client.delete(&lock.path().child(&nodes[0])?, None).await?;
        drop(guard);
        if gives_up {
            tokio::select! {
                biased;
                _ = lock.acquire() => panic!("there was no answer yet"),
                () = std::future::ready(()) => {}
            }
        } else {
            lock.acquire().await?.release().await?;
        }
        Mutex::new(&bob.client, LOCK)?.acquire().await?.release().await?;
        alice.client.sync(lock.path()).await?;
        assert_eq!(alice.client.children(lock.path()).await?.0, [""; 0], "{gives_up}");
    }
    Ok(())
}

/// Without other contenders, the node is created only once.
async fn a_mutex_with_linger(alice: Participant) -> Result<()> {
    let lock = Mutex::builder(&alice.client, LOCK).linger(Duration::from_secs(3600)).build()?;
    lock.acquire().await?.release().await?;
    // The keeper looks at the node and at the line, once.
    let looked = |passed: &[Passed]| passed.contains(&Passed::Reply(GetData));
    alice.proxy.passes(looked).await;
    alice.client.sync(lock.path()).await?;
    let again = lock.clone();
    let guard = costs(&alice, async move { again.acquire().await }).held(0).await?;
    release!(alice, guard, [] as [OpCode; 0]);
    Ok(())
}

/// The node goes from one task of the process to the next.
async fn a_mutex_with_a_cohort(alice: Participant) -> Result<()> {
    let lock = Mutex::builder(&alice.client, LOCK).cohort(2, Duration::from_secs(3600)).build()?;
    let first = lock.acquire().await?;
    let again = lock.clone();
    let next = costs(&alice, async move { again.acquire().await });
    // Until it is in line.
    tokio::task::yield_now().await;
    first.release().await?;
    let second = next.held(0).await?;
    release!(alice, second, [Delete]);
    Ok(())
}

/// A contender that has waited for longer than a renewal interval proves that it is alive before it
/// holds.
async fn a_late_grant(backend: Backend) -> Result<()> {
    let builder = Client::builder().session_timeout(Duration::from_secs(15));
    let (alice, bob) = (backend.participant().await?, backend.participant_with(builder).await?);
    let guard = Mutex::new(&alice.client, LOCK)?.acquire().await?;
    let theirs = Mutex::new(&bob.client, LOCK)?;
    let next = costs(&bob, async move { theirs.acquire().await });
    let mut next = next.trip(&[Create2, GetChildren2]).await.trip(&[GetData, GetData]).await;
    // Pings are answered.
    bob.proxy.restore();
    let left = || bob.client.lease().remaining(bob.client.now());
    let enough = bob.client.timing().left_at_grant();
    while left() >= enough {
        tokio::time::sleep(left() - enough + TICK).await;
    }
    guard.release().await?;
    next.sent.push(Multi);
    let next = next.held(2).await?;
    release!(bob, next, [Delete]);
    Ok(())
}

async fn a_mutex_with_a_lock_delay((alice, bob): Pair) -> Result<()> {
    let delayed = |p: &Participant| {
        Mutex::builder(&p.client, LOCK).lock_delay(Duration::from_millis(10)).build()
    };
    let (ours, theirs) = (delayed(&alice)?, delayed(&bob)?);
    ours.acquire().await?.release().await?;
    let lock = ours.clone();
    let guard = costs(&alice, async move { lock.acquire().await });
    let guard = guard.trip(&[Create2, GetChildren2]).await.trip(&[Multi]).await.held(0).await?;
    let lock = theirs.clone();
    let next = costs(&bob, async move { lock.acquire().await });
    let next = next.trip(&[Create2, GetChildren2]).await.trip(&[GetData, GetData]).await;
    release!(alice, guard, [Multi]);
    let next = next.trip(&[Multi]).await.held(2).await?;
    assert_eq!(bob.proxy.events().len(), 1);

    // It vanishes: the next one finds the mark, looks at it, and replaces it after the delay.
    bob.proxy.expire_session().await?;
    next.lost().await;
    let guard = costs(&alice, async move { ours.acquire().await });
    let guard = guard.trip(&[Create2, GetChildren2]).await.trip(&[Multi]).await;
    let guard = guard.trip(&[GetData]).await.trip(&[Multi]).await.held(0).await?;
    release!(alice, guard, [Multi]);
    Ok(())
}

async fn a_reentrant_mutex((alice, bob): Pair) -> Result<()> {
    let [ours, theirs] =
        [&alice, &bob].map(|p| ReentrantMutex::new(&p.client, LOCK).expect("a path"));
    let (me, other) = (Owner::new("alice"), Owner::new("bob"));
    ours.acquire(&me).await?.release().await?;
    let (lock, owner) = (ours.clone(), me.clone());
    let outer = costs(&alice, async move { lock.acquire(&owner).await });
    let outer = outer.trip(&[Create2, GetChildren2]).await.held(0).await?;
    let inner = costs(&alice, async move { ours.acquire(&me).await }).held(0).await?;
    release!(alice, inner, [] as [OpCode; 0]);
    let next = costs(&bob, async move { theirs.acquire(&other).await });
    let next = next.trip(&[Create2, GetChildren2]).await.trip(&[GetData, GetData]).await;
    release!(alice, outer, [Delete]);
    let next = next.held(2).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    release!(bob, next, [Delete]);
    Ok(())
}

async fn a_reader((alice, bob): Pair) -> Result<()> {
    let [ours, theirs] = [&alice, &bob].map(|p| RwLock::new(&p.client, LOCK).expect("a path"));
    ours.write().await?.release().await?;
    let lock = ours.clone();
    let guard = costs(&alice, async move { lock.read().await });
    let guard = guard.trip(&[Create2, GetChildren2]).await.held(0).await?;
    release!(alice, guard, [Delete]);
    let writer = ours.write().await?;
    let next = costs(&bob, async move { theirs.read().await });
    let next = next.trip(&[Create2, GetChildren2]).await.trip(&[GetData, GetData]).await;
    writer.release().await?;
    let next = next.held(2).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    release!(bob, next, [Delete]);
    Ok(())
}

async fn a_writer((alice, bob): Pair) -> Result<()> {
    let [ours, theirs] = [&alice, &bob].map(|p| RwLock::new(&p.client, LOCK).expect("a path"));
    ours.write().await?.release().await?;
    let lock = ours.clone();
    let writer = costs(&alice, async move { lock.write().await });
    let writer = writer.trip(&[Create2, GetChildren2]).await.held(0).await?;
    let lock = theirs.clone();
    let next = costs(&bob, async move { lock.write().await });
    let next = next.trip(&[Create2, GetChildren2]).await.trip(&[GetData, GetData]).await;
    release!(alice, writer, [Delete]);
    // It may have left a reader.
    let next = next.trip(&[GetChildren2]).await.held(2).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    release!(bob, next, [Delete]);

    let reader = ours.read().await?;
    let lock = theirs.clone();
    let next = costs(&bob, async move { lock.write().await });
    let next = next.trip(&[Create2, GetChildren2]).await.trip(&[GetData, GetData]).await;
    reader.release().await?;
    let next = next.held(2).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    let next = costs(&bob, async move { next.downgrade().await });
    let reader = next.trip(&[Multi, Exists]).await.held(0).await?;
    release!(bob, reader, [Delete]);
    Ok(())
}

async fn a_semaphore(backend: Backend) -> Result<()> {
    const PERMITS: u32 = 3;
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let [ours, theirs] =
        [&alice, &bob].map(|p| Semaphore::new(&p.client, LOCK, PERMITS).expect("a path"));
    ours.acquire().await?.release().await?;
    let mut holders = Vec::new();
    for _ in 0..PERMITS {
        let lock = ours.clone();
        let guard = costs(&alice, async move { lock.acquire().await });
        holders.push(guard.trip(&[GetData, Create2, GetChildren2]).await.held(0).await?);
    }
    let next = costs(&bob, async move { theirs.acquire().await });
    let next = next.trip(&[GetData, Create2, GetChildren2]).await;
    // The number, its own node, and all holders: any of them may be the first to leave.
    let next = next.trip(&[GetData; 5]).await;
    release!(alice, holders.remove(1), [Delete]);
    let next = next.held(5).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    release!(bob, next, [Delete]);
    alice.proxy.clear();
    ours.set_permits(PERMITS + 1).await?;
    assert_eq!(alice.proxy.requests(), [SetData]);
    Ok(())
}

async fn semaphores_of_other_layouts(alice: Participant) -> Result<()> {
    let semaphore = |layout| {
        let path = format!("/printers/{layout:?}").to_lowercase();
        Semaphore::builder(&alice.client, &path, 2).profile(layout).build()
    };
    let lock = semaphore(SemaphoreProfile::Curator)?;
    lock.acquire().await?.release().await?;
    let guard = costs(&alice, async move { lock.acquire().await });
    let gate = guard.trip(&[Create2, GetChildren2]).await;
    let guard = gate.trip(&[Create2, GetChildren2]).await.held(0).await?;
    gate_given_back(&alice).await;
    release!(alice, guard, [Delete]);
    let lock = semaphore(SemaphoreProfile::Curator)?;
    let guard = costs(&alice, async move { lock.acquire_many(2).await });
    let gate = guard.trip(&[Create2, GetChildren2]).await;
    let first = gate.trip(&[Create2, GetChildren2]).await;
    let both = first.trip(&[Create2, GetChildren2]).await.held(0).await?;
    both.release().await?;
    let lock = semaphore(SemaphoreProfile::Kazoo)?;
    lock.acquire().await?.release().await?;
    let guard = costs(&alice, async move { lock.acquire().await });
    let gate = guard.trip(&[GetData]).await.trip(&[Create2, GetChildren2]).await;
    let guard =
        gate.trip(&[GetData, GetChildren2]).await.trip(&[Multi, Exists]).await.held(2).await?;
    gate_given_back(&alice).await;
    release!(alice, guard, [Delete]);
    Ok(())
}

/// In the background.
async fn gate_given_back(participant: &Participant) {
    let deleted = |passed: &[Passed]| passed.contains(&Passed::Reply(Delete));
    participant.proxy.passes(deleted).await;
}

async fn an_exclusive_node((alice, bob): Pair) -> Result<()> {
    let [ours, theirs] =
        [&alice, &bob].map(|p| ExclusiveNode::new(&p.client, LOCK).expect("a path"));
    ours.acquire().await?.release().await?;
    let lock = ours.clone();
    let outer = costs(&alice, async move { lock.acquire().await });
    let outer = outer.trip(&[Create2]).await.held(0).await?;
    let inner = costs(&alice, async move { ours.acquire().await }).held(0).await?;
    release!(alice, inner, [] as [OpCode; 0]);
    let next = costs(&bob, async move { theirs.acquire().await });
    let next = next.trip(&[Create2]).await.trip(&[GetData]).await;
    // A look at whose node it is, and the deletion.
    release!(alice, outer, [Sync, GetData, Delete]);
    let next = next.trip(&[Create2]).await.held(1).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    release!(bob, next, [Sync, GetData, Delete]);
    Ok(())
}

async fn several_locks(backend: Backend) -> Result<()> {
    const PATHS: [&str; 3] = ["/locks/a", "/locks/b", "/locks/c"];
    let (alice, bob) = (backend.participant().await?, backend.participant().await?);
    let [ours, theirs] = [&alice, &bob].map(|p| MultiLock::new(&p.client, PATHS).expect("paths"));
    ours.acquire().await?.release().await?;
    let guard = costs(&alice, async move { ours.acquire().await });
    let enter = [Multi, GetChildren2, GetChildren2, GetChildren2];
    let guard = guard.trip(&enter).await.held(0).await?;
    release!(alice, guard, [Multi]);
    let middle = Mutex::new(&alice.client, PATHS[1])?.acquire().await?;
    let all = costs(&bob, async move { theirs.acquire().await });
    let all = all.trip(&enter).await.trip(&[GetData, GetData]).await;
    middle.release().await?;
    let all = all.trip(&[Multi, GetChildren2]).await.held(2).await?;
    assert_eq!(bob.proxy.events().len(), 1);
    release!(bob, all, [Multi]);
    Ok(())
}

async fn locks_by_key(alice: Participant) -> Result<()> {
    let locks = Locks::new(&alice.client, "/orders")?;
    locks.get("an old key")?.acquire().await?.release().await?;
    let new = locks.get("a new key")?;
    let lock = new.clone();
    let guard = costs(&alice, async move { lock.acquire().await });
    let guard = guard.trip(&[Create2, GetChildren2]).await.trip(&[OpCode::CreateContainer]).await;
    let guard = guard.trip(&[Create2, GetChildren2]).await.held(0).await?;
    release!(alice, guard, [Delete]);
    let guard = costs(&alice, async move { new.acquire().await });
    let guard = guard.trip(&[Create2, GetChildren2]).await.held(0).await?;
    release!(alice, guard, [Delete]);
    Ok(())
}
