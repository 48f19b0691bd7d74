//! A watch that keeps the paths it was told of, instead of a queue of events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_session::WatchId;
use lockkeeper_wire::ZnodePath;
use tokio::sync::Notify;

use crate::arrival::Arrival;
use crate::shared::Shared;
use crate::watch_item::WatchLost;
use crate::watcher::{Registration, strip_chroot};

/// A path that a watch was told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyPath {
    /// The node.
    pub path: String,
    /// When the first of the events arrived.
    pub first: Arrival,
    /// When the last one did.
    pub last: Arrival,
}

/// What a watch was told of since it was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtySet {
    /// The nodes that something happened to, in no order.
    pub paths: Vec<DirtyPath>,
    /// When the watch was set again on a new connection, the last time: what happened to any node
    /// before is not known.
    pub rearmed: Option<Arrival>,
}

#[derive(Debug, Default)]
struct State {
    paths: HashMap<String, (Arrival, Arrival)>,
    rearmed: Option<Arrival>,
    end: Option<WatchLost>,
}

impl State {
    fn has_something(&self) -> bool {
        !self.paths.is_empty() || self.rearmed.is_some() || self.end.is_some()
    }
}

#[derive(Debug, Default)]
struct Sink {
    state: Mutex<State>,
    /// Tells the one who waits that there is something.
    wake: Notify,
}

impl Sink {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.wake.notify_one();
    }
}

/// The session's end of it.
#[derive(Debug)]
pub(crate) struct PathsSender(Arc<Sink>);

impl PathsSender {
    pub(crate) fn changed(&self, path: String, arrival: Arrival) {
        self.0.change(|state| {
            state.paths.entry(path).or_insert((arrival, arrival)).1 = arrival;
        });
    }

    pub(crate) fn rearmed(&self, arrival: Arrival) {
        self.0.change(|state| state.rearmed = Some(arrival));
    }

    pub(crate) fn end(&self, reason: WatchLost) {
        self.0.change(|state| state.end = state.end.or(Some(reason)));
    }
}

impl Drop for PathsSender {
    fn drop(&mut self) {
        self.end(WatchLost::SessionEnded);
    }
}

/// The nodes that a persistent watch was told of: as [`WatchStream`](crate::WatchStream), but no
/// longer than the list of watched nodes, however slowly it is read and however much happens.
///
/// Dropping it ends the watch.
#[must_use = "the watch is gone when this is dropped"]
#[derive(Debug)]
pub struct DirtyPaths {
    registration: Registration,
    sink: Arc<Sink>,
}

impl DirtyPaths {
    pub(crate) fn channel()
    -> (PathsSender, impl FnOnce(Arc<Shared>, WatchId, Option<ZnodePath>) -> Self) {
        let sink = Arc::<Sink>::default();
        let sender = PathsSender(Arc::clone(&sink));
        let receiver = move |shared, id, chroot| {
            let registration = Registration::new(shared, id, chroot);
            Self { registration, sink }
        };
        (sender, receiver)
    }

    /// Takes what there is.
    ///
    /// # Errors
    /// Why the watch has ended, if it has, and everything before was taken.
    pub fn take(&mut self) -> Result<DirtySet, WatchLost> {
        let mut state = self.sink.state();
        let (paths, rearmed) = (std::mem::take(&mut state.paths), state.rearmed.take());
        let end = state.end;
        drop(state);
        match end {
            Some(end) if paths.is_empty() && rearmed.is_none() => Err(end),
            _ => {
                let chroot = self.registration.chroot();
                let paths = paths.into_iter().map(|(path, (first, last))| DirtyPath {
                    path: strip_chroot(path, chroot),
                    first,
                    last,
                });
                Ok(DirtySet { paths: paths.collect(), rearmed })
            }
        }
    }

    /// Whether there is nothing to take, and the watch has not ended.
    pub fn is_clean(&self) -> bool {
        !self.sink.state().has_something()
    }

    /// What says that to others.
    pub fn probe(&self) -> PathsProbe {
        PathsProbe(Arc::clone(&self.sink))
    }

    /// Waits until there is something to take, or the watch has ended.
    ///
    /// # Cancel safety
    /// Safe: nothing is taken.
    pub async fn changed(&mut self) {
        while self.is_clean() {
            self.sink.wake.notified().await;
        }
    }
}

/// Says whether there is something to take from a [`DirtyPaths`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PathsProbe(Arc<Sink>);

impl PathsProbe {
    /// Whether there is nothing to take, and the watch has not ended.
    pub fn is_clean(&self) -> bool {
        !self.0.state().has_something()
    }
}
