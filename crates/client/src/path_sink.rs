//! Where the session leaves the paths that a watch was told of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_wire::EventKind;
use tokio::sync::Notify;

use crate::arrival::Arrival;
use crate::watch_item::WatchLost;

/// A path that a watch was told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyPath {
    /// The node.
    pub path: String,
    /// When the first of the events arrived.
    pub first: Arrival,
    /// When the last one did.
    pub last: Arrival,
    /// What the last one said.
    pub kind: EventKind,
}

/// When a watch was set again on new connections. What happened to any node between two connections is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rearms {
    /// The first time. What arrived before is of the connection before.
    pub first: Arrival,
    /// The last time.
    pub last: Arrival,
}

impl Rearms {
    /// The watch was set once.
    #[must_use]
    pub fn once(arrival: Arrival) -> Self {
        Self { first: arrival, last: arrival }
    }

    /// Together with those before it that have not been seen to yet.
    #[must_use]
    pub fn after(self, earlier: Option<Self>) -> Self {
        Self { first: earlier.map_or(self.first, |earlier| earlier.first), ..self }
    }
}

/// What a watch was told of since it was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtySet {
    /// The nodes that something happened to, sorted.
    pub paths: Vec<DirtyPath>,
    /// When the watch was set again, if it was.
    pub rearmed: Option<Rearms>,
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) paths: BTreeMap<String, (Arrival, Arrival, EventKind)>,
    pub(crate) rearmed: Option<Rearms>,
    pub(crate) end: Option<WatchLost>,
}

/// Where the paths are kept until they are taken.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    state: Mutex<Pending>,
    /// Tells the one who waits that there is something.
    pub(crate) wake: Notify,
}

impl Sink {
    pub(crate) fn state(&self) -> MutexGuard<'_, Pending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is nothing to take, and the watch has not ended.
    pub(crate) fn is_clean(&self) -> bool {
        let state = self.state();
        state.paths.is_empty() && state.rearmed.is_none() && state.end.is_none()
    }

    fn change(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.state());
        self.wake.notify_one();
    }
}

/// The session's end of it.
#[derive(Debug)]
pub(crate) struct PathsSender(pub(crate) Arc<Sink>);

impl PathsSender {
    pub(crate) fn changed(&self, path: String, kind: EventKind, arrival: Arrival) {
        self.0.change(|state| {
            let told = state.paths.entry(path).or_insert((arrival, arrival, kind));
            (told.1, told.2) = (arrival, kind);
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

/// Says whether there is something to take from a [`DirtyPaths`](crate::DirtyPaths). Cheap to clone.
#[derive(Clone, Debug)]
pub struct PathsProbe(pub(crate) Arc<Sink>);

impl PathsProbe {
    /// Whether there is nothing to take, and the watch has not ended.
    pub fn is_clean(&self) -> bool {
        self.0.is_clean()
    }
}
