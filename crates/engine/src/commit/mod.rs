//! From the tree to the disk, and only then to the clients.
//!
//! The tree thread submits batches; the commit thread makes all that wait durable in one step, and
//! releases their replies. While it syncs, the tree thread prepares the next batch, so the length
//! of a group is whatever arrived during the last sync: no timer decides it. The tree thread does
//! by itself what takes less time than waking another thread and being woken by it: a commit that
//! is no more than a copy into the operating system's memory, and one of a few requests if nothing
//! waits before it and the disk is quick. What arrives meanwhile is the next group, as ever.
//!
//! Replies leave in the order in which the tree made them, whatever connection they are for. So a
//! read that saw an uncommitted write waits behind it, and so does a ping's reply, which names the
//! newest transaction. A disk that stalls makes clients doubt their leases (they hear nothing),
//! never the engine expire their sessions (it reads all that has arrived before it ends any): both
//! err on the safe side.

mod batch;
pub(crate) mod thread;

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub(crate) use self::batch::CommitBatch;
use crate::metrics::Metrics;
use crate::spin::{CommitSeries, SpinPolicy};
use crate::storage::{Batch, Durability, Storage, StorageError};

/// How many bytes of replies and changes may wait for the disk before nothing more is read, if the
/// memory for all that waits is not less.
const MAX_BACKLOG: usize = 64 * 1024 * 1024;
/// How long the disk may need for what waits for it. With more, long requests wait for their turns: what
/// they write would be committed in front of, or together with, what a client with a lock waits for.
const CATCH_UP_TIME: Duration = Duration::from_millis(50);
/// What may wait for the slowest disk, and so the shortest commit that shows how fast one is.
const MIN_BACKLOG: usize = 1024 * 1024;
/// Up to how many bytes of replies and changes the tree thread commits by itself, unsynced.
const INLINE_MAX_UNSYNCED: usize = 256 * 1024;
/// Up to how many bytes of replies and changes are those of a few requests. So much the tree thread
/// commits by itself if it is synced: while it waits for the disk, nobody handles larger rounds.
const INLINE_MAX_SYNCED: usize = 2 * 1024;

/// How long the last commit may have taken for the tree thread to wait for the next. A disk that
/// stalls is waited for by the commit thread: operators are answered meanwhile. So is one that a
/// checkpoint keeps busy.
const INLINE_MAX_LATENCY: Duration = Duration::from_millis(2);

/// The queue in front of the disk, and the disk itself.
pub(crate) struct Pipeline {
    state: Mutex<CommitState>,
    work: Condvar,
    /// Bytes in the queue, the group that is being committed included.
    backlog: AtomicUsize,
    max_backlog: usize,
    /// From how many bytes in the queue on the disk is behind.
    behind_from: AtomicUsize,
    room: Notify,
    /// Told when a group was released: its clients may ask for more right away.
    released: Notify,
    /// Whether a batch with timeouts is in the queue, or being committed.
    timeouts: AtomicBool,
    /// Whether changes are written anywhere.
    durable: bool,
    /// Whether each commit is synced.
    syncs: bool,
    series: CommitSeries,
    spin: Arc<SpinPolicy>,
    disk: Mutex<CommitDisk>,
    metrics: Arc<Metrics>,
}

struct CommitDisk {
    /// Until the end.
    storage: Option<Storage>,
    /// The changes of a group, empty in between.
    writes: Batch,
    /// How long the last commit took.
    took: Duration,
}

#[derive(Default)]
struct CommitState {
    queue: Vec<CommitBatch>,
    queue_bytes: usize,
    /// Since when the oldest batch of a group waits that was taken out and is not released yet.
    committing: Option<Instant>,
    /// Whether the commit thread has to be woken.
    sleeping: bool,
    paused: bool,
    fail_next: bool,
    /// Whether the commit thread is to leave its work to another one.
    recycled: bool,
    end: End,
    /// What the tree thread ran into.
    error: Option<StorageError>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    NotYet,
    /// After what is in the queue.
    Orderly,
    /// At once: nothing is released any more.
    Now,
}

impl Pipeline {
    pub(crate) fn new(
        durability: Durability,
        storage: Storage,
        metrics: Arc<Metrics>,
        spin: Arc<SpinPolicy>,
    ) -> Self {
        let disk =
            CommitDisk { storage: Some(storage), writes: Batch::default(), took: Duration::ZERO };
        Self {
            disk: Mutex::new(disk),
            state: Mutex::default(),
            work: Condvar::new(),
            backlog: AtomicUsize::new(0),
            max_backlog: MAX_BACKLOG,
            behind_from: AtomicUsize::new(8 * MIN_BACKLOG),
            room: Notify::new(),
            released: Notify::new(),
            timeouts: AtomicBool::new(false),
            durable: durability != Durability::Memory,
            syncs: durability == Durability::Sync,
            series: CommitSeries::new(Instant::now(), spin.for_commits()),
            spin,
            metrics,
        }
    }

