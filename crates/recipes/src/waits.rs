//! Helpers for calls that wait.

use std::time::Duration;

use lockkeeper_client::retry::{pause, reachable};
use lockkeeper_client::{Client, Contact, Status};
use lockkeeper_locks::for_recipes::{LONGEST_TRY, TRIES_ONCE};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Limits the total time of a call and uses all of it: after a transient failure, the call is tried again as soon
/// as a server is reachable. If hardly any time is left, it is tried `once`. Returns `None` when the time is over.
pub(crate) async fn within<T, E, F: Future<Output = Result<T, E>>>(
    client: &Client,
    timeout: Duration,
    once: impl Future<Output = Result<Option<T>, E>>,
    call: impl Fn() -> F,
    passes: impl Fn(&E) -> bool,
) -> Result<Option<T>, E> {
    if timeout < TRIES_ONCE {
        return tokio::time::timeout(LONGEST_TRY, once).await.unwrap_or(Ok(None));
    }
    let over_outages = async {
        loop {
            match call().await {
                Err(error) if passes(&error) => {
                    reachable(client).await;
                    pause().await;
                }
                settled => return settled.map(Some),
            }
        }
    };
    tokio::time::timeout(timeout, over_outages).await.unwrap_or(Ok(None))
}

/// Returns when a lost connection has been replaced by a new one. Servers that were set back to an earlier state
/// send no events for nodes that existed before.
pub(crate) async fn connected_again(mut status: watch::Receiver<Status>) {
    let is_connected = |status: &Status| status.contact == Contact::Connected;
    // Neither call fails while the client exists.
    let _ = status.wait_for(|status| !is_connected(status)).await;
    let _ = status.wait_for(is_connected).await;
}

/// A task that is aborted when this is dropped.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
