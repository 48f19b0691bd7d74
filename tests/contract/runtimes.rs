//! Handles that are used in more than one tokio runtime, runtimes that are blocked or end, and closures
//! of the user that panic in background tasks.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    AcquireError, CacheError, Change, Client, Counter, CreateMode, Election, Group, IdBlocks,
    LossReason, Mutex, Outcome, Presence, PresenceError, PresenceState, ServiceDirectory,
    TreeCache, ValueError, WhenTaken, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::{Observed, contract};

contract!(runtimes);

/// What nothing here takes unless it hangs.
const HANGS: Duration = Duration::from_secs(20);

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).expect("a path")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs something on a thread without a runtime. It is left alone if it hangs.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, is_done) = oneshot::channel();
    std::thread::spawn(move || done.send(work()).ok());
    in_time(is_done).await?.context("it panicked")?
}

async fn in_time<F: Future>(call: F) -> Result<F::Output> {
    tokio::time::timeout(HANGS, call).await.context("it hangs")
}

/// Polls it once; it is not done by then.
async fn begun<F: Future>(mut future: Pin<&mut F>) {
    let once = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
    assert!(once.await.is_pending(), "nothing has been answered yet");
}

/// Two adds in one write, after which the next one waits for tasks to add to it.
async fn shared_write(counter: &Counter) -> Result<()> {
    let (one, other) = tokio::join!(counter.add(1), counter.add(1));
    one?;
    other?;
    Ok(())
}

/// An add in a runtime that is kept for the next call of its thread, and does not run in between.
///
/// Fails if wake-ups are left to the runtime of the polling caller: the second add hangs.
async fn an_add_in_a_runtime_that_stands_still_stalls_no_other(alice: Participant) -> Result<()> {
    let counter = Counter::new(&alice.client, "/orders")?;
    let ids = IdBlocks::new(&counter, 1);
    elsewhere(move || {
        let (first, second) = (runtime(), runtime());
        first.block_on(shared_write(&counter))?;
        let mut held = pin!(counter.add(10));
        first.block_on(begun(held.as_mut()));
        assert_eq!(second.block_on(in_time(counter.add(100)))??.after, 112);
        assert_eq!(first.block_on(held)?.after, 12);

        first.block_on(shared_write(&counter))?;
        let mut held = pin!(ids.next());
        first.block_on(begun(held.as_mut()));
        let other = second.block_on(in_time(ids.next()))??;
        assert_ne!(first.block_on(held)?, other);
        Ok(())
    })
    .await
}

/// Fails if wake-ups are left to the runtime of the polling caller: the second add hangs.
async fn an_add_in_a_runtime_that_has_ended_stalls_no_other(alice: Participant) -> Result<()> {
    let counter = Counter::new(&alice.client, "/orders")?;
    elsewhere(move || {
        let (first, second) = (runtime(), runtime());
        first.block_on(shared_write(&counter))?;
        let mut held = Box::pin(counter.add(10));
        first.block_on(begun(held.as_mut()));
        drop((held, first));
        let after = second.block_on(in_time(counter.add(100)))??.after;
        assert!(matches!(after, 102 | 112), "{after}");
        Ok(())
    })
    .await
}

/// The client lives on in another one.
///
/// Fails with tasks in the runtime of the caller: the cache does not report its end, its changes
/// hang, and the presence counts as present without a node.
async fn what_was_begun_in_a_runtime_that_has_ended_goes_on((alice, bob): Observed) -> Result<()> {
    bob.create(&path("/config"), "", CreateMode::Persistent).await?;
    let client = alice.client.clone();
    let (cache, presence, members) = elsewhere(move || {
        runtime().block_on(async {
            let cache = TreeCache::open(&client, "/config").await?;
            let presence = Presence::builder(&client, "/workers/7").start().await?;
            let members = Group::new(&client, "/group")?.watch().await?;
            Ok((cache, presence, members))
        })
    })
    .await?;

    let mut changes = cache.changes();
    bob.create(&path("/config/color"), "red", CreateMode::Persistent).await?;
    let update = in_time(changes.next()).await??;
    assert!(matches!(&update.changes[..], [Change::Created { .. }]), "{update:?}");
    let _member = Group::new(&bob, "/group")?.join("bob", "").await?;
    assert_eq!(in_time(members.wait_for(1)).await??.len(), 1);

    in_time(presence.update("new")).await??;
    assert_eq!(bob.data(presence.path()).await?.0, "new");
    in_time(presence.end()).await??;
    assert!(bob.exists(&path("/workers/7")).await?.is_none());
    Ok(())
}

