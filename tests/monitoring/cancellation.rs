//! The loss of a guard as a `CancellationToken`.

use std::time::Duration;

use anyhow::{Result, ensure};
use lockkeeper::{
    Client, Contact, Election, ExclusiveNode, Guard, LeaseMode, MultiLock, Mutex, Names, Owner,
    Pool, Queue, ReentrantMutex, RwLock, Semaphore,
};
use tokio_util::sync::CancellationToken;

use lockkeeper_testkit::backend::TICK;

use crate::{LOCK, rehearsed, run};

#[test]
fn every_guard_has_a_token_that_a_release_cancels() -> Result<()> {
    async fn check<G: std::ops::Deref<Target = Guard>>(guard: G) -> Result<()> {
        let path = guard.path().clone();
        let token = guard.cancellation_token();
        // The task behind it has begun to watch.
        guard.verify().await?;
        ensure!(!token.is_cancelled(), "{path} is held");
        ensure!(!guard.cancellation_token().is_cancelled(), "{path} has one token");
        drop(guard);
        ensure!(token.is_cancelled(), "{path} is released");
        Ok(())
    }

    run(|backend, _| async move {
        let client = &backend.observer().await?;
        check(Mutex::new(client, LOCK)?.acquire().await?).await?;
        let owner = Owner::new("ann");
        check(ReentrantMutex::new(client, "/locks/re")?.acquire(&owner).await?).await?;
        let lock = RwLock::new(client, "/locks/rw")?;
        check(lock.read().await?).await?;
        check(lock.write().await?).await?;
        check(lock.upgradeable_read().await?).await?;
        check(Semaphore::new(client, "/locks/se", 2)?.acquire().await?).await?;
        check(ExclusiveNode::new(client, "/locks/en")?.acquire().await?).await?;
        check(Names::new(client, "/names")?.claim("ann").await?).await?;
        check(Election::new(client, "/election")?.campaign().await?).await?;
        let pool = Pool::builder(client, "/pools/gpu").things(["0"]).build()?;
        check(pool.acquire().await?).await?;
        let queue: Queue<u8> = Queue::new(client, "/queues/mail")?;
        queue.put(&1).await?;
        check(queue.take().await?).await?;

        let both = MultiLock::new(client, ["/locks/a", "/locks/b"])?.acquire().await?;
        let (token, one) = (both.cancellation_token(), both.guards()[1].cancellation_token());
        ensure!(!token.is_cancelled() && !one.is_cancelled(), "they are held");
        both.release().await?;
        ensure!(token.is_cancelled() && one.is_cancelled(), "they are released");

        // Of a node that goes to the next holder of the process.
        let builder = Mutex::builder(client, "/locks/linger").linger(Duration::from_secs(30));
        let lock = builder.build()?;
        let guard = lock.acquire().await?;
        let token = guard.cancellation_token();
        guard.release().await?;
        ensure!(token.is_cancelled(), "it is handed on");
        ensure!(!lock.acquire().await?.cancellation_token().is_cancelled(), "a new holder");
        Ok(())
    })
}

/// A lock, and the token that reports its loss. The guard is not polled.
async fn unpolled(client: &Client) -> Result<(impl Sized, CancellationToken)> {
    let guard = MultiLock::new(client, ["/locks/a", "/locks/b"])?.acquire().await?;
    let token = guard.cancellation_token();
    Ok((guard, token))
}

#[test]
fn it_is_cancelled_by_each_loss_although_nothing_polls_the_guard() -> Result<()> {
    run(|backend, _| async move {
        let (client, rehearsal) = rehearsed(&backend).await?;
        let other = backend.observer().await?;

        let (guard, token) = unpolled(&client).await?;
        rehearsal.expire_session().await?;
        token.cancelled().await;
        drop(guard);

        // Another client takes the second lock by force. No heartbeat finds that under this lease.
        let direct = Client::builder().lease(LeaseMode::Direct).server_tick(TICK);
        let direct = direct.connect(&backend.connect_string()).await?;
        let both = MultiLock::new(&direct, ["/locks/a", "/locks/b"])?.acquire().await?;
        let token = both.cancellation_token();
        other.delete(both.guards()[1].node(), None).await?;
        token.cancelled().await;
        ensure!(!both.is_held() && both.guards()[0].is_held(), "the guard reports it too");
        ensure!(both.cancellation_token().is_cancelled(), "it stays lost");
        drop(both);
        client.reachable().await;

        // Without servers it ends at the deadline, and no later lock is granted before.
        let (_guard, token) = unpolled(&client).await?;
        rehearsal.cut_off();
        let next = MultiLock::new(&other, ["/locks/a", "/locks/b"])?;
        let next = next.acquire().await?;
        ensure!(token.is_cancelled(), "before another client holds it");
        next.release().await?;
        Ok(())
    })
}

/// What must not run in jeopardy may not run under the token, which cannot be taken back.
#[test]
fn a_jeopardy_cancels_it_and_the_next_one_is_new() -> Result<()> {
    run(|backend, _| async move {
        let (client, rehearsal) = rehearsed(&backend).await?;
        let guard = Mutex::new(&client, LOCK)?.acquire().await?;
        guard.allow_jeopardy()?;
        let token = guard.cancellation_token();
        rehearsal.cut_off();
        guard.jeopardy().await?;
        token.cancelled().await;
        ensure!(guard.cancellation_token().is_cancelled(), "still in jeopardy");

        rehearsal.reconnect();
        let mut status = client.status();
        status.wait_for(|status| status.contact == Contact::Connected).await?;
        guard.held_again().await?;
        ensure!(token.is_cancelled() && !guard.cancellation_token().is_cancelled(), "a new one");
        guard.release().await?;
        Ok(())
    })
}
