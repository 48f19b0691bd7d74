//! Functions for locks that are held together. There is at least one lock.

use std::cmp::Reverse;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use lockkeeper_client::{ErrorCode, Transaction, TransactionError, ZnodePath};

use super::{Guard, verified};
use crate::error::{EnsureError, LossReason, VerifyError};
use crate::guard::state::HolderState;

pub(crate) fn is_held(guards: &[Guard]) -> bool {
    guards.iter().all(Guard::is_held)
}

pub(crate) fn ensure(guards: &[Guard], wanted: Duration) -> Result<(), EnsureError> {
    guards.iter().try_for_each(|guard| guard.ensure(wanted))
}

pub(crate) fn allow_jeopardy(guards: &[Guard]) -> Result<(), LossReason> {
    guards.iter().try_for_each(Guard::allow_jeopardy)
}

/// The worst of the states.
pub(crate) fn worst(states: impl Iterator<Item = HolderState>) -> HolderState {
    let badness = |state: &HolderState| match state {
        HolderState::Held => 0,
        HolderState::Suspect { .. } => 1,
        HolderState::Jeopardy => 2,
        HolderState::Lost(_) => 3,
    };
    // The first lost lock, which `MultiGuard::lost` also names.
    states.min_by_key(|state| Reverse(badness(state))).unwrap_or(HolderState::Held)
}

/// Starts a transaction with checks of the nodes of all locks.
pub(crate) fn checks(guards: &[Guard]) -> Transaction {
    let empty = guards[0].client().transaction();
    guards.iter().fold(empty, |all, guard| guard.add_checks(all))
}

pub(crate) async fn verify(guards: &[Guard]) -> Result<(), VerifyError> {
    if let [guard] = guards {
        return guard.verify().await;
    }
    match checks(guards).in_session(guards[0].session()).commit().await {
        Err(TransactionError::Failed { index, code: ErrorCode::NoNode, .. }) => {
            Err(VerifyError::Lost(guards[index].found_missing()))
        }
        committed => verified(committed.map(drop), worst(guards.iter().map(Guard::state))),
    }
}

/// Waits until one of the locks is in jeopardy or lost.
pub(crate) async fn jeopardy(guards: &[Guard]) -> Result<(), LossReason> {
    first(guards, Guard::jeopardy).await.1
}

/// Waits until none of the locks is in jeopardy.
pub(crate) async fn held_again(guards: &[Guard]) -> Result<(), LossReason> {
    loop {
        for guard in guards {
            guard.held_again().await?;
        }
        match worst(guards.iter().map(Guard::state)) {
            HolderState::Lost(reason) => return Err(reason),
            HolderState::Jeopardy => {}
            HolderState::Held | HolderState::Suspect { .. } => return Ok(()),
        }
    }
}

/// The result of the first wait that ends, and its lock.
pub(crate) async fn first<'a, F: Future>(
    guards: &'a [Guard],
    wait: impl Fn(&'a Guard) -> F,
) -> (&'a ZnodePath, F::Output) {
    if let [guard] = guards {
        return (guard.path(), wait(guard).await);
    }
    let waits = guards.iter().map(|guard| (guard.path(), Box::pin(wait(guard))));
    let mut waits: Vec<_> = waits.collect();
    poll_fn(|context| {
        for (path, wait) in &mut waits {
            if let Poll::Ready(output) = wait.as_mut().poll(context) {
                return Poll::Ready((*path, output));
            }
        }
        Poll::Pending
    })
    .await
}
