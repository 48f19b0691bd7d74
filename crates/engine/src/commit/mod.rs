//! Commits the tree's changes to the disk, and only then replies to the clients.
//!
//! The tree thread submits batches; the commit thread makes all waiting batches durable in one step, and releases their
//! replies. During a sync, the tree thread prepares the next batch, so the size of a group is what arrived during the
//! last sync, without a timer. The tree thread itself makes commits that take less time than waking another thread and
//! being woken by it: those that only copy into the operating system's memory, and small ones if nothing waits before
//! them and the disk is fast. Data that arrives in between forms the next group, as usual.
//!
//! Replies leave in the order in which the tree made them, across all connections. So a read that saw an uncommitted
//! write waits for its commit, and so does a ping's reply, which names the newest transaction. A stalled disk makes
//! clients doubt their leases (they receive no replies), but never makes the engine expire their sessions (it reads all
//! data that has arrived before it expires any): both are safe.

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

/// The bytes of replies and changes that may wait for the disk before no more requests are read, unless the budget for
/// all waiting data is smaller.
const MAX_BACKLOG: usize = 64 * 1024 * 1024;
/// How long the disk may need for the waiting data. Above it, long requests wait for their turns: otherwise their
/// writes would be committed before, or together with, those for which a lock holder waits.
const CATCH_UP_TIME: Duration = Duration::from_millis(50);
/// The backlog allowed for the slowest disk, and so the smallest commit from which its speed is measured.
const MIN_BACKLOG: usize = 1024 * 1024;
/// The largest unsynced commit that the tree thread makes itself, in bytes of replies and changes.
const INLINE_MAX_UNSYNCED: usize = 256 * 1024;
/// The largest synced commit that the tree thread makes itself, in bytes of replies and changes: those of a few
/// requests. Larger rounds would not be handled while it waits for the disk.
const INLINE_MAX_SYNCED: usize = 2 * 1024;

/// The longest duration of the last commit at which the tree thread makes the next one itself. If the disk stalls, or a
/// checkpoint keeps it busy, the commit thread waits for it, and the tree thread answers operators.
const INLINE_MAX_LATENCY: Duration = Duration::from_millis(2);

/// The queue in front of the disk, and the disk itself.
pub(crate) struct Pipeline {
    state: Mutex<CommitState>,
    work: Condvar,
    /// The bytes in the queue, including the group that is being committed.
    backlog: AtomicUsize,
    max_backlog: usize,
    /// The number of bytes in the queue above which the disk is behind.
    behind_from: AtomicUsize,
    room: Notify,
    /// Notified when a group was released: its clients may send more requests right away.
    released: Notify,
    /// Whether a batch with timeouts is in the queue or being committed.
    timeouts: AtomicBool,
    /// Whether changes are written to a disk.
    durable: bool,
    /// Whether each commit is synced.
    syncs: bool,
    series: CommitSeries,
    spin: Arc<SpinPolicy>,
    disk: Mutex<CommitDisk>,
    metrics: Arc<Metrics>,
}

struct CommitDisk {
    /// Present until the end.
    storage: Option<Storage>,
    /// The changes of a group, empty between groups.
    writes: Batch,
    /// How long the last commit took.
    took: Duration,
}

#[derive(Default)]
struct CommitState {
    queue: Vec<CommitBatch>,
    queue_bytes: usize,
    /// Since when the oldest batch of the group has waited that is being committed.
    committing: Option<Instant>,
    /// Whether the commit thread has to be woken.
    sleeping: bool,
    paused: bool,
    fail_next: bool,
    /// Whether the commit thread is to be replaced by another one.
    recycled: bool,
    end: End,
    /// The error of a commit that the tree thread made.
    error: Option<StorageError>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    NotYet,
    /// After the batches in the queue.
    Orderly,
    /// At once: no further batch is released.
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

    /// Limits the backlog to a quarter of the budget for all waiting data.
    pub(crate) fn within(mut self, memory_budget: usize) -> Self {
        self.max_backlog = MAX_BACKLOG.min(memory_budget / 4);
        self
    }

