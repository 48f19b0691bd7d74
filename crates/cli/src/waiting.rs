//! What all waits for a lock have in common.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use lockkeeper::inspect::Queue;
use lockkeeper::{Client, Error, ZnodePath};
use tokio::time::{sleep, timeout};

use crate::output::tell;

/// After this, the user is told whom the command is waiting for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells the user what they are waiting for, once and unless they want it `quiet`; and never ends.
pub(crate) async fn notice(quiet: bool, what: impl Future<Output = String>) -> Infallible {
    sleep(PATIENCE).await;
    if !quiet {
        tell(&what.await);
    }
    pending().await
}

/// Ends after the limit, if there is one.
pub(crate) async fn over(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// Who holds a lock and who waits for it; `None` if there is nothing, or it cannot be seen now.
pub(crate) async fn queue(client: &Client, lock: &ZnodePath) -> Option<Queue> {
    timeout(PATIENCE, Queue::inspect(client, lock)).await.ok()?.ok()?
}

/// Whether the next request waits for a connection.
pub(crate) fn is_passing(error: &Error) -> bool {
    error.is_session_expired() || (error.is_retryable() && !error.is_unreachable())
}
