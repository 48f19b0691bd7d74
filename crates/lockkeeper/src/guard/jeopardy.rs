//! Riding out an outage.
//!
//! A deadline ends work at the first long outage, though in most of them nobody took the lock. Where
//! the holder allows it, the deadline begins a *jeopardy* instead (the word is Chubby's): nothing is
//! believed and nothing is done, until it is proven that the same node of the same session was there
//! all the time. Then nobody else can have been granted the lock, and the holder goes on with the
//! same token. The proof is the session's: see `lockkeeper_session::Standing`.
//!
//! Here is what one lock and several have in common.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lockkeeper_client::{Client, Hold, bound_to};

use crate::contender::retry::retry_backoff;
use crate::error::{EnsureError, LossReason, VerifyError};

/// What a holder believes of one lock or of several.
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

    /// Makes an end of a jeopardy.
    fn give_up(&self) -> LossReason;
}

/// Does work while the lock is held.
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

/// Does work while the lock is held, and goes on after a jeopardy of at most `grace`.
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

/// Waits out a jeopardy of at most `grace`, until `wanted` is left of the lease.
pub(crate) async fn checkpoint(
    belief: &impl Belief,
    wanted: Duration,
    grace: Duration,
) -> Result<(), EnsureError> {
    loop {
        match belief.ensure(wanted) {
            Err(EnsureError::Jeopardy) => {
                outwait(belief, grace).await.map_err(EnsureError::Lost)?;
                continue;
            }
            Err(EnsureError::TooShort { .. }) => {}
            settled => return settled,
        }
        let is_final = match belief.verify().await {
            // A fresh proof is the best that these servers give.
            Ok(()) => true,
            Err(VerifyError::Unknown(error)) => retry_backoff(error).await.is_err(),
            Err(_) => false,
        };
        match belief.ensure(wanted) {
            Err(EnsureError::TooShort { .. }) if !is_final => {}
            Err(EnsureError::Jeopardy) => {}
            settled => return settled,
        }
    }
}

/// Polls the work as long as the lock is held. Looks before every poll, as a timer may fire late;
/// and what the work asks of the servers is sent only while the lock is held. `Err`: why it is lost,
/// or (`None`) in jeopardy.
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
async fn passed(client: &Client, time: Duration) {
    let end = client.now() + time;
    while client.now() < end {
        tokio::time::sleep(end.since(client.now()).min(Duration::from_secs(1))).await;
    }
}