/// Fails with the node's keeper in the runtime of the releasing caller: bob waits forever.
async fn a_lingering_node_does_not_stay_when_a_runtime_has_ended(
    (alice, bob): Observed,
) -> Result<()> {
    let ours = Mutex::builder(&alice.client, "/lock").linger(Duration::from_secs(600)).build()?;
    let lock = ours.clone();
    elsewhere(move || {
        runtime().block_on(async {
            lock.acquire().await?.release().await?;
            Ok(())
        })
    })
    .await?;
    let theirs = Mutex::new(&bob, "/lock")?;
    in_time(theirs.acquire()).await??.release().await?;
    drop(ours);
    Ok(())
}

/// In a runtime that is blocked from then on, and without a runtime.
///
/// Fails with the wait for the delete in the runtime of the caller that gave up: the next start hangs in the
/// first case, and is refused in the second, because its own session has the node.
async fn a_start_that_is_given_up_makes_room_for_the_next(alice: Participant) -> Result<()> {
    alice.client.create(&path("/workers"), "", CreateMode::Persistent).await?;
    elsewhere(move || {
        let (still, other) = (runtime(), runtime());
        let node = Presence::builder(&alice.client, "/workers/7").when_taken(WhenTaken::Fail);
        for has_runtime in [true, false] {
            alice.proxy.hold_replies();
            let mut given_up = Box::pin(node.clone().start());
            still.block_on(begun(given_up.as_mut()));
            match has_runtime {
                true => still.block_on(async { drop(given_up) }),
                false => drop(given_up),
            }

            let mut next = Box::pin(node.clone().start());
            other.block_on(begun(next.as_mut()));
            alice.proxy.restore();
            let next = other.block_on(in_time(next))??;
            other.block_on(in_time(next.end()))??;
        }
        Ok(())
    })
    .await
}

/// Fails without a word at the end of the tasks: requests, changes and views were waited for for ever,
/// the presences were as they had been, and `taken` did not return and took a whole processor.
async fn the_end_of_the_clients_runtime_is_told(backend: Backend) -> Result<()> {
    let bob = backend.observer().await?;
    let others = Presence::builder(&bob, "/taken").start().await?;
    let servers = backend.connect_string();
    let (client, cache, members, directory, leaders, presence, taken) = elsewhere(move || {
        let short = runtime();
        short.block_on(async {
            let client = Client::connect(&servers).await?;
            let cache = TreeCache::open(&client, "/config").await?;
            let members = Group::new(&client, "/group")?.watch().await?;
            let directory = ServiceDirectory::open(&client, "/services", "web").await?;
            let leaders = Election::new(&client, "/election")?.observe().await?;
            let presence = Presence::builder(&client, "/workers/7").start().await?;
            let taken = Presence::builder(&client, "/taken").start().await?;
            assert!(matches!(taken.state(), PresenceState::Taken { .. }));
            Ok((client, cache, members, directory, leaders, presence, taken))
        })
    })
    .await?;

    let answer = in_time(client.exists(&path("/config"))).await?;
    assert!(answer.expect_err("nobody asks").is_closed());
    let stopped = CacheError::Stopped { path: path("/config") };
    assert_eq!((cache.ended(), cache.is_current()), (Some(stopped.clone()), false));
    assert_eq!(in_time(cache.changes().next()).await?.expect_err("ended"), stopped);
    assert!(members.ended().is_some() && in_time(members.wait_for(1)).await?.is_err());
    assert!(directory.ended().is_some());
    assert!(in_time(directory.changes().next()).await?.is_err());
    let mut leaders = leaders;
    assert!(in_time(leaders.next()).await?.is_err());

    let stopped = PresenceError::Stopped { path: path("/workers/7") };
    assert_eq!(presence.state(), PresenceState::Ended(stopped.clone()));
    assert_eq!(in_time(presence.update("new")).await?, Err(stopped));
    in_time(presence.end()).await??;
    assert_eq!(in_time(taken.taken()).await?, PresenceError::Stopped { path: path("/taken") });
    others.end().await?;
    Ok(())
}

/// Also one that had been begun, of which it is unknown what came of it.
///
/// Fails with work that went on: it waited for a timer of the runtime that had ended, and panicked.
async fn an_add_without_the_clients_runtime_is_told_that_it_is_closed(
    backend: Backend,
) -> Result<()> {
    let servers = backend.connect_string();
    elsewhere(move || {
        let other = runtime();
        for is_begun in [false, true] {
            let home = runtime();
            let client = home.block_on(Client::connect(&servers))?;
            let counter = Counter::new(&client, "/orders")?;
            let ids = IdBlocks::new(&counter, 1);
            home.block_on(shared_write(&counter))?;
            let (mut add, mut number) = (pin!(counter.add(1)), pin!(ids.next()));
            if is_begun {
                other.block_on(begun(add.as_mut()));
                other.block_on(begun(number.as_mut()));
            }
            drop(home);

            let error = other.block_on(in_time(add))?.expect_err("it is not sent");
            match is_begun {
                true => assert_eq!(error.outcome(), Outcome::Unknown, "{error}"),
                false => is_closed(error),
            }
            is_closed(other.block_on(in_time(number))?.expect_err("it is not sent"));
            is_closed(other.block_on(in_time(counter.add(1)))?.expect_err("it is not sent"));
            is_closed(other.block_on(in_time(ids.next()))?.expect_err("it is not sent"));
        }
        Ok(())
    })
    .await
}

