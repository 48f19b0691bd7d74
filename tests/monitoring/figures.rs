//! Each figure has the value that it says it has.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::metrics::{FIGURES, name_locks, update};
use lockkeeper::{
    Contact, Election, ExclusiveNode, HolderState, MultiLock, Mutex, Names, Queue, RwLock,
    Semaphore, ZnodePath,
};
use lockkeeper_testkit::backend::children_reach;

use crate::{LOCK, rehearsed, run};

#[test]
fn every_figure_is_registered_with_the_first_client() -> Result<()> {
    run(|backend, recorder| async move {
        assert!(recorder.names().is_empty());
        let _client = backend.observer().await?;
        let names = FIGURES.iter().map(|figure| figure.name.to_owned()).collect();
        assert_eq!(recorder.described(), names);
        for figure in FIGURES {
            // Queues have names that no library can know.
            let is_known = figure.labels.iter().all(|(_, values)| !values.is_empty());
            assert_eq!(recorder.names().contains(figure.name), is_known, "{}", figure.name);
        }
        assert_eq!(recorder.value("lockkeeper_lost_total{reason=revoked}"), 0.0);
        let failed = "lockkeeper_not_acquired_total{kind=write,reason=given_up}";
        assert_eq!(recorder.value(failed), 0.0);
        Ok(())
    })
}

#[test]
fn calls_are_counted_by_their_kind_and_how_they_end() -> Result<()> {
    run(|backend, recorder| async move {
        let (one, other) = (backend.observer().await?, backend.observer().await?);
        let ended = |kind: &str| {
            let count = |name: &str| recorder.value(&format!("lockkeeper_{name}{{kind={kind}}}"));
            let not = |reason: &str| {
                let labels = format!("{{kind={kind},reason={reason}}}");
                recorder.value(&format!("lockkeeper_not_acquired_total{labels}"))
            };
            assert_eq!(count("acquired_total"), count("acquire_wait_seconds"), "{kind}");
            let ends = [count("acquired_total"), not("taken"), not("given_up"), not("failed")];
            (count("acquire_attempts_total"), ends)
        };

        let guard = Mutex::new(&one, LOCK)?.acquire().await?;
        let lock = Mutex::new(&other, LOCK)?;
        assert!(lock.try_acquire().await?.is_none());
        assert!(lock.acquire_timeout(Duration::from_millis(20)).await.is_err());
        guard.release().await?;
        lock.acquire_timeout(Duration::from_secs(10)).await?.release().await?;
        lock.acquire().await?.release().await?;
        assert_eq!(ended("exclusive"), (5.0, [3.0, 1.0, 1.0, 0.0]));

        let lock = RwLock::new(&one, "/locks/prices")?;
        let reader = lock.read().await?;
        let upgradeable = lock.upgradeable_read().await?;
        assert!(lock.try_write().await?.is_none());
        drop((reader, upgradeable));
        lock.write().await?.release().await?;
        assert_eq!(ended("read"), (1.0, [1.0, 0.0, 0.0, 0.0]));
        assert_eq!(ended("upgradeable"), (1.0, [1.0, 0.0, 0.0, 0.0]));
        assert_eq!(ended("write"), (2.0, [1.0, 1.0, 0.0, 0.0]));

        let permits = Semaphore::new(&one, "/locks/printers", 2)?;
        let two = permits.acquire_many(2).await?;
        assert!(permits.try_acquire().await?.is_none());
        assert!(permits.acquire_many(3).await.is_err());
        two.release().await?;
        assert_eq!(ended("permits"), (3.0, [1.0, 1.0, 0.0, 1.0]));

        let both = MultiLock::new(&one, ["/locks/a", "/locks/b"])?;
        let guard = both.acquire().await?;
        assert!(both.try_acquire().await?.is_none());
        guard.release().await?;
        assert_eq!(ended("several"), (2.0, [1.0, 1.0, 0.0, 0.0]));

        Election::new(&one, "/election")?.campaign().await?.resign().await?;
        assert_eq!(ended("leader"), (1.0, [1.0, 0.0, 0.0, 0.0]));

        let guard = ExclusiveNode::new(&one, "/locks/node")?.acquire().await?;
        assert!(ExclusiveNode::new(&other, "/locks/node")?.try_acquire().await?.is_none());
        guard.release().await?;
        Names::new(&one, "/names")?.claim("ann").await?.release().await?;
        let (attempts, ends) = ended("node");
        assert_eq!((attempts, ends[0], ends[1]), (3.0, 2.0, 1.0));

        // Each lock of the two is a hold.
        assert_eq!(recorder.value("lockkeeper_hold_seconds"), 12.0);
        update();
        assert_eq!(recorder.value("lockkeeper_held"), 0.0);

        other.close().await;
        assert!(Mutex::new(&other, LOCK)?.acquire().await.is_err());
        assert_eq!(ended("exclusive"), (6.0, [3.0, 1.0, 1.0, 1.0]));
        Ok(())
    })
}

