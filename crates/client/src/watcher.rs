//! Watcher and WatchStream: watches as values, which end when they are dropped.

use std::sync::Arc;

use lockkeeper_session::{WatchEvent, WatchId};
use lockkeeper_wire::ZnodePath;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use crate::shared::Shared;
use crate::watch_item::{WatchItem, WatchLost};

/// Ends its watch when it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    shared: Arc<Shared>,
    id: WatchId,
    chroot: Option<ZnodePath>,
}

impl Registration {
    pub(crate) fn new(shared: Arc<Shared>, id: WatchId, chroot: Option<ZnodePath>) -> Self {
        Self { shared, id, chroot }
    }

    pub(crate) fn chroot(&self) -> Option<&ZnodePath> {
        self.chroot.as_ref()
    }

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

/// Waits for one event on one node. The watch stays armed across reconnects.
///
/// Dropping it ends the watch, also on the server unless another watcher of this session watches the same
/// node.
#[must_use = "the watch ends when this is dropped"]
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
        Self { registration: Registration::new(shared, id, chroot), receiver }
    }

    /// Waits until the node has changed. Makes no request: the server already has the watch.
    ///
    /// # Errors
    /// [`WatchLost::SessionEnded`] if the session ends first, or the client is closed; also when it is called
    /// again after an event.
    ///
    /// # Session loss
    /// Ends the wait with [`WatchLost::SessionEnded`], unless an event has arrived before.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn changed(&mut self) -> Result<WatchEvent, WatchLost> {
        if self.receiver.is_terminated() {
            return Err(WatchLost::SessionEnded);
        }
        let event = (&mut self.receiver).await.map_err(|_| WatchLost::SessionEnded)?;
        Ok(self.registration.localize(event))
    }

    /// Whether no event has arrived yet. After the session has ended, none will.
    pub fn is_armed(&self) -> bool {
        self.receiver.is_empty()
    }
}

/// The events of a persistent watch, in the order of the changes.
///
/// Events during a lost connection are missing: [`WatchItem::Rearmed`] marks the place. Events that are not
/// read are kept in memory; for slow readers, see [`Client::watch_paths`](crate::Client::watch_paths).
/// Dropping it ends the watch.
#[must_use = "the watch ends when this is dropped"]
#[derive(Debug)]
pub struct WatchStream {
    registration: Registration,
    receiver: mpsc::UnboundedReceiver<Result<WatchItem, WatchLost>>,
}

impl WatchStream {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: WatchId,
        chroot: Option<ZnodePath>,
        receiver: mpsc::UnboundedReceiver<Result<WatchItem, WatchLost>>,
    ) -> Self {
        Self { registration: Registration::new(shared, id, chroot), receiver }
    }

    /// Waits for the next event, or for a reconnect. Makes no request.
    ///
    /// # Errors
    /// The reason for which the watch has ended.
    ///
    /// # Session loss
    /// Ends the stream with [`WatchLost::SessionEnded`], after the events that arrived before.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Result<WatchItem, WatchLost> {
        let item = self.receiver.recv().await.ok_or(WatchLost::SessionEnded)??;
        Ok(self.localize(item))
    }

    /// The next event or reconnect that has already arrived. When a reply has arrived, all events of the
    /// changes that it shows have arrived too.
    ///
    /// # Errors
    /// The reason for which the watch has ended.
    pub fn try_next(&mut self) -> Result<Option<WatchItem>, WatchLost> {
        match self.receiver.try_recv() {
            Ok(item) => item.map(|item| Some(self.localize(item))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(WatchLost::SessionEnded),
        }
    }

    fn localize(&self, item: WatchItem) -> WatchItem {
        match item {
            WatchItem::Event(event) => WatchItem::Event(self.registration.localize(event)),
            WatchItem::Rearmed => WatchItem::Rearmed,
        }
    }
}

/// Converts a server's path to the client's view.
pub(crate) fn strip_chroot(path: String, chroot: Option<&ZnodePath>) -> String {
    let Some(chroot) = chroot else { return path };
    match path.strip_prefix(chroot.as_str()) {
        Some("") => "/".to_owned(),
        Some(rest) => rest.to_owned(),
        None => path,
    }
}
