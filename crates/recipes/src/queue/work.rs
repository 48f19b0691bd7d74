//! [`Queue::work`]: a handler for each item.

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lockkeeper_client::retry::pause;

use crate::queue::error::QueueError;
use crate::queue::handle::Queue;
use crate::queue::item::Item;

/// The result of a handler for its item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The item is done.
    Done,
    /// The item is tried again, after those in the queue now; [`Item::retry`].
    Retry(String),
    /// The item is tried again, not before this time has passed; [`Item::retry_after`].
    RetryAfter(Duration, String),
    /// The item becomes a dead letter; [`Item::bury`].
    Bury(String),
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// An error means a retry.
impl<E: Display> From<Result<(), E>> for Verdict {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(error) => Self::Retry(error.to_string()),
        }
    }
}

impl<E: Display> From<Result<Verdict, E>> for Verdict {
    fn from(result: Result<Verdict, E>) -> Self {
        result.unwrap_or_else(|error| Self::Retry(error.to_string()))
    }
}

impl<T> Queue<T> {
    /// Calls a handler for each item, for up to `concurrency` items at once, without end. Its [`Verdict`], or `Ok`
    /// for done and an error for a retry, ends the item, unless the handler has ended it. The handler is dropped
    /// when its item is lost, unless it has begun to end the item. It runs as in
    /// [`Guard::run`](lockkeeper_locks::Guard::run): its requests to this client are sent only while the item is
    /// held. Costs as much as the takes and the ends.
    ///
    /// All handlers run in the task that calls this, in turns: one that computes or blocks stops the others, and on
    /// a single-threaded runtime the session too. Move such work to `tokio::task::spawn_blocking`, or to a separate
    /// task.
    ///
    /// # Panics
    /// If a handler panics. All handlers are dropped then, and their items go to other consumers.
    ///
    /// # Errors
    /// Permanent errors: the queue was deleted, the path has other data, a request is refused, or the client was
    /// closed. An item that cannot be decoded is skipped, with a warning in the log.
    ///
    /// # Session loss
    /// Drops the handlers, whose items go to other consumers, and continues in the next session.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handlers and gives their items back. To finish started items, use
    /// [`Queue::work_until`].
    pub async fn work<F>(
        &self,
        concurrency: usize,
        handler: impl Fn(Arc<Item<T>>) -> F,
    ) -> Result<Infallible, QueueError>
    where
        F: Future<Output: Into<Verdict>>,
    {
        match self.work_until(concurrency, std::future::pending(), handler).await {
            Ok(()) => std::future::pending().await,
            Err(error) => Err(error),
        }
    }

    /// [`Queue::work`] until `stop` completes: then no more items are taken, and it returns when those that were
    /// taken are ended. If no server can be reached, it returns when their session has ended. Costs as much as
    /// [`Queue::work`].
    ///
    /// # Panics
    /// As [`Queue::work`].
    ///
    /// # Errors
    /// As [`Queue::work`].
    ///
    /// # Session loss
    /// As [`Queue::work`].
    ///
    /// # Cancel safety
    /// As [`Queue::work`].
    pub async fn work_until<F>(
        &self,
        concurrency: usize,
        stop: impl Future<Output = ()>,
        handler: impl Fn(Arc<Item<T>>) -> F,
    ) -> Result<(), QueueError>
    where
        F: Future<Output: Into<Verdict>>,
    {
        let concurrency = concurrency.max(1);
        let mut stop = pin!(stop);
        let mut running = FuturesUnordered::new();
        loop {
            let free = concurrency - running.len();
            if free == 0 {
                tokio::select! {
                    biased;
                    () = &mut stop => break,
                    _ = running.next() => {
                        // Ends that are written together are answered together, and so are the next takes.
                        while let Some(Some(())) = running.next().now_or_never() {}
                        continue;
                    }
                }
            }

            let mut taking = pin!(self.take_on(free));
            let taken = loop {
                tokio::select! {
                    biased;
                    () = &mut stop => break None,
                    taken = &mut taking => break Some(taken?),
                    Some(()) = running.next() => {}
                }
            };
            let Some(taken) = taken else { break };
            running.extend(taken.into_iter().map(|item| self.handle(item, &handler)));
        }
        while running.next().await.is_some() {}
        Ok(())
    }

    /// Takes up to this many items, over all transient errors.
    async fn take_on(&self, most: usize) -> Result<Vec<Item<T>>, QueueError> {
        loop {
            match self.some_items(most, true).await {
                Ok(items) if items.is_empty() => {}
                Ok(items) => return Ok(items),
                // It is in the log.
                Err(QueueError::Undecodable { .. }) => {}
                Err(error) => {
                    tracing::debug!(queue = %self.path(), %error, "taking again");
                    self.core.outlast(error).await?;
                }
            }
        }
    }

    /// Runs the handler for an item, and ends the item.
    async fn handle<F>(&self, item: Item<T>, handler: &impl Fn(Arc<Item<T>>) -> F)
    where
        F: Future<Output: Into<Verdict>>,
    {
        let item = Arc::new(item);
        let mut work = pin!(handler(Arc::clone(&item)));
        let verdict = match item.run(work.as_mut()).await {
            Ok(verdict) => verdict.into(),
            // The loss of the claim may be noticed before the answer to the handler that has ended the item.
            Err(_) if item.is_ending() => {
                work.await;
                return;
            }
            Err(reason) => {
                tracing::warn!(queue = %self.path(), id = item.id(), %reason, "an item is lost");
                return;
            }
        };
        if item.is_ended() {
            return;
        }

        let ended = match verdict {
            Verdict::Done => item.done().await,
            Verdict::Retry(reason) => item.retry(reason).await,
            Verdict::RetryAfter(delay, reason) => item.retry_after(delay, reason).await,
            Verdict::Bury(reason) => item.bury(reason).await,
        };
        if let Err(QueueError::Cancelled { .. }) = ended {
            tracing::debug!(queue = %self.path(), id = item.id(), "an item was cancelled");
        } else if let Err(error) = ended {
            tracing::warn!(queue = %self.path(), id = item.id(), %error, "an item was not ended");
            // It is given back, unless it is lost: not at once, if a server refuses for now.
            pause().await;
        }
    }
}
