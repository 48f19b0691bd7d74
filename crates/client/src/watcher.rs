//! Watches as values.

use std::sync::Arc;

use lockkeeper_session::WatchId;
use lockkeeper_wire::{WatchEvent, ZnodePath};
use tokio::sync::{mpsc, oneshot};

use crate::shared::Shared;

/// The session that had a watch is over, or was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch ended with its session")]
pub struct WatchLost;

/// Ends its watch when it goes away.
#[derive(Debug)]
struct Registration {
    shared: Arc<Shared>,
    id: WatchId,
    chroot: Option<ZnodePath>,
}

impl Registration {
    fn localize(&self, mut event: WatchEvent) -> WatchEvent {
        event.path = strip_chroot(event.path, self.chroot.as_ref());
        event
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.unwatch(self.id);
    }
}

/// Waits for one event on one node. It stays armed over reconnects.
///
/// Dropping it ends the watch, on the server too unless somebody else on this session has one on
/// the same node.
#[must_use = "the watch is gone when this is dropped"]
#[derive(Debug)]
pub struct Watcher {
    registration: Registration,
    receiver: oneshot::Receiver<WatchEvent>,
}

impl Watcher {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: WatchId,
        chroot: Option<ZnodePath>,
        receiver: oneshot::Receiver<WatchEvent>,
    ) -> Self {
        Self { registration: Registration { shared, id, chroot }, receiver }
    }

    /// Waits until the node changed.
    ///
    /// # Errors
    /// [`WatchLost`] if the session ends first, or when called again after an event.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn changed(&mut self) -> Result<WatchEvent, WatchLost> {
        let event = (&mut self.receiver).await.map_err(|_| WatchLost)?;
        Ok(self.registration.localize(event))
    }
}

/// The events of a persistent watch.
///
/// Events of the time without a connection are not made up for: look at the nodes again after a
/// reconnect. Events that nobody takes are kept in memory. Dropping it ends the watch.
#[must_use = "the watch is gone when this is dropped"]
#[derive(Debug)]
pub struct WatchStream {
    registration: Registration,
    receiver: mpsc::UnboundedReceiver<WatchEvent>,
}

impl WatchStream {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: WatchId,
        chroot: Option<ZnodePath>,
        receiver: mpsc::UnboundedReceiver<WatchEvent>,
    ) -> Self {
        Self { registration: Registration { shared, id, chroot }, receiver }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`WatchLost`] if the session has ended.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Result<WatchEvent, WatchLost> {
        let event = self.receiver.recv().await.ok_or(WatchLost)?;
        Ok(self.registration.localize(event))
    }
}

/// A server's path as the client sees it.
pub(crate) fn strip_chroot(path: String, chroot: Option<&ZnodePath>) -> String {
    let Some(chroot) = chroot else { return path };
    match path.strip_prefix(chroot.as_str()) {
        Some("") => "/".to_owned(),
        Some(rest) => rest.to_owned(),
        None => path,
    }
}
