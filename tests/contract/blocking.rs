//! Programs without async: `Client::wait`, and the thread of a `blocking::Client`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::blocking::Client;
use lockkeeper::{
    AcquireError, Contact, CreateMode, Mutex, Owner, Presence, ReentrantMutex, RwLock, Shared,
    TreeCache, ValueChange, ZnodePath,
};
use lockkeeper_testkit::backend::Backend;
use lockkeeper_testkit::proxy::Proxy;

use crate::contract;

contract!(blocking);

/// What nothing here takes unless it hangs.
const HANGS: Duration = Duration::from_secs(20);

/// Runs work on a thread without a runtime, while this one serves the backend.
async fn on_a_thread<T: Send + 'static>(
    backend: &Backend,
    work: impl FnOnce(&str) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, is_done) = tokio::sync::oneshot::channel();
    let servers = backend.connect_string();
    thread::spawn(move || done.send(work(&servers)).ok());
    is_done.await.context("it panicked")?
}

async fn threads_take_turns(backend: Backend) -> Result<()> {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 5;
    let work = |servers: &str| {
        let client = Client::connect(servers)?;
        let (holders, count) = (AtomicU32::new(0), AtomicU32::new(0));
        let count_alone = || {
            let lock = Mutex::new(&client, "/b/turns")?;
            for _ in 0..ROUNDS {
                let guard = client.wait(lock.acquire())?;
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "one holds it");
                count.fetch_add(1, Ordering::SeqCst);
                client.wait(guard.verify())?;
                holders.fetch_sub(1, Ordering::SeqCst);
                client.wait(guard.release())?;
            }
            anyhow::Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count_alone)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        assert_eq!(count.into_inner(), THREADS * ROUNDS);
        Ok(())
    };
    on_a_thread(&backend, work).await
}

/// Calls that need a timer, a task of the client's runtime or its thread pool, and errors.
async fn everything_can_be_waited_for(backend: Backend) -> Result<()> {
    let work = |servers: &str| {
        let client = Client::connect_later(lockkeeper::Client::builder(), servers)?;
        assert!(client.wait(client.reachable()));
        let soon = Duration::from_millis(50);
        let lock = RwLock::new(&client, "/b/rw")?;
        let reader = client.wait(async { lock.write().await?.downgrade().await })?;
        let refused = client.wait(RwLock::new(&client, "/b/rw")?.write_timeout(soon));
        assert!(matches!(refused, Err(AcquireError::Timeout { .. })), "{refused:?}");
        client.wait(reader.release())?;

        let file = lockkeeper_testkit::scratch::folder()?;
        let limits: Shared<u32> = Shared::new(&client, "/b/limits")?;
        let mut changes = limits.changes();
        assert!(!client.wait(changes.keep_in(&file.path().join("limits")))?);
        assert_eq!(client.wait(changes.next())?, ValueChange::Absent);
        client.wait(limits.set(&7))?;
        assert!(matches!(client.wait(changes.next())?, ValueChange::Set(now) if now.value == 7));
        client.wait(changes.kept())?;

        let guard = client.wait(Mutex::new(&client, "/b/mutex")?.acquire())?;
        let account = ZnodePath::new("/b/account")?;
        let written = guard.transaction().create(&account, "1", CreateMode::Persistent).commit();
        client.wait(written)?;
        assert_eq!(client.wait(guard.run(client.data(&account)))??.0, "1");
        let held = client.wait(client.close_when_released(soon)).expect_err("it is held");
        assert_eq!(held.holds, 1);
        client.wait(guard.release())?;
        client.wait(client.close_when_released(HANGS))?;
        let closed = client.wait(lock.read_timeout(HANGS)).expect_err("its client is closed");
        assert!(!matches!(closed, AcquireError::Timeout { .. }), "{closed}");
        Ok(())
    };
    on_a_thread(&backend, work).await
}

