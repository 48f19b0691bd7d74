//! Keeping a lock through an outage that is longer than its lease.
//!
//! A deadline ends the work at the first long outage, although in most outages no other client takes the
//! lock. If the holder allows it, a *jeopardy* (the term is from Chubby) begins at the deadline: the lock
//! counts as not held, and no work runs, until the session proves that the same node of the same
//! session has existed all the time. In that case no other client can have been granted the lock, and the holder
//! continues with the same token. `docs/decisions/0020-jeopardy.md` has the proof.
//!
//! The functions take the guards of all locks that the work depends on: at least one, of one client.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::slice;
use std::task::Poll;
use std::time::Duration;

use lockkeeper_client::retry::retry_pause;
use lockkeeper_client::{Client, bound_to};

use super::Guard;
use crate::error::{EnsureError, LossReason, VerifyError};
use crate::guard::proving::{shown_by_a_proof, until_a_proof_counts};
use crate::guard::several;

impl Guard {
    /// Runs `work` only while the lock is held: checks the deadline before every poll, and drops the
    /// work when the lock is lost or in jeopardy. Requests that the work makes through this client are
    /// sent only while the lock is held, and fail otherwise, even after a wait for a connection. This
    /// does not cover tasks that it spawns. Costs the same as [`Guard::lost`], in addition to the work.
    ///
    /// # Errors
    /// Why the lock was lost before the work was done. [`LossReason::DeadlinePassed`] at the deadline,
    /// also if the lock is in jeopardy and may be held again.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the lock stays held.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        run(slice::from_ref(self), work).await
    }

    /// Runs `work` like [`Guard::run`], and continues it after an outage. It
    /// [allows jeopardy](Guard::allow_jeopardy), in which the work is not polled, and polls the work again
    /// when the lock is held again. A jeopardy that lasts for `grace` loses the lock. Costs the same as
    /// [`Guard::run`]; a jeopardy costs the same as [`Guard::allow_jeopardy`] and [`Guard::held_again`].
    ///
    /// For work that tolerates a long pause at any `.await`. Only polling stops. Spawned tasks, blocking threads,
    /// running database statements, bytes in sockets and row locks are not paused, so pass [`Guard::token`] to the
    /// resources that they change. A request of this client that would be
    /// sent in jeopardy fails with [`Error::is_not_held`](lockkeeper_client::Error::is_not_held); it may be repeated
    /// when the work continues.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = lockkeeper_engine::Engine::builder().start().await?;
    /// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
    /// use std::time::Duration;
    /// use lockkeeper::Mutex;
    ///
    /// let guard = Mutex::new(&client, "/locks/import")?.acquire().await?;
    /// let rows = guard.run_through(Duration::from_secs(300), async { /* row by row */ 42 }).await?;
    /// # assert_eq!(rows, 42);
    /// # guard.release().await?;
    /// # client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why the lock was lost before the work was done. [`LossReason::DeadlinePassed`] after `grace`.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the lock stays held, and jeopardy stays allowed.
    pub async fn run_through<T>(
        &self,
        grace: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, LossReason> {
        run_through(slice::from_ref(self), grace, work).await
    }

    /// Checks that the lock is held for at least `wanted` from now on, like [`Guard::ensure`], and
    /// waits if it is not. It waits for a fresh proof if too little of the lease is left. In jeopardy it waits for at
    /// most `grace`, after which the lock is lost. After this program was suspended, the proof takes
    /// about half a tick. For work that cannot be stopped from outside.
    ///
    /// A nonzero `grace` [allows jeopardy](Guard::allow_jeopardy) from this call on. A lock whose
    /// deadline passed before the first such call is lost, so call it before each step, including the first
    /// one. With a `grace` of zero, an outage ends the hold at its deadline unless jeopardy was allowed before,
    /// and a jeopardy ends it at once.
    ///
    /// Costs nothing while enough of the lease is left, and otherwise one committed write. A jeopardy costs the same as
    /// [`Guard::allow_jeopardy`] and [`Guard::held_again`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = lockkeeper_engine::Engine::builder().start().await?;
    /// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
    /// use std::time::Duration;
    /// use lockkeeper::Mutex;
    ///
    /// let guard = Mutex::new(&client, "/locks/import")?.acquire().await?;
    /// for _step in 0..3 {
    ///     // One second for the next step. The lock outlasts an outage of up to a minute.
    ///     guard.checkpoint(Duration::from_secs(1), Duration::from_secs(60)).await?;
    /// }
    /// # guard.release().await?;
    /// # client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the lock is lost, or a fresh proof does not last for `wanted`.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe; jeopardy stays allowed.
    pub async fn checkpoint(&self, wanted: Duration, grace: Duration) -> Result<(), EnsureError> {
        checkpoint(slice::from_ref(self), wanted, grace).await
    }
}

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

/// Waits out a jeopardy of at most `grace`, until `wanted` is left of the lease. A nonzero `grace`
/// allows jeopardy.
pub(crate) async fn checkpoint(
    guards: &[Guard],
    wanted: Duration,
    grace: Duration,
) -> Result<(), EnsureError> {
    // Before the first check: a hold that a deadline has ended before jeopardy was allowed stays lost.
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
        // The reply may take as long as the outage. The grace limits this time, counted from the deadline.
        let (counts, verified) = tokio::select! {
            biased;
            proven = proven => proven,
            () = passed(client, left) => continue,
        };
        let is_final = match verified {
            // A fresh proof is the best that these servers can give, if it could show enough.
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
/// Requests of the work are sent only while the lock is held. The error is the reason of the loss, or
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

/// Waits until the lock is held again. It is lost after `grace`.
async fn outwait(guards: &[Guard], grace: Duration) -> Result<(), LossReason> {
    tokio::select! {
        biased;
        settled = several::held_again(guards) => settled,
        () = passed(guards[0].client(), grace) => {
            // Every guard is ended, so that none of them can be held again.
            let lost = guards.iter().map(|guard| guard.lose(LossReason::DeadlinePassed));
            Err(lost.reduce(|first, _| first).unwrap_or(LossReason::DeadlinePassed))
        }
    }
}

/// Waits for some time by the clock of leases, which includes suspended time.
pub(crate) async fn passed(client: &Client, time: Duration) {
    let end = client.now() + time;
    while client.now() < end {
        tokio::time::sleep(end.since(client.now()).min(Duration::from_secs(1))).await;
    }
}
