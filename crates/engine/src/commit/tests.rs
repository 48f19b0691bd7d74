//! The commit queue, step by step.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use lockkeeper_tree::{Change, CloseReason, ConnectionId, Output};
use tokio::net::UnixStream;
use tokio::sync::mpsc::unbounded_channel;
use tracing::span;

use super::thread::start;
use super::*;
use crate::connection::Connection;
use crate::connection::budget::{Account, Budget};
use crate::metrics::ops::OpCounts;
use crate::sockets::stream::{Outlet, Peer};
use crate::spin::Spin;

/// The bytes that may wait in a pipeline of these tests.
const BACKLOG: usize = 1024 * 1024;

/// A pipeline that syncs each commit, and whose threads spin.
fn synced(storage: Storage) -> Pipeline {
    let spin = Arc::new(SpinPolicy::new(Spin::Adaptive));
    let metrics = Arc::new(Metrics::new());
    Pipeline::new(Durability::Sync, storage, metrics, spin).within(4 * BACKLOG)
}

/// A batch that takes more than half of the room.
fn large(replies: Vec<(Arc<Connection>, Output)>) -> CommitBatch {
    CommitBatch { replies, ..of_bytes(BACKLOG / 2 + 1) }
}

/// A batch that puts a value of this size.
fn of_bytes(bytes: usize) -> CommitBatch {
    let value = vec![0; bytes];
    let table = lockkeeper_tree::Table::Meta;
    let change = Change { table, key: &[], value: Some(&value), is_new: false };
    let changes = [change].into_iter().collect();
    let (ops, timeouts, since) = (OpCounts::default(), false, Instant::now());
    CommitBatch { changes, replies: Vec::new(), ops, timeouts, since }
}

/// Runs an action once, at the first log event of this thread.
struct OnLog<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> tracing::Subscriber for OnLog<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        let what = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(what) = what {
            what();
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// E7: batches that arrived while a group was released filled the backlog, and a task began to wait for room. The check
/// for waiters had come before, so that task was not notified when the group was gone, and nothing else would wake it.
#[tokio::test]
async fn e7_room_that_is_made_by_a_release_is_told_to_who_came_during_it() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(Some(dir.path()), Durability::Sync).unwrap();
    let pipeline = Arc::new(synced(storage));
    let (end, _other_end) = UnixStream::pair().unwrap();
    let outlet = Outlet::Unix(end.into_split().1);
    let room = (1024, Account::new(Budget::new(usize::MAX)));
    let connection = Connection::new(
        ConnectionId(1),
        (Peer::Unix { uid: 0 }, None),
        outlet,
        room,
        Arc::default(),
    );
    // Its end is logged in the middle of the release.
    let close = Output::Close(CloseReason::SessionClosed);
    pipeline.submit(large(vec![(Arc::new(connection), close)]));
    let mut group = pipeline.next_group().unwrap();
    pipeline.lock_disk().took = INLINE_MAX_LATENCY;
    pipeline.commit(&mut group.batches, false).unwrap();
    assert_ne!(
        pipeline.lock_disk().took,
        INLINE_MAX_LATENCY,
        "the commit thread sees when it is quick again"
    );
    assert!(!pipeline.is_full());

    let room = Arc::clone(&pipeline);
    let waiting: Waiting = Arc::new(Mutex::new(Box::pin(async move { room.room().await })));
    let (meanwhile, waits) = (Arc::clone(&pipeline), Arc::clone(&waiting));
    let come = move || {
        meanwhile.submit(large(Vec::new()));
        assert_eq!(poll(&waits), Poll::Pending);
    };
    tracing::subscriber::with_default(OnLog(Mutex::new(Some(come))), || pipeline.release(group));
    assert_eq!(pipeline.waiting(), 1, "it arrived during the release");
    assert!(!pipeline.is_full());
    assert_eq!(poll(&waiting), Poll::Ready(()));
}

/// Symptom: rewriters of megabytes kept other clients waiting for 64 MiB that had to be written first.
#[test]
fn a_slow_disk_is_behind_sooner_than_a_fast_one() {
    let second = Duration::from_secs(1);
    let mut slow = 8 * MIN_BACKLOG;
    for _ in 0..20 {
        slow = behind_from(slow, 100 << 20, second);
    }
    assert!((5 << 20..6 << 20).contains(&slow), "a twentieth of a second's: {slow}");

    let (mut fast, mut slowest) = (slow, slow);
    for _ in 0..100 {
        fast = behind_from(fast, 100 << 30, second);
        slowest = behind_from(slowest, 1, second);
    }
    assert_eq!((fast >> 20, slowest), (63, MIN_BACKLOG));
    let once = behind_from(slow, 1 << 20, second);
    assert!(once > slow / 2, "one slow sync does not make a slow disk: {once}");
}

