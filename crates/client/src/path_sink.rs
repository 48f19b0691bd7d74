//! Where the session stores the changed paths of a watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_wire::EventKind;
use tokio::sync::Notify;

use crate::arrival::Arrival;
use crate::watch_item::WatchLost;

/// A path that a watch reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyPath {
    /// The node.
    pub path: String,
    /// When the first event of the path arrived.
    pub first: Arrival,
    /// When the last event arrived.
    pub last: Arrival,
    /// The kind of the last event.
    pub kind: EventKind,
}

/// When a watch was rearmed on new connections. Changes between two connections are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rearms {
    /// The first time. Earlier events belong to the previous connection.
    pub first: Arrival,
    /// The last time.
    pub last: Arrival,
}

impl Rearms {
    /// The watch was rearmed once.
    #[must_use]
    pub fn once(arrival: Arrival) -> Self {
        Self { first: arrival, last: arrival }
    }

    /// Combined with earlier rearms that have not been handled yet.
    #[must_use]
    pub fn after(self, earlier: Option<Self>) -> Self {
        Self { first: earlier.map_or(self.first, |earlier| earlier.first), ..self }
    }
}

/// Everything that a watch reported since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtySet {
    /// The changed nodes, sorted.
    pub paths: Vec<DirtyPath>,
    /// When the watch was rearmed, if it was.
    pub rearmed: Option<Rearms>,
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) paths: BTreeMap<String, (Arrival, Arrival, EventKind)>,
    pub(crate) rearmed: Option<Rearms>,
    pub(crate) end: Option<WatchLost>,
}

/// Stores the paths until they are taken.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    state: Mutex<Pending>,
    /// Wakes the waiting task.
    pub(crate) wake: Notify,
}

impl Sink {
    pub(crate) fn state(&self) -> MutexGuard<'_, Pending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are no changed paths and the watch has not ended.
    pub(crate) fn is_clean(&self) -> bool {
        let state = self.state();
        state.paths.is_empty() && state.rearmed.is_none() && state.end.is_none()
    }

    fn change(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.state());
        self.wake.notify_one();
    }
}

/// The session's end of the sink.
#[derive(Debug)]
pub(crate) struct PathsSender(pub(crate) Arc<Sink>);

impl PathsSender {
    pub(crate) fn changed(&self, path: String, kind: EventKind, arrival: Arrival) {
        self.0.change(|state| {
            let entry = state.paths.entry(path).or_insert((arrival, arrival, kind));
            (entry.1, entry.2) = (arrival, kind);
        });
    }

    pub(crate) fn rearmed(&self, arrival: Arrival) {
        self.0.change(|state| {
            state.rearmed = Some(Rearms::once(arrival).after(state.rearmed));
        });
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

/// Checks whether a [`DirtyPaths`](crate::DirtyPaths) has something to take. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PathsProbe(pub(crate) Arc<Sink>);

impl PathsProbe {
    /// Whether there are no changed paths and the watch has not ended.
    pub fn is_clean(&self) -> bool {
        self.0.is_clean()
    }
}
