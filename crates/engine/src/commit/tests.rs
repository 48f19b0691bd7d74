//! The line in front of the disk, step by step.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use lockkeeper_tree::{Change, CloseReason, ConnectionId};
use tokio::net::UnixStream;
use tracing::span;

use super::*;
use crate::socket::{Outlet, Peer};

/// A batch that takes more than half of the room.
fn large(replies: Vec<(Arc<Connection>, Output)>) -> Batch {
    let value = vec![0; MAX_BACKLOG / 2 + 1];
    let table = lockkeeper_tree::Table::Meta;
    let change = Change { table, key: &[], value: Some(&value), is_new: false };
    let changes = [change].into_iter().collect();
    let (ops, timeouts, since) = (OpCounts::default(), false, Instant::now());
    Batch { changes, replies, ops, timeouts, since }
}

/// Does something once, when something is logged on this thread.
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

/// E7: what came in while a group was released filled the backlog, and somebody began to wait for
/// room. Whether anybody waited had been looked at before, so nobody was told when the group had
/// gone, and with it the reason to wait.
#[tokio::test]
async fn e7_room_that_is_made_by_a_release_is_told_to_who_came_during_it() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(Some(dir.path()), Durability::Sync).unwrap();
    let pipeline = Arc::new(Pipeline::new(Durability::Sync, storage, Arc::new(Metrics::new())));
    let (end, _other_end) = UnixStream::pair().unwrap();
    let outlet = Outlet::Unix(end.into_split().1);
    let connection = Connection::new(ConnectionId(1), (Peer::Unix, None), outlet, 1024);
    // Its end is logged in the middle of the release.
    let close = Output::Close(CloseReason::SessionClosed);
    pipeline.submit(large(vec![(Arc::new(connection), close)]));
    let group = pipeline.next_group().unwrap();
    assert!(!pipeline.is_full());

    let room = Arc::clone(&pipeline);
    let waiting: Waiting = Arc::new(Mutex::new(Box::pin(async move { room.room().await })));
    let (meanwhile, waits) = (Arc::clone(&pipeline), Arc::clone(&waiting));
    let come = move || {
        meanwhile.submit(large(Vec::new()));
        assert_eq!(poll(&waits), Poll::Pending);
    };
    tracing::subscriber::with_default(OnLog(Mutex::new(Some(come))), || pipeline.release(group));
    assert_eq!(pipeline.waiting(), 1, "it came during the release");
    assert!(!pipeline.is_full());
    assert_eq!(poll(&waiting), Poll::Ready(()));
}

type Waiting = Arc<Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>>;

fn poll(waiting: &Waiting) -> Poll<()> {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