/// A commit of a few requests is made inline, but not behind others, not on a disk that was slow with the last one, and
/// not when it is large.
#[test]
fn the_tree_thread_syncs_small_commits() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(Some(dir.path()), Durability::Sync).unwrap();
    let pipeline = synced(storage);
    // However slow the disk of this machine is.
    let brisk = || pipeline.lock_disk().took = Duration::ZERO;
    assert!(pipeline.submit(of_bytes(100)), "nothing waits");
    assert_eq!(pipeline.waiting(), 0);
    assert_ne!(pipeline.lock_disk().took, Duration::ZERO);
    brisk();
    assert!(pipeline.submit(of_bytes(100)), "as often as wanted");

    pipeline.lock_disk().took = INLINE_MAX_LATENCY;
    assert!(!pipeline.submit(of_bytes(100)), "the disk is slow");
    brisk();
    assert!(!pipeline.submit(of_bytes(100)), "another one waits");
    assert_eq!(pipeline.waiting(), 2);

    let group = pipeline.next_group().unwrap();
    assert!(!pipeline.submit(of_bytes(100)), "a group is being committed");
    pipeline.release(group);
    pipeline.release(pipeline.next_group().unwrap());
    brisk();
    assert!(
        !pipeline.submit(of_bytes(INLINE_MAX_SYNCED)),
        "with its overhead, it exceeds the limit"
    );
    pipeline.release(pipeline.next_group().unwrap());
    assert!(pipeline.submit(of_bytes(100)));
}

/// Records on which threads commits are made.
#[derive(Default)]
struct Committers(Arc<Mutex<Vec<ThreadId>>>);

impl tracing::Subscriber for Committers {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.name() == "commit"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(thread::current().id());
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Another thread takes over at any moment, without an effect on submitters or on the waiters for the end of the last
/// one.
#[test]
fn a_recycled_commit_thread_has_a_successor() {
    let committers = Committers::default();
    let threads = Arc::clone(&committers.0);
    tracing::subscriber::with_default(committers, recycle_again_and_again);
    let threads = threads.lock().unwrap();
    let others: HashSet<&ThreadId> = threads.iter().collect();
    assert!(others.len() > 3, "{threads:?}");
}

fn recycle_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(Some(dir.path()), Durability::Sync).unwrap();
    let pipeline = Arc::new(synced(storage));
    let (events, mut ends) = unbounded_channel();
    let tell = move |result| events.send(result).unwrap();
    start(Arc::clone(&pipeline), Arc::new(tell)).unwrap();
    let submit = || {
        // So that the commit thread makes it.
        pipeline.lock_disk().took = INLINE_MAX_LATENCY;
        pipeline.submit(of_bytes(100));
    };
    for _ in 0..3 {
        submit();
        until(|| pipeline.waiting() == 0);
        assert_ne!(pipeline.lock_disk().writes.room(), 0);
        pipeline.recycle_thread();
        until(|| !pipeline.lock().recycled);
        until(|| pipeline.lock_disk().writes.room() == 0);
    }
    for _ in 0..100 {
        pipeline.recycle_thread();
        submit();
    }
    until(|| pipeline.waiting() == 0);
    // Also while it is paused with a batch in the queue.
    pipeline.pause(true);
    submit();
    pipeline.recycle_thread();
    until(|| !pipeline.lock().recycled);
    pipeline.pause(false);
    until(|| pipeline.waiting() == 0);
    assert!(ends.try_recv().is_err(), "a recycled thread does not report an end");
    pipeline.recycle_thread();
    pipeline.finish();
    until(|| !ends.is_empty());
    assert!(matches!(ends.try_recv(), Ok(Ok(()))));
    until(|| ends.is_closed());
    assert!(ends.try_recv().is_err(), "there is one end");
    assert!(pipeline.lock_disk().storage.is_none(), "the data directory is released");
}

fn until(condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(20), "in vain");
        thread::yield_now();
    }
}

type Waiting = Arc<Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>>;

fn poll(waiting: &Waiting) -> Poll<()> {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
