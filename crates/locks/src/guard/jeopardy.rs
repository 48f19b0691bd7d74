//! Keeping a lock through an outage that is longer than its lease.
//!
//! A deadline ends work at the first long outage, although in most outages no other client takes the
//! lock. Where the holder allows it, a *jeopardy* (Chubby's word) begins at the deadline: the lock
//! counts as not held, and no work runs, until the session proves that the same node of the same
//! session existed all the time. Then no other client can have been granted the lock, and the holder
//! continues with the same token. `docs/decisions/0020-jeopardy.md` has the proof.
//!
//! Each function takes the guards of all locks that the work depends on: at least one, and of one client.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lockkeeper_client::retry::retry_pause;
use lockkeeper_client::{Client, bound_to};

use crate::error::{EnsureError, LossReason, VerifyError};
use crate::guard::proving::{shown_by_a_proof, until_a_proof_counts};
use crate::guard::{Guard, several};

/// Runs work while the lock is held.
pub(crate) async fn run<T>(
    guards: &[Guard],
    work: impl Future<Output = T>,
) -> Result<T, LossReason> {
    let work = pin!(work);
    match while_held(guards, work).await {
        Ok(output) => Ok(output),
        Err(reason) => Err(reason.unwrap_or(LossReason::DeadlinePassed)),
    }
}

/// Runs work while the lock is held, and continues it after a jeopardy of at most `grace`.
pub(crate) async fn run_through<T>(
    guards: &[Guard],
    grace: Duration,
    work: impl Future<Output = T>,
) -> Result<T, LossReason> {
    several::allow_jeopardy(guards)?;
    let mut work = pin!(work);
    loop {
        match while_held(guards, work.as_mut()).await {
            Ok(output) => return Ok(output),
            Err(Some(reason)) => return Err(reason),
            Err(None) => outwait(guards, grace).await?,
        }
    }
}

/// Waits out a jeopardy of at most `grace`, until `wanted` is left of the lease. A `grace` that is not zero
/// allows jeopardy.
pub(crate) async fn checkpoint(
    guards: &[Guard],
    wanted: Duration,
    grace: Duration,
) -> Result<(), EnsureError> {
    // Before the first look: what a deadline ends without it stays lost.
    if !grace.is_zero() {
        several::allow_jeopardy(guards).map_err(EnsureError::Lost)?;
    }

    loop {
        let left = match several::ensure(guards, wanted) {
            Err(EnsureError::Jeopardy) => {
                outwait(guards, grace).await.map_err(EnsureError::Lost)?;
                continue;
            }
            Err(EnsureError::TooShort { left, .. }) => left,
            settled => return settled,
        };

        let client = guards[0].client();
        let proven = async {
            let counts = until_a_proof_counts(client, wanted.min(shown_by_a_proof(client))).await;
            (counts, several::verify(guards).await)
        };
        // The answer may take as long as the outage, which the grace bounds from the deadline on.
        let (counts, verified) = tokio::select! {
            biased;
            proven = proven => proven,
            () = passed(client, left) => continue,
        };
        let is_final = match verified {
            // A fresh proof is the best that these servers give, if it could show as much.
            Ok(()) => counts,
            Err(VerifyError::Refused(_)) => true,
            Err(VerifyError::Unknown(error)) => retry_pause(error).await.is_err(),
            Err(VerifyError::Lost(_) | VerifyError::Jeopardy) => false,
        };

        match several::ensure(guards, wanted) {
            Err(EnsureError::TooShort { .. }) if !is_final => {}
            Err(EnsureError::Jeopardy) => {}
            settled => return settled,
        }
    }
}

/// Polls the work while the lock is held. Checks before every poll, because a timer may fire late.
/// Requests of the work are sent only while the lock is held. Returns as `Err` why the lock is lost, or
/// `None` in jeopardy.
async fn while_held<T>(
    guards: &[Guard],
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Option<LossReason>> {
    let polled = poll_fn(|context| {
        if !several::is_held(guards) {
            return Poll::Ready(None);
        }
        let holds = guards.iter().flat_map(|guard| guard.nodes().map(|(hold, _)| hold));
        bound_to(holds, || work.as_mut().poll(context)).map(Some)
    });

    let output = tokio::select! {
        biased;
        doubt = several::jeopardy(guards) => return Err(doubt.err()),
        output = polled => output,
    };

    match output {
        Some(output) => Ok(output),
        None => Err(several::jeopardy(guards).await.err()),
    }
}

/// Waits until the lock is held again; after `grace` it is lost.
async fn outwait(guards: &[Guard], grace: Duration) -> Result<(), LossReason> {
    tokio::select! {
        biased;
        settled = several::held_again(guards) => settled,
        () = passed(guards[0].client(), grace) => {
            // Each, as no other of them may come back.
            let lost = guards.iter().map(|guard| guard.lose(LossReason::DeadlinePassed));
            Err(lost.reduce(|first, _| first).unwrap_or(LossReason::DeadlinePassed))
        }
    }
}

/// Waits for some time by the clock of leases, which counts suspended time.
pub(crate) async fn passed(client: &Client, time: Duration) {
    let end = client.now() + time;
    while client.now() < end {
        tokio::time::sleep(end.since(client.now()).min(Duration::from_secs(1))).await;
    }
}