fn is_closed(error: ValueError) {
    assert_eq!((error.outcome(), error.is_retryable()), (Outcome::NotApplied, false), "{error}");
    let ValueError::Client { source, .. } = error else { panic!("{error:?}") };
    assert!(source.is_closed(), "{source}");
}

/// The server sends the events of a session's nodes before it reports the end of the session. Symptom: waiters
/// and holders reported that another client had deleted their nodes.
async fn a_session_that_ends_while_its_program_stands_still_is_named(
    backend: Backend,
) -> Result<()> {
    let (alice, bob) = (backend.participant().await?, backend.observer().await?);
    let _first = Mutex::new(&alice.client, "/waited")?.acquire().await?;
    let servers = backend.connect_string();
    elsewhere(move || {
        let (still, other) = (runtime(), runtime());
        let shortest = Client::builder().session_timeout(Duration::from_secs(4));
        let client = still.block_on(shortest.connect(&servers))?;
        let (waited, held) = (Mutex::new(&client, "/waited")?, Mutex::new(&client, "/held")?);

        let guard = still.block_on(held.acquire())?;
        let waiter = still.spawn(async move { waited.acquire().await.map(drop) });
        let holder = still.spawn(async move { guard.lost().await });
        still.block_on(async {
            while client.children(&path("/waited")).await?.0.len() < 2 {}
            // The wait for the loss has its watch by then.
            client.sync(&path("/held")).await
        })?;

        // Nothing runs there until the server has ended the session.
        other.block_on(async {
            while bob.children(&path("/waited")).await?.0.len() > 1
                || !bob.children(&path("/held")).await?.0.is_empty()
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::Ok(())
        })?;

        let waited = still.block_on(in_time(waiter))??;
        assert!(matches!(waited, Err(AcquireError::SessionExpired { .. })), "{waited:?}");
        let lost = still.block_on(in_time(holder))??;
        assert!(matches!(lost, LossReason::DeadlinePassed | LossReason::SessionExpired), "{lost}");
        Ok(())
    })
    .await
}

/// Fails without a word at the end of the task: the changes were waited for for ever.
async fn a_filter_that_panics_ends_its_cache(alice: Participant) -> Result<()> {
    alice.client.create(&path("/config"), "", CreateMode::Persistent).await?;
    let wanted = |path: &str| {
        assert!(!path.ends_with("bad"), "as it is meant to");
        true
    };
    let cache = TreeCache::builder(&alice.client, "/config").filter(wanted).open().await?;
    let mut changes = cache.changes();
    alice.client.create(&path("/config/bad"), "", CreateMode::Persistent).await?;
    let stopped = CacheError::Stopped { path: path("/config") };
    // The same while it opens, where the panic crossed into the caller.
    let opened = TreeCache::builder(&alice.client, "/config").filter(wanted).open();
    assert_eq!(in_time(opened).await?.map(drop), Err(stopped.clone()));
    assert_eq!(in_time(changes.next()).await?.expect_err("ended"), stopped);
    assert_eq!((cache.ended(), cache.is_current()), (Some(stopped), false));
    Ok(())
}

/// Fails without a word at the end of the task: it was taken by a session that was over.
async fn a_closure_of_a_presence_that_panics_ends_it((alice, bob): Observed) -> Result<()> {
    let others = Presence::builder(&bob, "/workers/7").data("good").start().await?;
    let replaces = |data: &[u8]| {
        assert!(data == b"good", "as it is meant to");
        false
    };
    let presence =
        Presence::builder(&alice.client, "/workers/7").replaces(replaces).start().await?;
    let mut changes = presence.changes();
    others.update("bad").await?;
    let has_ended = |state: &PresenceState| matches!(state, PresenceState::Ended(_));
    let ended = in_time(changes.wait_for(has_ended)).await??.clone();
    let stopped = PresenceError::Stopped { path: path("/workers/7") };
    assert_eq!(ended, PresenceState::Ended(stopped.clone()));
    assert_eq!(in_time(presence.taken()).await?, stopped);
    others.end().await?;
    Ok(())
}
