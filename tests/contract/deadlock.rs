//! Waits-for graphs, and programs that wait for each other.

use anyhow::{Context, Result, ensure};
use lockkeeper::graph::{Because, WaitGraph, deadlocks, unless_deadlocked};
use lockkeeper::inspect::{LockQueues, queues};
use lockkeeper::{
    Client, CreateMode, ExclusiveNode, Mutex, MutexGuard, Profile, RwLock, Semaphore,
    SemaphoreProfile, TreeCache, ZnodePath,
};
use lockkeeper_testkit::backend::children_reach;
use tokio::task::JoinHandle;

use crate::{Clients, contract};

contract!(deadlock);

fn folder() -> ZnodePath {
    ZnodePath::new("/locks").expect("a path")
}

fn lock(client: &Client, name: &str) -> Result<Mutex> {
    Ok(Mutex::new(client, &format!("/locks/{name}"))?)
}

/// Waits for a lock, and returns when it is in line as number `place`.
async fn in_line<T: Send + 'static>(
    client: &Client,
    name: &str,
    place: usize,
    wait: impl Future<Output = T> + Send + 'static,
) -> Result<JoinHandle<T>> {
    let waiting = tokio::spawn(wait);
    children_reach(client, &ZnodePath::new(&format!("/locks/{name}"))?, place).await?;
    Ok(waiting)
}

/// Two programs hold a lock each. The first one waits for that of the second.
struct Crossed {
    alice: Client,
    bob: Client,
    _of_alice: MutexGuard,
    of_bob: MutexGuard,
}

impl Crossed {
    async fn new((alice, bob): Clients) -> Result<Self> {
        let _of_alice = lock(&alice, "a")?.acquire().await?;
        let of_bob = lock(&bob, "b")?.acquire().await?;
        Ok(Self { alice, bob, _of_alice, of_bob })
    }
}

async fn the_last_of_a_circle_leaves_and_the_other_goes_on(clients: Clients) -> Result<()> {
    let Crossed { alice, bob, _of_alice, of_bob } = Crossed::new(clients).await?;
    let (wanted, client) = (lock(&alice, "b")?, alice.clone());
    let waits = async move { unless_deadlocked(&client, &folder(), wanted.acquire()).await };
    let first = in_line(&alice, "b", 2, waits).await?;
    assert!(deadlocks(&alice, &folder()).await?.is_empty(), "one of them does not wait");

    let wanted = lock(&bob, "a")?;
    let told = unless_deadlocked(&bob, &folder(), wanted.acquire()).await;
    let deadlock = told.err().context("the last one leaves")?;
    let sessions = [alice.session_id(), bob.session_id()];
    assert_eq!(deadlock.waits.len(), 2, "{deadlock}");
    for wait in &deadlock.waits {
        assert!(sessions.contains(&wait.waiter.session), "{deadlock}");
        assert_ne!(wait.waiter.session, wait.blocker.session, "{deadlock}");
        assert_eq!(wait.because, Because::ItsSessionWaits, "{deadlock}");
    }
    assert!(!deadlock.is_certain, "both could release in another task");
    assert!(deadlock.to_string().contains("waits for /locks/a"), "{deadlock}");

    of_bob.release().await?;
    first.await??.context("it had the lock")?.release().await?;
    children_reach(&bob, &ZnodePath::new("/locks/a")?, 1).await?;
    Ok(())
}

async fn who_asks_is_told_though_the_last_one_does_not_ask(clients: Clients) -> Result<()> {
    let crossed = Crossed::new(clients).await?;
    let (alice, bob) = (&crossed.alice, &crossed.bob);
    let (wanted, client) = (lock(alice, "b")?, alice.clone());
    let waits = async move { unless_deadlocked(&client, &folder(), wanted.acquire()).await };
    let first = in_line(alice, "b", 2, waits).await?;
    let wanted = lock(bob, "a")?;
    let second = in_line(bob, "a", 2, async move { wanted.acquire().await }).await?;
    let deadlock = first.await?.err().context("the first one leaves")?;
    assert_eq!(deadlock.waits.len(), 2, "{deadlock}");
    second.abort();
    Ok(())
}

/// A session with two contenders of one lock has two tasks.
async fn tasks_of_one_program_are_no_circle((alice, bob): Clients) -> Result<()> {
    let held = lock(&alice, "a")?.acquire().await?;
    let wanted = lock(&bob, "a")?;
    let others = in_line(&bob, "a", 2, async move { wanted.acquire().await }).await?;
    // Another handle, because tasks of one handle wait in the local queue.
    let wanted = lock(&alice, "a")?;
    let own = in_line(&alice, "a", 3, async move { wanted.acquire().await }).await?;

    let found = queues(&alice, &folder()).await?;
    let graph = WaitGraph::new(&found.queues);
    assert_eq!(graph.cycles(), []);
    let roots = graph.roots();
    ensure!(roots.len() == 1 && roots[0].waiters == 2, "{roots:?}");
    held.release().await?;
    others.await??.release().await?;
    own.await??.release().await?;
    Ok(())
}

/// The locks in a cache are those that a look at the servers finds, of all kinds and in all layouts.
async fn the_locks_in_a_cache_are_those_on_the_servers((alice, bob): Clients) -> Result<()> {
    let kazoo = Mutex::builder(&alice, "/locks/kazoo").profile(Profile::Kazoo).build()?;
    let _kazoo = kazoo.acquire().await?;
    let _held = lock(&alice, "a")?.acquire().await?;
    let wanted = lock(&bob, "a")?;
    let waiting = in_line(&bob, "a", 2, async move { wanted.acquire().await }).await?;
    let _node = ExclusiveNode::new(&alice, "/locks/below/node")?.acquire().await?;
    let rw = RwLock::new(&alice, "/locks/rw")?;
    let _readers = (rw.read().await?, rw.upgradeable_read().await?);
    let of = |profile, path| Semaphore::builder(&alice, path, 3).profile(profile).build();
    let own = of(SemaphoreProfile::Native, "/locks/own")?.acquire_many(2).await?;
    let curator = of(SemaphoreProfile::Curator, "/locks/curator")?.acquire().await?;
    let leases = of(SemaphoreProfile::Kazoo, "/locks/leases")?.acquire().await?;
    alice.create(&ZnodePath::new("/locks/config")?, "3", CreateMode::Persistent).await?;

    let on_servers = queues(&alice, &folder()).await?;
    let cache = TreeCache::open(&alice, "/locks").await?;
    let in_cache = LockQueues::in_tree(&*cache.snapshot(), &folder());
    assert_eq!(format!("{in_cache:#?}"), format!("{on_servers:#?}"));
    assert!(in_cache.queues.len() >= 7, "{in_cache:#?}");
    waiting.abort();
    drop((own, curator, leases));
    Ok(())
}
