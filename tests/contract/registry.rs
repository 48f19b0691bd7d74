//! Locks by key, and the API that waits.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{BuildError, Locks, blocking};
use lockkeeper_testkit::backend::{Backend, children_reach};
use lockkeeper_wire::OpCode;

use crate::contract;

contract!("registry":
    any_key_is_a_lock_and_can_be_read_back,
    equal_keys_are_one_handle,
    handles_that_are_used_are_kept_and_others_bounded,
    l24_what_is_made_for_a_key_is_a_container,
    every_lock_can_be_used_without_async,
    what_is_held_changes_without_async,
    queues_are_seen_and_holders_asked_without_async,
    what_waits_can_be_used_and_dropped_in_async_code,
);

const PREFIX: &str = "/locks/by-key";

async fn any_key_is_a_lock_and_can_be_read_back(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let locks = Locks::new(&alice.client, PREFIX)?;
    let long = "ключ".repeat(2_000);
    let keys = ["", ".", "..", "a/b", "%", "\0\n", "🔒", "\u{f8ff}\u{e000}", "zookeeper", &long];
    let mut guards = Vec::new();
    for key in keys {
        guards.push(locks.get(key)?.acquire().await?);
    }
    let (mut found, mut expected) = (locks.keys().await?, keys.map(str::to_owned).to_vec());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for guard in guards {
        guard.release().await?;
    }
    let error = locks.get(&long.repeat(100)).expect_err("too long for any server");
    assert!(matches!(error, BuildError::KeyTooLong { .. }), "{error}");
    Ok(())
}

async fn equal_keys_are_one_handle(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let locks = Locks::with(&alice.client, PREFIX, |lock| lock.linger(Duration::from_secs(3600)))?;
    locks.get("a")?.acquire().await?.release().await?;
    alice.proxy.clear();
    locks.clone().get("a")?.acquire().await?.release().await?;
    let creates = alice.proxy.requests().iter().filter(|op| **op == OpCode::Create2).count();
    assert_eq!(creates, 0, "its node lingered in the handle");
    Ok(())
}

async fn handles_that_are_used_are_kept_and_others_bounded(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    let linger = Duration::from_secs(3600);
    let locks = Locks::with(&alice.client, PREFIX, move |lock| lock.linger(linger))?.keep_idle(8);
    let held = locks.get("held")?.acquire().await?;
    let idle = locks.get("idle")?;
    idle.acquire().await?.release().await?;
    for key in 0..100 {
        locks.get(&key.to_string())?;
    }
    assert!(locks.get("held")?.try_acquire().await?.is_none(), "the same handle, or the same line");
    alice.proxy.clear();
    let again = locks.get("idle")?.acquire().await?;
    assert!(!alice.proxy.requests().contains(&OpCode::Create2), "it was in use, and so kept");
    again.release().await?;
    // Nobody uses it now: the next ones take its place, and its node goes.
    drop(idle);
    held.release().await?;
    for key in 100..200 {
        locks.get(&key.to_string())?;
    }
    children_reach(&backend.observer().await?, &locks.path("idle")?, 0).await
}

/// L24. The servers reap containers that are empty: the locks' own nodes, and the prefix.
async fn l24_what_is_made_for_a_key_is_a_container(backend: Backend) -> Result<()> {
    let alice = backend.participant().await?;
    Locks::new(&alice.client, PREFIX)?.get("a/b")?.acquire().await?.release().await?;
    let mut creates = alice.proxy.requests();
    creates.retain(|op| matches!(op, OpCode::Create | OpCode::CreateContainer));
    assert!(!creates.is_empty() && !creates.contains(&OpCode::Create), "{creates:?}");
    Ok(())
}

async fn every_lock_can_be_used_without_async(backend: Backend) -> Result<()> {
    let servers = backend.connect_string();
    let work = move || -> Result<()> {
        use blocking::{
            Client, ExclusiveNode, MultiLock, Mutex, ReentrantMutex, RwLock, Semaphore,
        };
        let client = Client::connect(&servers)?;
        let guard = Mutex::new(&client, "/b/mutex")?.acquire()?;
        guard.verify()?;
        guard.ensure(Duration::from_millis(1))?;
        assert!(Mutex::new(&client, "/b/mutex")?.try_acquire()?.is_none());
        let wait = Duration::from_millis(50);
        assert!(Mutex::new(&client, "/b/mutex")?.acquire_timeout(wait).is_err());
        let account = lockkeeper::ZnodePath::new("/b/account")?;
        guard.transaction().create(&account, "1", Default::default()).commit()?;
        assert_eq!(&client.data(&account)?.0[..], b"1");
        guard.release()?;

        let (owner, lock) = (lockkeeper::Owner::new("b"), ReentrantMutex::new(&client, "/b/r")?);
        let outer = lock.acquire(&owner)?;
        lock.acquire(&owner)?.release()?;
        outer.release()?;
        assert!(lock.release(&owner).is_err());

        ExclusiveNode::new(&client, "/b/node")?.acquire()?.release()?;
        MultiLock::new(&client, ["/b/1", "/b/2"])?.acquire()?.release()?;
        let (one, other) = (RwLock::new(&client, "/b/rw")?, RwLock::new(&client, "/b/rw")?);
        let (reader, another) = (one.read()?, other.read()?);
        assert!(one.try_write()?.is_none());
        reader.release()?;
        another.release()?;
        one.write()?.release()?;
        let semaphore = Semaphore::new(&client, "/b/semaphore", 2)?;
        semaphore.acquire_many(2)?.release()?;
        semaphore.acquire()?.release()?;

        // The end of the last handle ends the session, and with it what is held.
        let guard = Mutex::new(&client, "/b/mutex")?.acquire()?;
        let (session, node) = (guard.session(), guard.node().clone());
        drop((lock, one, other, semaphore, client));
        drop(guard);
        let client = Client::connect(&servers)?;
        assert!(client.session_id() != session);
        assert!(client.exists(&node)?.is_none());
        Ok(())
    };
    tokio::task::spawn_blocking(work).await?
}

