//! Which failures are transient, and when a request may be repeated. For recipes.

use std::time::Duration;

use lockkeeper_session::{Contact, Instant, Outcome};

use crate::client::Client;
use crate::error::Error;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between attempts.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Data of at least this length may be too long for a server. By default servers accept 1 MiB, and a part of
/// an edition is half of that.
const LARGE_DATA_BYTES: usize = 256 << 10;

/// How many times in a row a connection may be lost with long data on it.
const LARGE_DATA_TRIES: u32 = 3;

/// The pauses between attempts: 20 ms at first, doubling up to a second. Each is shortened at random by up to
/// half, so that clients which a server refused together do not retry together.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

/// The state before the first pause.
impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST_PAUSE }
    }
}

impl Backoff {
    /// Waits for the next pause. Makes no request.
    ///
    /// # Session loss
    /// No effect.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn pause(&mut self) {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// Waits for the first pause, for attempts that are independent of each other. Makes no request.
///
/// # Session loss
/// No effect.
///
/// # Cancel safety
/// Safe.
pub async fn pause() {
    Backoff::default().pause().await;
}

/// Whether a failed request may succeed in the same session when it is repeated. Without a connection the
/// repeated request waits for the next one, and fails permanently if there is none in time.
pub fn is_transient(error: &Error) -> bool {
    error.is_retryable() && !error.is_unreachable()
}

/// Returns when a failed request may be repeated. Makes no request itself. After a temporary refusal by a
/// server, and for a request that was not sent because its lock is in doubt, it waits for a moment; a request
/// whose connection was lost waits for the next connection by itself.
///
/// # Errors
/// The error of the request, if the failure is permanent.
///
/// # Session loss
/// The error counts as permanent.
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

/// Like [`retry_pause`], for a request that does not depend on the session: it may be repeated in the next
/// session. Makes no request.
///
/// # Errors
/// The error of the request, if the failure is permanent.
///
/// # Session loss
/// The error counts as transient.
///
/// # Cancel safety
/// Safe.
pub async fn retry_anywhere(error: Error) -> Result<(), Error> {
    if error.is_session_expired() { Ok(()) } else { retry_pause(error).await }
}

/// Counts the connections that were lost before a write was answered. A server with a lower size limit than
/// the client closes the connection at each such write, which affects all users of the connection.
#[derive(Debug, Default)]
pub struct Unanswered {
    in_a_row: u32,
}

/// The connection was lost repeatedly with this many bytes of data on it, so servers seem to reject them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The length of the data, in bytes.
    pub bytes: usize,
    /// The number of failures in a row.
    pub tries: u32,
}

impl Unanswered {
    /// A write with this many bytes of data, started at `begun`, failed. Returns `TooLong` if its length is
    /// the likely reason.
    pub fn one_more(
        &mut self,
        client: &Client,
        error: &Error,
        (bytes, begun): (usize, Instant),
    ) -> Option<TooLong> {
        if bytes < LARGE_DATA_BYTES {
            return None;
        }
        let is_lost = error.code().is_none() && error.outcome() == Outcome::Unknown;
        let is_cut_off = is_lost && error.is_retryable() && !error.is_session_expired();
        // The client itself closes the connection of a silent server.
        if !is_cut_off || client.now().since(begun) >= client.timing().silence_limit() {
            self.in_a_row = 0;
            return None;
        }
        self.in_a_row += 1;
        let tries = self.in_a_row;
        (tries >= LARGE_DATA_TRIES).then_some(TooLong { bytes, tries })
    }
}

/// Returns when the client is not known to be unreachable any more, or is closed, which the next request
/// reports. Otherwise a repeated request would fail after another session timeout. Makes no request.
///
/// # Session loss
/// No effect.
///
/// # Cancel safety
/// Safe.
pub async fn reachable(client: &Client) {
    let mut status = client.status();
    let _ = status.wait_for(|status| status.contact != Contact::Unreachable).await;
}

/// Returns when background work may repeat a request that failed for the moment. If no server was reachable,
/// it waits until one is; after any other failure it waits for a moment. Makes no request.
///
/// # Session loss
/// No effect.
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
/// No effect.
///
/// # Cancel safety
/// Safe.
pub async fn closed(client: &Client) {
    let mut status = client.status();
    let _ = status.wait_for(|status| status.contact == Contact::Closed).await;
}
