//! An attempt to acquire: what it waits for, and whether another one may follow it.

use lockkeeper_client::retry::{Backoff, closed, is_transient, retry_pause};
use lockkeeper_client::{Client, Contact, Error, ErrorCode, ZnodePath};

use crate::error::AcquireError;

/// How many attempts there are.
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
    /// A request failed before the contender had a place to lose. So the end of the session is
    /// transient too.
    pub(crate) fn at_entry(path: &ZnodePath, error: Error) -> Self {
        if error.is_session_expired() || is_transient(&error) {
            Self::Again
        } else {
            Self::Failed(AcquireError::from_client(path, error))
        }
    }

    /// The list of a queue failed, behind the creation of a node in it. If the queue is gone, somebody has
    /// deleted it since, and the node with it.
    pub(crate) fn at_listing(error: Error, at_entry: impl FnOnce(Error) -> Self) -> Self {
        match error.code() {
            Some(ErrorCode::NoNode) => Self::Again,
            _ => at_entry(error),
        }
    }
}

/// Returns when a request of an acquire that failed may be made again; see [`retry_pause`].
///
/// # Errors
/// The error of the request, as one about the lock.
pub(crate) async fn retry_acquire(lock: &ZnodePath, error: Error) -> Result<(), AcquireError> {
    retry_pause(error).await.map_err(|error| AcquireError::from_client(lock, error))
}

/// Waits for what another task of this program has to do. It may never do it once the client is closed, such
/// as give a lock back; the wait then ends with an error.
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

/// Returns when no server could be reached for a session timeout, or the client is closed, with that as the
/// reason why the lock cannot be waited for. Makes no request.
///
/// # Session loss
/// Does not concern it.
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

/// Makes attempts until one succeeds or fails for good, up to [`ATTEMPTS`].
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

    /// It said that no server could be reached for a whole session timeout, after two seconds in which one
    /// had answered each time.
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
