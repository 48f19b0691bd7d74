//! What calls that wait have in common.

use std::time::Duration;

use lockkeeper_client::retry::{pause, reachable};
use lockkeeper_client::{Client, Contact, Status};
use lockkeeper_locks::for_recipes::{LONGEST_TRY, TRIES_ONCE};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bounds the whole time of a call, and uses all of it: what `passes` is tried again when a server can be reached. With
/// hardly any time it is tried `once`. `None` if the time is over.
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

/// Returns after a connection was lost and there is another one: servers that went back to an earlier state tell
/// of nothing that was there before.
pub(crate) async fn connected_again(mut status: watch::Receiver<Status>) {
    let is_connected = |status: &Status| status.contact == Contact::Connected;
    // Neither fails while there is a client.
    let _ = status.wait_for(|status| !is_connected(status)).await;
    let _ = status.wait_for(is_connected).await;
}

/// A task that ends when this is dropped.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
