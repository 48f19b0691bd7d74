//! The newest snapshot, and the readers that have not seen it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_client::{Client, Instant, PathsProbe, Zxid};
use tokio::sync::watch;

use crate::watch::backlog::Backlog;
use crate::watch::error::CacheError;
use crate::watch::snapshot::Snapshot;

/// The minimum number of unread paths that are kept for subscribers. Larger trees keep as many paths as they have
/// nodes, because comparing two snapshots takes as long as visiting each node.
const MIN_KEPT_PATHS: usize = 1_024;

/// State shared by the readers of a cache and the task that keeps it up to date.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) client: Client,
    state: Mutex<PublishedState>,
    /// Notifies subscribers of a new snapshot, or of the end.
    pub(crate) generation: watch::Sender<u64>,
    /// Grows with each snapshot. A reader that has seen a current snapshot has seen its edition too.
    edition: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct PublishedState {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) as_of: Instant,
    /// Whether the snapshot includes all events that arrived before `probe` was taken.
    pub(crate) is_synced: bool,
    pub(crate) probe: PathsProbe,
    pub(crate) end: Option<CacheError>,
    /// The paths at which the tree may have changed since the last update of each subscriber.
    pub(crate) touched: Backlog,
}

impl Published {
    pub(crate) fn new(
        client: Client,
        snapshot: Arc<Snapshot>,
        as_of: Instant,
        probe: PathsProbe,
    ) -> Self {
        let (is_synced, end, touched) = (true, None, Backlog::default());
        let state = PublishedState { snapshot, as_of, is_synced, probe, end, touched };
        let (generation, edition) = (watch::Sender::new(0), AtomicU64::new(0));
        Self { client, state: Mutex::new(state), generation, edition }
    }

    /// A number that changes with the snapshot. Does not block.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, PublishedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Later events are not in the snapshot.
    pub(crate) fn unsynced(&self, probe: Option<PathsProbe>) {
        let mut state = self.state();
        state.is_synced = false;
        state.probe = probe.unwrap_or_else(|| state.probe.clone());
    }

    /// No event concerned the snapshot.
    pub(crate) fn synced(&self) {
        self.state().is_synced = true;
    }

    /// Publishes a snapshot that may differ from the last one at these paths.
    pub(crate) fn publish(
        &self,
        snapshot: Snapshot,
        as_of: Instant,
        touched: &BTreeSet<String>,
        is_synced: bool,
    ) {
        let mut state = self.state();
        (state.snapshot, state.as_of, state.is_synced) = (Arc::new(snapshot), as_of, is_synced);
        let most = state.snapshot.len().max(MIN_KEPT_PATHS);
        state.touched.publish(touched, most);
        self.edition.fetch_add(1, Ordering::Release);
        drop(state);
        if !touched.is_empty() {
            self.generation.send_modify(|generation| *generation += 1);
        }
    }

    pub(crate) fn zxid(&self) -> Zxid {
        self.state().snapshot.zxid()
    }

    /// Ends the cache, unless it has ended.
    pub(crate) fn end(&self, reason: CacheError) {
        let mut state = self.state();
        state.end.get_or_insert(reason);
        state.is_synced = false;
        drop(state);
        self.generation.send_modify(|generation| *generation += 1);
    }
}
