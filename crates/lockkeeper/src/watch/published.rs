//! The newest snapshot, and who has not seen it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_client::{Client, Instant, PathsProbe, Zxid};
use tokio::sync::watch;

use crate::watch::error::CacheError;
use crate::watch::snapshot::Snapshot;

/// What the readers of a cache share with the task that keeps it up to date.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) client: Client,
    state: Mutex<State>,
    /// Tells subscribers that there is a new snapshot, or the end.
    pub(crate) generation: watch::Sender<u64>,
    /// Grows with each snapshot. Who has seen that one is current has seen its edition too.
    edition: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) as_of: Instant,
    /// Whether the snapshot shows all that was told before `probe` was asked.
    pub(crate) is_synced: bool,
    pub(crate) probe: PathsProbe,
    pub(crate) end: Option<CacheError>,
    /// For each subscriber, where the tree may have changed since its last update.
    pub(crate) touched: BTreeMap<u64, BTreeSet<String>>,
    pub(crate) next_subscriber: u64,
}

impl Published {
    pub(crate) fn new(
        client: Client,
        snapshot: Arc<Snapshot>,
        as_of: Instant,
        probe: PathsProbe,
    ) -> Self {
        let touched = BTreeMap::new();
        let (is_synced, end, next_subscriber) = (true, None, 0);
        let state = State { snapshot, as_of, is_synced, probe, end, touched, next_subscriber };
        let (generation, edition) = (watch::Sender::new(0), AtomicU64::new(0));
        Self { client, state: Mutex::new(state), generation, edition }
    }

    /// A number that is another one when the snapshot is. Waits for nobody.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told from now on is not in the snapshot.
    pub(crate) fn unsynced(&self, probe: Option<PathsProbe>) {
        let mut state = self.state();
        state.is_synced = false;
        state.probe = probe.unwrap_or_else(|| state.probe.clone());
    }

    /// Nothing was told that concerns the snapshot.
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
        for theirs in state.touched.values_mut() {
            theirs.extend(touched.iter().cloned());
        }
        self.edition.fetch_add(1, Ordering::Release);
        drop(state);
        if !touched.is_empty() {
            self.generation.send_modify(|generation| *generation += 1);
        }
    }

    pub(crate) fn zxid(&self) -> Zxid {
        self.state().snapshot.zxid()
    }

    /// Ends it, unless it has ended.
    pub(crate) fn end(&self, reason: CacheError) {
        let mut state = self.state();
        state.end.get_or_insert(reason);
        state.is_synced = false;
        drop(state);
        self.generation.send_modify(|generation| *generation += 1);
    }
}
