//! Keeping a lock through an outage that is longer than its lease.
//!
//! A deadline ends work at the first long outage, although in most outages no other client takes the
//! lock. Where the holder allows it, a *jeopardy* (Chubby's word) begins at the deadline: the lock
//! counts as not held, and no work runs, until the session proves that the same node of the same
//! session existed all the time. Then no other client can have been granted the lock, and the holder
//! continues with the same token. `docs/decisions/0020-jeopardy.md` has the proof.
//!
//! This is shared by the guards of one lock and of several.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lockkeeper_client::{Client, Hold, bound_to};

use crate::error::{EnsureError, LossReason, VerifyError};
use crate::guard::proving::{shown_by_a_proof, until_a_proof_counts};
use crate::retry::retry_pause;

/// A hold of one lock or of several, as the functions of this module see it.
pub(crate) trait Belief: Sync {
    fn client(&self) -> &Client;

    /// All nodes that it depends on.
    fn holds(&self) -> impl Iterator<Item = &Hold>;

    fn is_held(&self) -> bool;

    fn ensure(&self, wanted: Duration) -> Result<(), EnsureError>;

    fn verify(&self) -> impl Future<Output = Result<(), VerifyError>> + Send;

    /// Has a deadline begin a jeopardy.
    fn allow_jeopardy(&self) -> Result<(), LossReason>;

    /// Waits until it is not held: whether it is in jeopardy or lost.
    fn jeopardy(&self) -> impl Future<Output = Result<(), LossReason>> + Send;

    /// Waits until it is not in jeopardy.
    fn held_again(&self) -> impl Future<Output = Result<(), LossReason>> + Send;

    /// Ends a jeopardy with the loss of the lock.
    fn give_up(&self) -> LossReason;
}

/// The methods of a [`Belief`] that a guard has under the same names.
macro_rules! as_the_guard_does {
    () => {
        fn is_held(&self) -> bool {
            self.is_held()
        }

        fn ensure(&self, wanted: std::time::Duration) -> Result<(), $crate::error::EnsureError> {
            self.ensure(wanted)
        }

        async fn verify(&self) -> Result<(), $crate::error::VerifyError> {
            self.verify().await
        }

        fn allow_jeopardy(&self) -> Result<(), $crate::error::LossReason> {
            self.allow_jeopardy()
        }

        async fn jeopardy(&self) -> Result<(), $crate::error::LossReason> {
            self.jeopardy().await
        }

        async fn held_again(&self) -> Result<(), $crate::error::LossReason> {
            self.held_again().await
        }
    };
}

pub(crate) use as_the_guard_does;

/// Runs work while the lock is held.
pub(crate) async fn run<T>(
    belief: &impl Belief,
    work: impl Future<Output = T>,
) -> Result<T, LossReason> {
    let work = pin!(work);
    match while_held(belief, work).await {
        Ok(output) => Ok(output),
        Err(reason) => Err(reason.unwrap_or(LossReason::DeadlinePassed)),
    }
}

/// Runs work while the lock is held, and continues it after a jeopardy of at most `grace`.
pub(crate) async fn run_through<T>(
    belief: &impl Belief,
    grace: Duration,
    work: impl Future<Output = T>,
) -> Result<T, LossReason> {
    belief.allow_jeopardy()?;
    let mut work = pin!(work);
    loop {
        match while_held(belief, work.as_mut()).await {
            Ok(output) => return Ok(output),
            Err(Some(reason)) => return Err(reason),
            Err(None) => outwait(belief, grace).await?,
        }
    }
}

/// Waits out a jeopardy of at most `grace`, until `wanted` is left of the lease. A `grace` that is not zero
/// allows jeopardy.
pub(crate) async fn checkpoint(
    belief: &impl Belief,
    wanted: Duration,
    grace: Duration,
) -> Result<(), EnsureError> {
    // Before the first look: what a deadline ends without it stays lost.
    if !grace.is_zero() {
        belief.allow_jeopardy().map_err(EnsureError::Lost)?;
    }

    loop {
        let left = match belief.ensure(wanted) {
            Err(EnsureError::Jeopardy) => {
                outwait(belief, grace).await.map_err(EnsureError::Lost)?;
                continue;
            }
            Err(EnsureError::TooShort { left, .. }) => left,
            settled => return settled,
        };

        let client = belief.client();
        let proven = async {
            let counts = until_a_proof_counts(client, wanted.min(shown_by_a_proof(client))).await;
            (counts, belief.verify().await)
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

        match belief.ensure(wanted) {
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
    belief: &impl Belief,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Option<LossReason>> {
    let polled = poll_fn(|context| {
        if !belief.is_held() {
            return Poll::Ready(None);
        }
        bound_to(belief.holds(), || work.as_mut().poll(context)).map(Some)
    });

    let output = tokio::select! {
        biased;
        doubt = belief.jeopardy() => return Err(doubt.err()),
        output = polled => output,
    };

    match output {
        Some(output) => Ok(output),
        None => Err(belief.jeopardy().await.err()),
    }
}

/// Waits until the lock is held again; after `grace` it is lost.
async fn outwait(belief: &impl Belief, grace: Duration) -> Result<(), LossReason> {
    tokio::select! {
        biased;
        settled = belief.held_again() => settled,
        () = passed(belief.client(), grace) => Err(belief.give_up()),
    }
}

/// Waits for some time by the clock of leases, which counts suspended time.
pub(crate) async fn passed(client: &Client, time: Duration) {
    let end = client.now() + time;
    while client.now() < end {
        tokio::time::sleep(end.since(client.now()).min(Duration::from_secs(1))).await;
    }
}