    /// Lets no more wait than a quarter of the memory for all that waits.
    pub(crate) fn within(mut self, memory_budget: usize) -> Self {
        self.max_backlog = MAX_BACKLOG.min(memory_budget / 4);
        self
    }

    /// Queues a batch, or releases it at once if there is nothing that it has to wait for; whether
    /// its replies, if any, have left.
    ///
    /// Called by the tree thread only: two callers could overtake each other on the short way.
    pub(crate) fn submit(&self, batch: CommitBatch) -> bool {
        if batch.changes.is_empty() && batch.replies.is_empty() {
            return true;
        }
        let mut state = self.lock();
        if state.end == End::Now {
            return false;
        }

        let writes = self.durable && !batch.changes.is_empty();
        let waits = state.paused || state.committing.is_some() || !state.queue.is_empty();
        let bytes = if writes || waits { batch.bytes() } else { 0 };
        if waits || (writes && !self.commits_inline(bytes)) {
            self.queue(state, batch, bytes);
            return false;
        }

        // The short way. The lock is not held meanwhile, as operators ask how much waits.
        let fail = writes && mem::take(&mut state.fail_next);
        drop(state);
        let mut batches = [batch];
        if writes && let Err(e) = self.commit(&mut batches, fail) {
            self.lock().error = Some(e);
            self.abort();
            return false;
        }

        let [batch] = batches;
        batch.release(&self.metrics);
        true
    }

    /// Leaves a batch to the commit thread.
    fn queue(&self, mut state: MutexGuard<'_, CommitState>, batch: CommitBatch, bytes: usize) {
        if batch.timeouts {
            self.timeouts.store(true, Ordering::Relaxed);
        }
        self.backlog.fetch_add(bytes, Ordering::Relaxed);
        state.queue_bytes += bytes;
        state.queue.push(batch);
        // After the lock is given back: who wakes up wants it first of all.
        let sleeps = state.sleeping;
        drop(state);
        if sleeps {
            self.work.notify_one();
        }
    }

    /// Whether a commit of so many bytes costs less by the tree thread itself than by the thread
    /// that is there for it.
    fn commits_inline(&self, bytes: usize) -> bool {
        let disk = self.lock_disk();
        disk.storage.as_ref().is_some_and(|storage| {
            !storage.is_log_full()
                && match self.syncs {
                    true => {
                        bytes <= INLINE_MAX_SYNCED
                            && disk.took < INLINE_MAX_LATENCY
                            && !storage.has_background()
                    }
                    false => bytes <= INLINE_MAX_UNSYNCED,
                }
        })
    }

    /// Makes batches as durable as promised.
    fn commit(&self, batches: &mut [CommitBatch], fail: bool) -> Result<(), StorageError> {
        let disk = &mut *self.lock_disk();
        let Some(storage) = &mut disk.storage else {
            return Err(StorageError::GivenUp);
        };
        let mut bytes = 0;
        if self.durable {
            for batch in batches.iter_mut() {
                bytes += batch.changes.bytes();
                disk.writes.add_all(&mem::take(&mut batch.changes));
            }
        }

        let span = tracing::debug_span!("commit", batches = batches.len()).entered();
        let start = Instant::now();
        let sync = match fail {
            true => Err(storage.damaged("a test asked for this commit to fail")),
            false => storage.commit(&mut disk.writes),
        }?;
        drop(span);

        if let Some(sync) = sync {
            self.metrics.synced(sync);
        }
        if self.durable && !disk.writes.is_empty() {
            disk.took = start.elapsed();
            self.measure(bytes, disk.took);
            self.metrics.commits.add_time(disk.took, 1);
            let requests = batches.iter().map(|batch| batch.ops.total()).sum();
            self.metrics.batches.add(requests, 1);
        }

        disk.writes.clear();
        Ok(())
    }

