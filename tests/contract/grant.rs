//! Between the front of the line and the guard: the proof that the lock is held, and how long it is waited for.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{AcquireError, Client, Contact, Mutex};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;

use crate::contract;
use crate::locks::{Exclusive, Held, line_up, lock_of};

contract!(grant);

/// Symptom: for a second after a standstill (STOP and CONT, a blocking call on the runtime), a free lock was
/// denied, "the servers are too slow", after a few milliseconds, and a waiter lost its place. Cause: what the
/// servers had heard before the standstill was too old for a proof, and three proofs were made at once. Fix: the
/// grant waits until a follower has told its leader of an answer.
async fn n33_a_program_that_stood_still_gets_its_lock<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(2));
    let (alice, bob) = (backend.participant().await?, backend.participant_with(short).await?);
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    let waiting = line_up::<L>(&bob, 2).await?;
    stand_still(&bob);
    guard.release().await?;
    let other = L::new(&bob.client, "/locks/other")?;
    let (guard, other) = tokio::join!(waiting, other.try_acquire());
    guard??.release().await?;
    other?.expect("it is free").release().await?;
    Ok(())
}

/// Stops everything in this program for longer than a lease, and for less than the session lives.
fn stand_still(participant: &Participant) {
    let timing = participant.client.timing();
    let time = timing.timeout().mul_f64(0.82);
    assert!(time > timing.lease() && time < timing.timeout() - timing.ping_interval());
    std::thread::sleep(time);
}

/// Symptom: an acquire with a limit gave up at the session timeout, and later ones at once. Cause: none of its
/// requests knew of the limit. Fix: what an outage ends is done again until the limit.
async fn n32_an_acquire_with_a_limit_outlasts_an_outage<L: Exclusive>(
    backend: Backend,
) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(1));
    let (alice, bob) = (backend.participant().await?, backend.participant_with(short).await?);
    let guard = lock_of::<L>(&alice)?.acquire().await?;
    bob.proxy.refuse();
    let lock = lock_of::<L>(&bob)?;
    let waiting = tokio::spawn(async move { lock.acquire_timeout(Duration::from_secs(200)).await });
    let mut status = bob.client.status();
    status.wait_for(|status| status.contact == Contact::Unreachable).await?;

    // One that begins during the outage, too.
    let lock = lock_of::<L>(&bob)?;
    let late = tokio::spawn(async move { lock.acquire_timeout(Duration::from_secs(200)).await });
    bob.proxy.restore();
    status.wait_for(|status| status.contact == Contact::Connected).await?;
    assert!(!waiting.is_finished() && !late.is_finished());
    guard.release().await?;
    let (waiting, late) = tokio::join!(
        async { waiting.await?.map_err(anyhow::Error::from)?.release().await.map_err(Into::into) },
        async { late.await?.map_err(anyhow::Error::from)?.release().await.map_err(Into::into) },
    );
    waiting.and(late)
}

async fn n32_a_limit_without_servers_is_used_up(backend: Backend) -> Result<()> {
    let session_timeout = Duration::from_secs(1);
    let short = Client::builder().session_timeout(session_timeout);
    let alice = backend.participant_with(short).await?;
    alice.proxy.freeze();
    let (start, limit) = (std::time::Instant::now(), session_timeout * 5 / 2);
    let error =
        lock_of::<Mutex>(&alice)?.acquire_timeout(limit).await.expect_err("no server answers");
    let AcquireError::Timeout { is_connected, .. } = error else { panic!("{error:?}") };
    assert!(!is_connected && start.elapsed() >= limit, "{:?}", start.elapsed());
    Ok(())
}

/// Whoever lost the connection at each of three tries to prove the lock was denied it.
async fn connections_that_are_lost_deny_no_lock(backend: Backend) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(6));
    let (alice, bob) = (backend.participant().await?, backend.participant_with(short).await?);
    let guard = lock_of::<Mutex>(&alice)?.acquire().await?;
    let waiting = line_up::<Mutex>(&bob, 2).await?;
    // A lease that is young enough needs no proof.
    while bob.client.lease().remaining(bob.client.now()) >= bob.client.timing().left_at_grant() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..6 {
        bob.proxy.lose_next(OpCode::Multi, Loss::BeforeRequest);
    }
    guard.release().await?;
    let guard = waiting.await??;
    assert_eq!(bob.proxy.losses_to_come(), 0, "each try to prove it lost the connection");
    guard.release().await?;
    Ok(())
}
