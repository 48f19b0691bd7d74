//! Losses that a program rehearses on itself: its guard notices, in the order in which locks are lost.

use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::{
    Client, Contact, Guard, HolderState, LossReason, Mutex, MutexGuard, Outcome, Rehearsal,
    TransactionError, ZnodePath,
};
use lockkeeper_testkit::backend::{Backend, children_reach};

use crate::{LOCK, contract, queue_up};

contract!(rehearsal);

/// A client in rehearsal.
async fn rehearsed(backend: &Backend) -> Result<(Client, Rehearsal)> {
    let rehearsal = Rehearsal::new();
    let client = Client::builder().rehearsal(&rehearsal).connect(&backend.connect_string()).await?;
    Ok((client, rehearsal))
}

async fn held(client: &Client) -> Result<MutexGuard> {
    Ok(Mutex::new(client, LOCK)?.acquire().await?)
}

fn is_lost(guard: &Guard) -> bool {
    matches!(guard.state(), HolderState::Lost(_))
}

async fn a_session_that_expires_takes_the_lock_after_its_holder_knows(
    backend: Backend,
) -> Result<()> {
    let (client, rehearsal) = rehearsed(&backend).await?;
    let other = backend.participant().await?;
    let guard = held(&client).await?;
    let work = guard.run(std::future::pending::<()>());
    let waiting = queue_up(&other, &Mutex::new(&other.client, LOCK)?, 2).await?;

    let session = client.session_id();
    rehearsal.expire_session().await?;
    let next = waiting.await??;
    assert!(is_lost(&guard), "before another client holds it");
    assert!(work.await.is_err(), "the work stops");
    assert!(next.token() > guard.token());

    let mut status = client.status();
    status.wait_for(|status| status.contact == Contact::Connected).await?;
    assert_ne!(client.session_id(), session);
    next.release().await?;
    held(&client).await?.release().await?;
    Ok(())
}

async fn a_client_that_is_cut_off_loses_the_lock_at_its_deadline(backend: Backend) -> Result<()> {
    let (client, rehearsal) = rehearsed(&backend).await?;
    let guard = held(&client).await?;
    rehearsal.cut_off();
    let mut status = client.status();
    status.wait_for(|status| status.contact == Contact::Disconnected).await?;
    assert!(matches!(guard.state(), HolderState::Suspect { .. }), "{:?}", guard.state());

    rehearsal.pause(guard.remaining() + Duration::from_millis(1));
    assert_eq!(guard.state(), HolderState::Lost(LossReason::DeadlinePassed));
    rehearsal.reconnect();
    drop(guard);
    // Its node goes with the first connection.
    held(&client).await?.release().await?;
    Ok(())
}

/// The clock of the lease stops with the program; the servers' actions during that time do not help.
async fn a_program_that_stands_still_has_lost_the_lock_when_it_goes_on(
    backend: Backend,
) -> Result<()> {
    let (client, rehearsal) = rehearsed(&backend).await?;
    let other = backend.participant().await?;
    let guard = held(&client).await?;
    let waiting = queue_up(&other, &Mutex::new(&other.client, LOCK)?, 2).await?;
    rehearsal.pause(guard.remaining() / 2);
    assert!(guard.is_held(), "half a lease is left");
    guard.verify().await?;

    rehearsal.pause(client.session_timeout());
    // The session goes on, and that does not bring the lock back: nobody may have looked in between.
    client.data(&ZnodePath::root()).await?;
    assert_eq!(guard.lost().await, LossReason::DeadlinePassed);
    assert!(!waiting.is_finished());
    drop(guard);
    waiting.await??.release().await?;
    Ok(())
}

async fn a_reply_that_is_lost_leaves_the_write_done_once(backend: Backend) -> Result<()> {
    let (client, rehearsal) = rehearsed(&backend).await?;
    let path = ZnodePath::new("/rehearsed")?;
    client.create(&path, "0", lockkeeper::CreateMode::Persistent).await?;

    rehearsal.lose_next_reply();
    client.data(&path).await?;
    let failed = client.set_data(&path, "1", Some(0)).await.err().context("no reply comes")?;
    assert!(failed.is_retryable() && failed.outcome() == Outcome::Unknown, "{failed:?}");
    assert_eq!(client.data(&path).await?.0, "1", "it is done all the same");

    // What a lock does about it: one contender, and no other one.
    rehearsal.lose_next_reply();
    let guard = held(&client).await?;
    guard.verify().await?;
    rehearsal.lose_next_reply();
    let steps = guard.transaction().set_data(&path, "2", Some(1));
    let failed = steps.commit().await.err().context("no reply comes")?;
    assert!(matches!(failed, TransactionError::Request(_)), "{failed:?}");
    assert_eq!(client.data(&path).await?.0, "2");
    guard.release().await?;
    children_reach(&client, &crate::lock_path(), 0).await
}
