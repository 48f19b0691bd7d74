//! What calls that wait have in common.

use lockkeeper_client::{Contact, Status};
use tokio::sync::watch;
use tokio::task::JoinHandle;

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