#[test]
fn a_wait_shows_before_it_ends_and_a_lease_before_it_runs_out() -> Result<()> {
    run(|backend, recorder| async move {
        let (one, rehearsal) = rehearsed(&backend).await?;
        let other = backend.observer().await?;
        let timeout = one.session_timeout().min(other.session_timeout()).as_secs_f64();
        update();
        assert_eq!(recorder.value("lockkeeper_session_timeout_seconds"), timeout);
        assert_eq!(recorder.value("lockkeeper_lease_remaining_seconds"), timeout);
        assert_eq!(recorder.value("lockkeeper_sessions{state=connected}"), 2.0);

        let guard = Mutex::new(&one, LOCK)?.acquire().await?;
        let lock = Mutex::new(&other, LOCK)?;
        let waiting = tokio::spawn(async move { lock.acquire().await });
        children_reach(&one, &ZnodePath::new(LOCK)?, 2).await?;
        update();
        let wait = recorder.value("lockkeeper_oldest_wait_seconds");
        let lease = recorder.value("lockkeeper_lease_remaining_seconds");
        assert!(wait > 0.0 && lease > 0.0 && lease < timeout, "{wait} {lease}");
        assert!(recorder.value("lockkeeper_oldest_hold_seconds") > 0.0);
        assert_eq!(recorder.value("lockkeeper_waiting"), 1.0);
        assert_eq!(recorder.value("lockkeeper_held"), 1.0);

        // Without servers the wait grows, and the lease runs out.
        rehearsal.cut_off();
        let mut status = one.status();
        status.wait_for(|status| status.contact == Contact::Disconnected).await?;
        tokio::time::sleep(guard.remaining() / 4).await;
        update();
        assert!(recorder.value("lockkeeper_oldest_wait_seconds") > wait);
        let left = recorder.value("lockkeeper_lease_remaining_seconds");
        assert!(left < lease && left >= guard.remaining().as_secs_f64(), "{left} of {lease}");
        assert!(recorder.value("lockkeeper_session_silence_seconds") > 0.0);
        assert_eq!(recorder.value("lockkeeper_sessions{state=connected}"), 1.0);
        assert_eq!(recorder.value("lockkeeper_disconnects_total"), 1.0);

        rehearsal.reconnect();
        let mut status = one.status();
        status.wait_for(|status| status.contact == Contact::Connected).await?;
        guard.release().await?;
        waiting.await??.release().await?;
        update();
        assert_eq!(recorder.value("lockkeeper_oldest_wait_seconds"), 0.0);
        assert_eq!(recorder.value("lockkeeper_waiting"), 0.0);
        assert_eq!(recorder.value("lockkeeper_held"), 0.0);
        assert_eq!(recorder.value("lockkeeper_lease_remaining_seconds"), timeout);

        one.close().await;
        update();
        assert_eq!(recorder.value("lockkeeper_sessions{state=connected}"), 1.0);
        Ok(())
    })
}

/// A task that waits behind another one of its handle does not have a contender on the server.
#[test]
fn a_wait_in_the_queue_of_this_process_counts() -> Result<()> {
    run(|backend, recorder| async move {
        let client = backend.observer().await?;
        let lock = Mutex::new(&client, LOCK)?;
        let guard = lock.acquire().await?;
        let mut waiting = Box::pin(lock.acquire());
        assert!(futures_poll(&mut waiting).await.is_none());
        update();
        assert_eq!(recorder.value("lockkeeper_waiting"), 1.0);
        drop(waiting);
        update();
        assert_eq!(recorder.value("lockkeeper_waiting"), 0.0);
        let given_up = "lockkeeper_not_acquired_total{kind=exclusive,reason=given_up}";
        assert_eq!(recorder.value(given_up), 1.0);
        guard.release().await?;
        Ok(())
    })
}

