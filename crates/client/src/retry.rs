//! Which failures are transient, and when a request may be made again: for recipes.

use std::time::Duration;

use lockkeeper_session::{Contact, Instant, Outcome};

use crate::client::Client;
use crate::error::Error;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest of the pauses between attempts.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long data is that may be too long for a server, at least. By default they take 1 MiB, and a part of an
/// edition is half of that.
const LONG: usize = 256 << 10;

/// How often in a row a connection may be lost with long data on it.
const LONG_TRIES: u32 = 3;

/// The pauses between attempts: of 20 ms, and twice as long from one to the next, up to a second. Each is
/// shortened at random by up to half, so that those whom a server refused together do not come back together.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

/// Before the first pause.
impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Backoff {
    /// The next pause. Makes no request.
    ///
    /// # Session loss
    /// Does not concern it.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn pause(&mut self) {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// The first of these pauses, where each attempt stands by itself. Makes no request.
///
/// # Session loss
/// Does not concern it.
///
/// # Cancel safety
/// Safe.
pub async fn pause() {
    Backoff::default().pause().await;
}

/// Whether a request that failed may succeed in the same session when it is made again. Without a
/// connection it waits for the next one, and fails for good when none comes.
pub fn is_transient(error: &Error) -> bool {
    error.is_retryable() && !error.is_unreachable()
}

/// Returns when a request that failed may be made again; makes no request itself. A request that a server has refused for
/// now waits for a moment, and so does one that was not sent because the lock that it is made under is
/// in doubt; one that lost its connection waits by itself for the next one.
///
/// # Errors
/// The error of the request, if it fails for good.
///
/// # Session loss
/// The error is one of these: it fails for good.
///
/// # Cancel safety
/// Safe.
pub async fn retry_pause(error: Error) -> Result<(), Error> {
    if !is_transient(&error) {
        return Err(error);
    }
    if error.code().is_some() || error.is_not_held() {
        pause().await;
    }
    Ok(())
}

/// The same for one that belongs to no session: it is made again in the next one if this one is over. Makes no
/// request.
///
/// # Errors
/// The error of the request, if it fails for good.
///
/// # Session loss
/// The error is one of these: the request is made again in the next session.
///
/// # Cancel safety
/// Safe.
pub async fn retry_anywhere(error: Error) -> Result<(), Error> {
    if error.is_session_expired() { Ok(()) } else { retry_pause(error).await }
}

/// Counts the connections that were lost before a write was answered. A server that takes less at once
/// than the client closes the connection at each, which costs everybody who uses it.
#[derive(Debug, Default)]
pub struct Unanswered {
    in_a_row: u32,
}

/// The connection was lost each time with so many bytes of data on it, so servers seem to close it at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// How many bytes.
    pub bytes: usize,
    /// How often in a row.
    pub tries: u32,
}

impl Unanswered {
    /// A write with so many bytes of data, which was begun then, failed. Says that these are why, if that
    /// is likely.
    pub fn one_more(
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
/// closed, which the next request tells. A request would fail again after as long. Makes no request.
///
/// # Session loss
/// Does not concern it.
///
/// # Cancel safety
/// Safe.
pub async fn reachable(client: &Client) {
    let mut status = client.status();
    let _ = status.wait_for(|status| status.contact != Contact::Unreachable).await;
}

/// Returns when work that goes on by itself may repeat a request that failed for now. One that failed because
/// no server could be reached waits until one can; any other waits for a moment. Makes no request.
///
/// # Session loss
/// Does not concern it.
///
/// # Cancel safety
/// Safe.
pub async fn outlast(client: &Client, error: &Error) {
    match error.is_unreachable() {
        true => reachable(client).await,
        false => pause().await,
    }
}

/// Returns when the client is closed. Makes no request.
///
/// # Session loss
/// Does not concern it.
///
/// # Cancel safety
/// Safe.
pub async fn closed(client: &Client) {
    let mut status = client.status();
    let _ = status.wait_for(|status| status.contact == Contact::Closed).await;
}
