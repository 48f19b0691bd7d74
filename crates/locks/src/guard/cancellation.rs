//! The cancellation token of a guard.

use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The token of a guard, once it has been created. Dropping it cancels the token.
#[derive(Debug, Default)]
pub(crate) struct Cancellation(Mutex<Option<CancellationToken>>);

impl Cancellation {
    pub(super) fn token(&self) -> Option<CancellationToken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, token: &CancellationToken) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
    }

    /// Cancels the token and removes it.
    pub(crate) fn cancel(&self) {
        if let Some(token) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            token.cancel();
        }
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        if let Some(token) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            token.cancel();
        }
    }
}
