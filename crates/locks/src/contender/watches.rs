//! The watches of a waiting contender or holder.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lockkeeper_client::{WatchEvent, WatchLost, Watcher};

/// The watches of a waiting contender.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// The watch on the contender's own node.
    pub(crate) own: Option<Watcher>,
    /// The watches on nodes ahead.
    pub(crate) ahead: Vec<(String, Watcher)>,
}

impl Watches {
    /// Whether the own node is watched and unchanged. Drops a watch that has an event.
    pub(crate) fn keep_own(&mut self) -> bool {
        let event = pin!(own_event(&mut self.own)).poll(&mut Context::from_waker(Waker::noop()));
        if event.is_ready() {
            self.own = None;
        }
        self.own.is_some()
    }
}

/// The next event on the own node. Never returns if the node is not watched.
pub(crate) async fn own_event(watch: &mut Option<Watcher>) -> Result<WatchEvent, WatchLost> {
    match watch {
        Some(watch) => watch.changed().await,
        None => pending().await,
    }
}

/// The first event on any of these watches. Never returns if there are none.
pub(crate) async fn first_event<K>(
    watches: &mut [(K, Watcher)],
) -> (usize, Result<WatchEvent, WatchLost>) {
    poll_fn(|context| {
        for (index, (_, watcher)) in watches.iter_mut().enumerate() {
            if let Poll::Ready(event) = pin!(watcher.changed()).poll(context) {
                return Poll::Ready((index, event));
            }
        }
        Poll::Pending
    })
    .await
}