/// A blocking guard had no such methods, or those of async code, whose futures nobody awaited.
async fn what_is_held_changes_without_async(backend: Backend) -> Result<()> {
    let servers = backend.connect_string();
    let work = move || -> Result<()> {
        use blocking::{Client, ExclusiveNode, MultiLock, ReentrantMutex, RwLock, Semaphore};
        let (client, wait) = (Client::connect(&servers)?, Duration::from_secs(60));
        let lock = RwLock::builder(&client, "/c/rw").label("nightly").build()?;
        let reader = lock.write()?.downgrade()?;
        assert!(reader.is_held() && lock.try_write()?.is_none());
        lock.read()?.release()?;
        reader.release()?;
        let token = lock.upgradeable_read()?.upgrade()?.token();
        let writer = lock.upgradeable_read_timeout(wait)?.upgrade_timeout(wait)?;
        assert!(writer.token() > token && lock.try_read()?.is_none());
        writer.release()?;

        let semaphore = Semaphore::new(&client, "/c/semaphore", 2)?;
        semaphore.set_permits(3)?;
        assert_eq!(semaphore.permits()?, 3);
        let guard = semaphore.acquire_many_timeout(3, wait)?;
        assert_eq!(guard.permits(), 3);
        assert!(semaphore.try_acquire()?.is_none());
        guard.release()?;
        semaphore.acquire_timeout(wait)?.release()?;

        let owner = lockkeeper::Owner::new("c");
        let lock = ReentrantMutex::builder(&client, "/c/r").linger(wait).build()?;
        lock.acquire(&owner)?.keep();
        assert_eq!(lock.entries(&owner), 1);
        lock.release(&owner)?;
        assert_eq!(lock.entries(&owner), 0);

        let node = ExclusiveNode::builder(&client, "/c/node").owner(&owner).build()?;
        assert_eq!(node.owner(), &owner);
        let held = node.acquire()?;
        let both = MultiLock::new(&client, ["/c/2", "/c/1"])?;
        assert_eq!(both.paths().count(), 2);
        let guard = both.acquire()?;
        assert!(guard.is_held() && guard.tokens().count() == 2);
        guard.verify()?;

        let soon = Duration::from_millis(10);
        assert_eq!(client.close_when_released(soon).expect_err("held").holds, 4);
        guard.release()?;
        held.release()?;
        // The node of the re-entrant mutex lingers.
        drop(lock);
        client.close_when_released(wait)?;
        Ok(())
    };
    tokio::task::spawn_blocking(work).await?
}

async fn queues_are_seen_and_holders_asked_without_async(backend: Backend) -> Result<()> {
    let servers = backend.connect_string();
    let work = move || -> Result<()> {
        use blocking::{Client, Locks, inspect, revoke};
        let client = Client::connect(&servers)?;
        let locks = Locks::with(&client, "/d", |lock| lock.label("nightly"))?.keep_idle(8);
        let guard = locks.get("a/b")?.acquire()?;
        assert_eq!(locks.keys()?, ["a/b"]);
        let (lock, below) = (locks.path("a/b")?, lockkeeper::ZnodePath::new("/d")?);
        assert_eq!(guard.path(), &lock);
        let queue = inspect::queue(&client, &lock)?.expect("a queue");
        assert_eq!(queue.holders().count(), 1);
        assert_eq!(inspect::queues(&client, &below)?.queues.len(), 1);
        assert!(!blocking::exposures(&client, &lock)?.is_empty(), "everyone may do everything");

        assert_eq!(revoke::revoke(&client, &lock)?, [guard.node().clone()]);
        guard.revoke_requested()?;
        assert!(revoke::revoke_node(&client, guard.node())?);
        let went = revoke::revoke_within(&client, &lock, Duration::ZERO)?;
        assert_eq!(went, [(guard.node().clone(), lockkeeper::revoke::RevokeOutcome::Forced)]);
        assert_eq!(guard.lost(), lockkeeper::LossReason::Revoked);
        assert!(!guard.is_held());
        Ok(())
    };
    tokio::task::spawn_blocking(work).await?
}

async fn what_waits_can_be_used_and_dropped_in_async_code(backend: Backend) -> Result<()> {
    let servers = backend.connect_string();
    // On a thread with a runtime of its own, so that the server can go on.
    let in_async_code = move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = blocking::Client::connect(&servers)?;
            let lock = blocking::Mutex::new(&client, "/b/mutex")?;
            // More than a task may do before it must give way.
            for _ in 0..200 {
                lock.acquire()?.release()?;
            }
            let guard = lock.acquire()?;
            tokio::spawn(async move { drop(guard) }).await?;
            drop((lock, client));
            anyhow::Ok(())
        })
    };
    tokio::task::spawn_blocking(in_async_code).await?
}