    /// Nothing is committed, and the data directory not given up, while this is kept.
    #[cfg(test)]
    pub(crate) fn hold_disk(&self) -> impl Sized + '_ {
        self.lock_disk()
    }

    fn lock_disk(&self) -> MutexGuard<'_, CommitDisk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so much waits for the disk that no more requests should be read.
    pub(crate) fn is_full(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) > self.max_backlog
    }

    /// Whether so much waits for the disk that it needs a while for it.
    pub(crate) fn is_behind(&self) -> bool {
        let behind_from = self.behind_from.load(Ordering::Relaxed).min(self.max_backlog);
        self.backlog.load(Ordering::Relaxed) > behind_from
    }

    /// Notes how long the disk took for a group, if that says how fast it is.
    fn measure(&self, bytes: usize, took: Duration) {
        if bytes >= MIN_BACKLOG {
            let before = self.behind_from.load(Ordering::Relaxed);
            self.behind_from.store(behind_from(before, bytes, took), Ordering::Relaxed);
        }
    }

    /// Whether the last portion of timeouts still waits for the disk. Were more portions handled
    /// meanwhile, a mass expiry would become one commit, and everyone would wait for that.
    pub(crate) fn has_timeouts(&self) -> bool {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Waits until [`Pipeline::is_full`] is over.
    pub(crate) async fn room(&self) {
        let room = self.room.notified();
        tokio::pin!(room);
        // Registered before the second look, so that a release in between is not missed.
        room.as_mut().enable();
        if self.is_full() {
            room.await;
        }
    }

    /// Waits until the commit thread has released something.
    pub(crate) async fn released(&self) {
        self.released.notified().await;
    }

    /// How many batches wait.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.lock();
        state.queue.len() + usize::from(state.committing.is_some())
    }

    /// For how long the oldest batch has waited for the disk, if one waits.
    pub(crate) fn waits_for(&self) -> Option<Duration> {
        let state = self.lock();
        let since = state.committing.or_else(|| state.queue.first().map(|batch| batch.since));
        since.map(|since| since.elapsed())
    }

    /// Whether nothing is released any more: after an error of the storage, or the end of the tree.
    pub(crate) fn is_aborted(&self) -> bool {
        self.lock().end == End::Now
    }

    /// Holds back everything submitted from now on, or no longer.
    pub(crate) fn pause(&self, paused: bool) {
        self.lock().paused = paused;
        self.work.notify_one();
    }

    /// Makes the next commit fail before it writes anything.
    pub(crate) fn fail_next(&self) {
        self.lock().fail_next = true;
    }

    /// Has the commit thread replaced by a new one as soon as it waits. A thread keeps the memory of
    /// its largest group, in buffers of the log and in its allocator's heap, and gives it back when
    /// it ends (`docs/decisions/0008-allocator.md`).
    pub(crate) fn recycle_thread(&self) {
        self.lock().recycled = true;
        self.work.notify_one();
    }

    /// Ends the commit thread after what is in the queue, paused or not.
    pub(crate) fn finish(&self) {
        self.end(End::Orderly);
    }

    /// Ends it at once. What was not released never is.
    pub(crate) fn abort(&self) {
        self.end(End::Now);
    }

    fn end(&self, end: End) {
        let mut state = self.lock();
        if state.end != End::Now {
            state.end = end;
        }
        self.work.notify_one();
    }

    /// Waits for a moment without sleeping, until something is in the queue.
    fn spin(&self) {
        while self.backlog.load(Ordering::Relaxed) == 0 && self.series.expects_more(Instant::now())
        {
            self.spin.polled();
        }
    }

    /// Takes all that waits; `None` at the end, or if this thread is recycled.
    fn next_group(&self) -> Option<Group> {
        let mut state = self.lock();
        loop {
            let ready = !state.queue.is_empty() && !state.paused;
            match state.end {
                End::Now => return None,
                End::Orderly if state.queue.is_empty() => return None,
                End::NotYet if !ready && state.recycled => return None,
                End::NotYet if !ready => {}
                End::Orderly | End::NotYet => break,
            }

            if state.queue.is_empty() && self.series.expects_more(Instant::now()) {
                drop(state);
                self.spin();
                state = self.lock();
                continue;
            }

            state.sleeping = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping = false;
        }

        state.committing = state.queue.first().map(|batch| batch.since);
        Some(Group {
            batches: mem::take(&mut state.queue),
            bytes: mem::take(&mut state.queue_bytes),
            fail: mem::take(&mut state.fail_next),
        })
    }

    /// Releases a group that is durable now, unless the end came first.
    fn release(&self, group: Group) {
        if self.lock().end == End::Now {
            return;
        }
        if group.batches.iter().any(|batch| batch.timeouts) {
            self.timeouts.store(false, Ordering::Relaxed);
        }

        for batch in group.batches {
            batch.release(&self.metrics);
        }
        // Counted with the group itself: what came in meanwhile may have filled the backlog, and
        // those who wait for room must not be left waiting.
        let before = self.backlog.fetch_sub(group.bytes, Ordering::Relaxed);
        self.series.mark(Instant::now());

        // Only now may the tree thread take the short way: before, it would overtake this group.
        self.lock().committing = None;
        self.released.notify_one();
        if before > self.max_backlog {
            self.room.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From how many bytes on a disk is behind that took so long for so many, when it was `before` until now:
/// one group, which others may have slowed down, does not decide it.
fn behind_from(before: usize, bytes: usize, took: Duration) -> usize {
    let rate = bytes as f64 / took.as_secs_f64().max(1e-6);
    let in_time = (rate * CATCH_UP_TIME.as_secs_f64()) as usize;
    ((3 * before + in_time.min(MAX_BACKLOG)) / 4).max(MIN_BACKLOG)
}

struct Group {
    batches: Vec<CommitBatch>,
    bytes: usize,
    fail: bool,
}

#[cfg(test)]
mod tests;