/// Polls once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[test]
fn a_loss_is_counted_once_whether_it_was_noticed_or_not() -> Result<()> {
    run(|backend, recorder| async move {
        let (client, rehearsal) = rehearsed(&backend).await?;
        let lost =
            |reason: &str| recorder.value(&format!("lockkeeper_lost_total{{reason={reason}}}"));
        let seen = Mutex::new(&client, LOCK)?.acquire().await?;
        let unseen = Mutex::new(&client, "/locks/other")?.acquire().await?;
        // Its guard does not use a local queue, and is dropped differently.
        let reader = RwLock::new(&client, "/locks/prices")?.read().await?;
        let taken = Mutex::new(&client, "/locks/taken")?.acquire().await?;
        client.delete(taken.node(), None).await?;
        taken.lost().await;
        assert_eq!(lost("node_deleted"), 1.0);

        let session = client.session_id();
        rehearsal.expire_session().await?;
        let mut status = client.status();
        status.wait_for(|status| status.session != session).await?;
        assert!(matches!(seen.state(), HolderState::Lost(_)));
        assert_eq!(lost("session_expired"), 1.0);
        drop((seen, unseen, taken, reader));
        assert_eq!(lost("session_expired"), 3.0);
        assert_eq!(lost("node_deleted"), 1.0);
        assert_eq!(recorder.value("lockkeeper_sessions_expired_total"), 1.0);
        assert_eq!(recorder.value("lockkeeper_hold_seconds"), 4.0);
        Ok(())
    })
}

/// A lingering node is held by no holder.
#[test]
fn a_node_that_is_kept_is_held_only_while_it_has_a_holder() -> Result<()> {
    run(|backend, recorder| async move {
        let client = backend.observer().await?;
        let builder = Mutex::builder(&client, LOCK).linger(Duration::from_secs(30));
        let lock = builder.build()?;
        for holds in [1.0, 2.0] {
            let guard = lock.acquire().await?;
            update();
            assert_eq!(recorder.value("lockkeeper_held"), 1.0);
            guard.release().await?;
            update();
            assert_eq!(recorder.value("lockkeeper_held"), 0.0);
            assert_eq!(recorder.value("lockkeeper_hold_seconds"), holds);
        }
        Ok(())
    })
}

#[test]
fn a_queue_shows_what_the_last_inspection_found() -> Result<()> {
    run(|backend, recorder| async move {
        let client = backend.observer().await?;
        let queue: Queue<String> = Queue::new(&client, "/queues/mail")?;
        for item in ["one", "two", "three"] {
            queue.put(&item.to_owned()).await?;
        }
        queue.take().await?.bury("it is wrong").await?;
        let item = queue.take().await?;
        queue.inspect().await?;
        let items = |state: &str| {
            let labels = format!("{{queue=/queues/mail,state={state}}}");
            recorder.value(&format!("lockkeeper_queue_items{labels}"))
        };
        assert_eq!((items("waiting"), items("claimed"), items("dead")), (1.0, 1.0, 1.0));
        let oldest = "lockkeeper_queue_oldest_item_seconds{queue=/queues/mail}";
        assert!(recorder.value(oldest) >= 0.0);
        item.done().await?;
        Ok(())
    })
}

#[test]
fn locks_have_the_names_that_the_program_gives_them() -> Result<()> {
    run(|backend, recorder| async move {
        let name = |path: &ZnodePath| {
            let below = path.as_str().strip_prefix("/named/")?;
            Some(below.split('/').next()?.to_owned().into())
        };
        assert!(name_locks(name), "the first one");
        assert!(!name_locks(|_| None), "and no other");

        let client = backend.observer().await?;
        for path in ["/named/orders/1", "/named/orders/2", LOCK] {
            Mutex::new(&client, path)?.acquire().await?.release().await?;
        }
        let acquired = |labels: &str| recorder.value(&format!("lockkeeper_acquired_total{labels}"));
        assert_eq!(acquired("{kind=exclusive,lock=orders}"), 2.0);
        assert_eq!(acquired("{kind=exclusive}"), 1.0);
        assert_eq!(recorder.value("lockkeeper_hold_seconds{lock=orders}"), 2.0);
        Ok(())
    })
}
