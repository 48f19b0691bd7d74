//! Attempts to acquire: what an attempt waits for, and whether it is repeated.

use lockkeeper_client::retry::{Backoff, closed, is_transient, retry_pause};
use lockkeeper_client::{Client, Contact, Error, ErrorCode, ZnodePath};

use crate::error::AcquireError;

/// The largest number of attempts.
const ATTEMPTS: u32 = 8;

/// Why an attempt failed, and whether another one may succeed.
pub(crate) enum Attempt {
    /// A transient failure: another attempt, with another name, may succeed.
    Again,
    /// The lock's node was missing and has been created: the next attempt needs no pause.
    Prepared,
    Failed(AcquireError),
}

impl Attempt {
    /// Classifies the failure of a request before the contender had a place in the queue. The end of the session is
    /// transient here too, as no place is lost.
    pub(crate) fn at_entry(path: &ZnodePath, error: Error) -> Self {
        if error.is_session_expired() || is_transient(&error) {
            Self::Again
        } else {
            Self::Failed(AcquireError::from_client(path, error))
        }
    }

    /// Classifies the failure of a listing that follows the creation of a node in the queue. If the queue is
    /// gone, another client has deleted it since, and the node with it.
    pub(crate) fn at_listing(error: Error, at_entry: impl FnOnce(Error) -> Self) -> Self {
        match error.code() {
            Some(ErrorCode::NoNode) => Self::Again,
            _ => at_entry(error),
        }
    }
}

/// Returns when a failed request of an acquire may be repeated; see [`retry_pause`].
///
/// # Errors
/// The error of the request, as an [`AcquireError`].
pub(crate) async fn retry_acquire(lock: &ZnodePath, error: Error) -> Result<(), AcquireError> {
    retry_pause(error).await.map_err(|error| AcquireError::from_client(lock, error))
}

/// Waits for an action of another task of this process, such as a release. The action may never happen once the client
/// is closed, so the wait then ends with an error.
pub(crate) async fn unless_closed<T>(
    client: &Client,
    lock: &ZnodePath,
    waited: impl Future<Output = T>,
) -> Result<T, AcquireError> {
    tokio::select! {
        biased;
        output = waited => Ok(output),
        () = closed(client) => Err(AcquireError::ClientClosed { path: lock.clone() }),
    }
}

/// Returns when no server could be reached for a session timeout, or the client is closed. The returned error
/// gives this as the reason why waiting for the lock is useless. Makes no request.
///
/// # Session loss
/// Has no effect.
///
/// # Cancel safety
/// Safe.
pub async fn out_of_reach(client: &Client, lock: &ZnodePath) -> AcquireError {
    let mut status = client.status();
    let lost = |contact| matches!(contact, Contact::Unreachable | Contact::Closed);
    let lost = status.wait_for(|status| lost(status.contact)).await;
    let path = lock.clone();
    match lost.is_ok_and(|status| status.contact == Contact::Unreachable) {
        true => AcquireError::Unreachable { path },
        false => AcquireError::ClientClosed { path },
    }
}

/// Repeats an attempt until it succeeds or fails with a permanent error, up to [`ATTEMPTS`] times.
pub(crate) async fn retried<T, F>(
    path: &ZnodePath,
    attempt: impl Fn() -> F,
) -> Result<T, AcquireError>
where
    F: Future<Output = Result<T, Attempt>>,
{
    let mut backoff = Backoff::default();
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Ok(entered) => return Ok(entered),
            Err(Attempt::Failed(error)) => return Err(error),
            Err(Attempt::Prepared) => {}
            Err(Attempt::Again) => backoff.pause().await,
        }
    }

    attempt().await.map_err(|attempt| match attempt {
        Attempt::Failed(error) => error,
        Attempt::Again | Attempt::Prepared => {
            AcquireError::GaveUp { path: path.clone(), attempts: ATTEMPTS }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: the error was that no server could be reached for a whole session timeout, after two seconds in which a
    /// server had replied each time.
    #[tokio::test]
    async fn what_is_given_up_after_some_attempts_says_so() {
        let path = ZnodePath::new("/locks/a").unwrap();
        let attempts = std::cell::Cell::new(0);
        let attempt = async || -> Result<(), Attempt> {
            attempts.set(attempts.get() + 1);
            Err(Attempt::Prepared)
        };
        let given_up = retried(&path, attempt).await;
        assert_eq!(given_up, Err(AcquireError::GaveUp { path: path.clone(), attempts: ATTEMPTS }));
        assert_eq!(attempts.get(), ATTEMPTS);
        assert!(given_up.is_err_and(|error| error.is_retryable()));
    }
}