    /// Queues a batch, or releases it at once if it does not have to wait. Returns whether its replies, if any, were
    /// sent.
    ///
    /// Called only by the tree thread: two callers could overtake each other when they commit inline.
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

        // Commit inline. The lock is released during the commit, because operators query the backlog.
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
        // After the lock is released: the woken thread needs it first.
        let sleeps = state.sleeping;
        drop(state);
        if sleeps {
            self.work.notify_one();
        }
    }

    /// Whether a commit of this size costs less on the tree thread than on the commit thread.
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

    /// While the returned value is held, nothing is committed, and the data directory is not released.
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

    /// Whether so much waits for the disk that it needs some time for it.
    pub(crate) fn is_behind(&self) -> bool {
        let behind_from = self.behind_from.load(Ordering::Relaxed).min(self.max_backlog);
        self.backlog.load(Ordering::Relaxed) > behind_from
    }

    /// Records how long the disk took for a group, if the group is large enough to show its speed.
    fn measure(&self, bytes: usize, took: Duration) {
        if bytes >= MIN_BACKLOG {
            let before = self.behind_from.load(Ordering::Relaxed);
            self.behind_from.store(behind_from(before, bytes, took), Ordering::Relaxed);
        }
    }

    /// Whether the last batch of timeouts still waits for the disk. If more of them were handled before that, a mass
    /// expiry would become one commit for which all clients wait.
    pub(crate) fn has_timeouts(&self) -> bool {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Waits until [`Pipeline::is_full`] returns false.
    pub(crate) async fn room(&self) {
        let room = self.room.notified();
        tokio::pin!(room);
        // Registered before the second check, so that a release in between is not missed.
        room.as_mut().enable();
        if self.is_full() {
            room.await;
        }
    }

    /// Waits until the commit thread has released a group.
    pub(crate) async fn released(&self) {
        self.released.notified().await;
    }

    /// The number of waiting batches.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.lock();
        state.queue.len() + usize::from(state.committing.is_some())
    }

    /// How long the oldest batch has waited for the disk, if any waits.
    pub(crate) fn waits_for(&self) -> Option<Duration> {
        let state = self.lock();
        let since = state.committing.or_else(|| state.queue.first().map(|batch| batch.since));
        since.map(|since| since.elapsed())
    }

    /// Whether no batch is released any more: after a storage error, or the end of the tree.
    pub(crate) fn is_aborted(&self) -> bool {
        self.lock().end == End::Now
    }

    /// Holds back everything submitted from now on, or stops doing so.
    pub(crate) fn pause(&self, paused: bool) {
        self.lock().paused = paused;
        self.work.notify_one();
    }

    /// Makes the next commit fail before it writes any data.
    pub(crate) fn fail_next(&self) {
        self.lock().fail_next = true;
    }

    /// Replaces the commit thread with a new one as soon as it waits. A thread keeps the memory of its largest group,
    /// in buffers of the log and in its allocator's heap, and frees it when it ends
    /// (`docs/decisions/0008-allocator.md`).
    pub(crate) fn recycle_thread(&self) {
        self.lock().recycled = true;
        self.work.notify_one();
    }

    /// Ends the commit thread after the batches in the queue, paused or not.
    pub(crate) fn finish(&self) {
        self.end(End::Orderly);
    }

    /// Ends the commit thread at once. Batches that were not released never are.
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

    /// Polls for a moment without sleeping, until a batch is in the queue.
    fn spin(&self) {
        while self.backlog.load(Ordering::Relaxed) == 0 && self.series.expects_more(Instant::now())
        {
            self.spin.polled();
        }
    }

    /// Takes all waiting batches; `None` at the end, or if this thread is recycled.
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
        // Compared with the group included: batches that arrived during the commit may have filled the backlog, and the
        // waiters for room must not be left waiting.
        let before = self.backlog.fetch_sub(group.bytes, Ordering::Relaxed);
        self.series.mark(Instant::now());

        // Only now may the tree thread commit inline: earlier, it would overtake this group.
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

/// The number of bytes above which a disk is behind that took this long for so many bytes. `before` is the previous
/// value: a single group, which other programs may have slowed down, does not decide it.
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