/// A program may end right after it, also with an error that it returns.
async fn what_a_client_holds_is_released_when_it_is_dropped(backend: Backend) -> Result<()> {
    let work = |servers: &str| {
        let client = Client::connect(servers)?;
        let lock = Mutex::new(&client, "/b/mutex")?;
        let guard = client.wait(lock.acquire())?;
        let (node, clone) = (guard.node().clone(), client.clone());
        drop(client);
        assert!(clone.is_closed() && !guard.is_held());
        let next = Client::connect(servers)?;
        assert_ne!(next.session_id(), guard.session());
        assert!(next.wait(next.exists(&node))?.is_none());
        Ok(())
    };
    on_a_thread(&backend, work).await
}

async fn a_guard_that_a_thread_drops_is_released(backend: Backend) -> Result<()> {
    let work = |servers: &str| {
        let (client, other) = (Client::connect(servers)?, Client::connect(servers)?);
        let guard = client.wait(Mutex::new(&client, "/b/mutex")?.acquire())?;
        thread::spawn(move || drop(guard)).join().expect("no panic");
        let next = other.wait(Mutex::new(&other, "/b/mutex")?.acquire_timeout(HANGS))?;
        Ok(other.wait(next.release())?)
    };
    on_a_thread(&backend, work).await
}

/// The client continues while the thread is blocked: it connects again with the same session.
async fn a_thread_waits_an_outage_out(backend: Backend) -> Result<()> {
    let direct = backend.connect_string();
    let (target, chroot) = direct.split_at(direct.find('/').unwrap_or(direct.len()));
    let proxy = Proxy::start(target).await?;
    let servers = format!("{}{chroot}", proxy.address());
    let work = move |_: &str| {
        let client = Client::connect(&servers)?;
        let (lock, session) = (Mutex::new(&client, "/b/mutex")?, client.session_id());
        proxy.refuse();
        let outage = async {
            let mut status = client.status();
            status.wait_for(|status| status.contact == Contact::Disconnected).await?;
            proxy.restore();
            anyhow::Ok(())
        };
        let acquire = async { Ok(lock.acquire().await?) };
        let (guard, ()) = client.wait(async { tokio::try_join!(acquire, outage) })?;
        assert_eq!(guard.session(), session);
        Ok(client.wait(guard.release())?)
    };
    on_a_thread(&backend, work).await
}

/// It would keep a runtime's thread from the tasks that have what is waited for.
async fn waiting_is_refused_in_async_code(backend: Backend) -> Result<()> {
    let work = |servers: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let refused = |work: &dyn Fn()| {
            let call = AssertUnwindSafe(|| runtime.block_on(async { work() }));
            let panic = catch_unwind(call).expect_err("it is refused");
            let message = panic.downcast_ref::<&str>().context("a message")?;
            assert!(message.contains("block"), "{message}");
            anyhow::Ok(())
        };
        refused(&|| drop(Client::connect(servers)))?;
        let client = Client::connect(servers)?;
        refused(&|| client.wait(client.close()))?;

        // It continues there with `.await`, and can be dropped anywhere.
        let lock = Mutex::new(&client, "/b/mutex")?;
        runtime.block_on(async {
            drop(lock.acquire().await?);
            drop(client);
            anyhow::Ok(())
        })
    };
    on_a_thread(&backend, work).await
}

/// The runtime of a client, with its background tasks.
async fn the_thread_of_a_client_ends_after_it(backend: Backend) -> Result<()> {
    let work = |servers: &str| {
        let client = Client::connect(servers)?;
        let runtime = client.tokio_runtime().clone();
        let builder = ReentrantMutex::builder(&client, "/b/lingers").linger(HANGS * 100);
        let lock = builder.build()?;
        client.wait(lock.acquire(&Owner::new("b")))?.keep();
        client.wait(
            client
                .wait(Mutex::builder(&client, "/b/idle").linger(HANGS).build()?.acquire())?
                .release(),
        )?;
        let presence = client.wait(Presence::builder(&client, "/b/presence").start())?;
        let cache = client.wait(TreeCache::open(&client, "/b"))?;
        drop(client);
        Ok((runtime, lock, presence, cache))
    };
    let (runtime, lock, presence, cache) = on_a_thread(&backend, work).await?;
    let serves = runtime.spawn(std::future::pending::<()>());
    drop((lock, presence, cache));
    let ended = tokio::time::timeout(HANGS, serves).await.context("its thread keeps running")?;
    assert!(ended.is_err_and(|ended| ended.is_cancelled()));
    Ok(())
}
