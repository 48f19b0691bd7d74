//! Which failures are transient, and when a request, or an attempt to acquire, may be repeated.

use std::time::Duration;

use lockkeeper_client::{Client, Contact, Error, ErrorCode, Instant, Outcome, ZnodePath};

use crate::error::AcquireError;

/// How many attempts there are.
const ATTEMPTS: u32 = 8;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long data is that may be too long for a server, at least. By default they take 1 MiB, and a part of an
/// edition is half of that.
const LONG: usize = 256 << 10;

/// How often in a row a connection may be lost with long data on it.
const LONG_TRIES: u32 = 3;

/// The pauses between attempts: of 20 ms, and twice as long from one to the next, up to a second. Each is
/// shortened at random by up to half, so that those whom a server refused together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    pub(crate) async fn pause(&mut self) {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// The first of these pauses, where each attempt stands by itself.
pub(crate) async fn pause() {
    Backoff::new().pause().await;
}

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

/// Whether a request that failed may succeed in the same session when it is made again. Without a
/// connection it waits for the next one, and fails for good when none comes.
pub(crate) fn is_transient(error: &Error) -> bool {
    error.is_retryable() && !error.is_unreachable()
}

/// Returns when a request that failed may be made again. A request that a server has refused for
/// now waits for a moment, and so does one that was not sent because the lock that it is made under is
/// in doubt; one that lost its connection waits by itself for the next one.
///
/// # Errors
/// The error of the request, if it fails for good.
pub(crate) async fn retry_pause(error: Error) -> Result<(), Error> {
    if !is_transient(&error) {
        return Err(error);
    }
    if error.code().is_some() || error.is_not_held() {
        pause().await;
    }
    Ok(())
}

/// The same for one that belongs to no session: it is made again in the next one if this one is over.
///
/// # Errors
/// The error of the request, if it fails for good.
pub(crate) async fn retry_anywhere(error: Error) -> Result<(), Error> {
    if error.is_session_expired() { Ok(()) } else { retry_pause(error).await }
}

/// The same for a request of an acquire.
///
/// # Errors
/// The error of the request, as one about the lock.
pub(crate) async fn retry_acquire(lock: &ZnodePath, error: Error) -> Result<(), AcquireError> {
    retry_pause(error).await.map_err(|error| AcquireError::from_client(lock, error))
}

/// Counts the connections that were lost before a write was answered. A server that takes less at once
/// than the client closes the connection at each, which costs everybody who uses it.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    in_a_row: u32,
}

/// The connection was lost each time with so many bytes of data on it, so servers seem to close it at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) bytes: usize,
    /// How often in a row.
    pub(crate) tries: u32,
}

impl Unanswered {
    /// A write with so many bytes of data, which was begun then, failed. Says that these are why, if that
    /// is likely.
    pub(crate) fn one_more(
        &mut self,
        client: &Client,
        error: &Error,
        (bytes, begun): (usize, Instant),
    ) -> Option<TooLong> {
        if bytes < LONG {
            return None;
        }
        let is_lost = error.code().is_none() && error.outcome() == Outcome::Unknown;
        let is_cut_off = is_lost && error.is_retryable() && !error.is_session_expired();
        // Or the client has hung up by itself, on a server that was silent.
        if !is_cut_off || client.now().since(begun) >= client.timing().silence_limit() {
            self.in_a_row = 0;
            return None;
        }
        self.in_a_row += 1;
        let tries = self.in_a_row;
        (tries >= LONG_TRIES).then_some(TooLong { bytes, tries })
    }
}

/// Returns when it is not so that no server could be reached for a session timeout; or when the client is
/// closed, which the next request tells. A request would fail again after as long.
pub(crate) async fn reachable(client: &Client) {
    let mut status = client.status();
    let _ = status.wait_for(|status| status.contact != Contact::Unreachable).await;
}

/// Returns when work that goes on by itself may repeat a request that failed for now. One that failed because
/// no server could be reached waits until one can; any other waits for a moment.
pub(crate) async fn outlast(client: &Client, error: &Error) {
    match error.is_unreachable() {
        true => reachable(client).await,
        false => pause().await,
    }
}

/// Returns when the client is closed.
pub(crate) async fn closed(client: &Client) {
    let mut status = client.status();
    let _ = status.wait_for(|status| status.contact == Contact::Closed).await;
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
/// reason why the lock cannot be waited for.
pub(crate) async fn out_of_reach(client: &Client, lock: &ZnodePath) -> AcquireError {
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
    let mut backoff = Backoff::new();
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
