//! Between the front of the line and the guard: the proof that the lock is held.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::{AcquireError, Client, Mutex};
use lockkeeper_testkit::backend::Backend;
use lockkeeper_testkit::proxy::Loss;
use lockkeeper_wire::OpCode;

use crate::contract;
use crate::locks::{line_up, lock_of};

contract!("grant":
    connections_that_are_lost_are_no_short_lease,
);

/// Whoever lost the connection at each try to prove the lock was told that servers are too slow,
/// and to use a longer session timeout.
async fn connections_that_are_lost_are_no_short_lease(backend: Backend) -> Result<()> {
    let short = Client::builder().session_timeout(Duration::from_secs(6));
    let (alice, bob) = (backend.participant().await?, backend.participant_with(short).await?);
    let guard = lock_of::<Mutex>(&alice)?.acquire().await?;
    let waiting = line_up::<Mutex>(&backend, &bob, 2).await?;
    // A lease that is young enough needs no proof.
    while bob.client.lease().remaining(bob.client.now()) >= bob.client.timing().left_at_grant() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // For each proof, and for the heartbeats in between.
    for _ in 0..20 {
        bob.proxy.lose_next(OpCode::Multi, Loss::BeforeRequest);
    }
    guard.release().await?;
    let error = waiting.await?.expect_err("nothing was proven");
    let AcquireError::Client { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.is_retryable() && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("connection was lost"), "{error}");
    Ok(())
}
