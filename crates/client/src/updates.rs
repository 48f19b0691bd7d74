//! [`Updates`]: a source of changes as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::failure::Failure;
use crate::watch_item::{WatchItem, WatchLost};
use crate::watcher::WatchStream;

/// A source of changes: a type with a method `next` that waits for the next change. This trait turns it into a
/// [`Stream`], for code that combines streams. Needs the feature `stream`.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::future::poll_fn;
/// use std::pin::Pin;
///
/// use futures_core::Stream;
/// use lockkeeper_client::{AddWatchMode, Client, Updates, ZnodePath};
///
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let path = ZnodePath::new("/config")?;
/// let mut events = client.watch(&path, AddWatchMode::PersistentRecursive).await?.into_stream();
/// // Or by `StreamExt::next` of a crate of your choice.
/// while let Some(event) = poll_fn(|context| Pin::new(&mut events).poll_next(context)).await {
///     println!("{:?}", event?);
/// }
/// # Ok(())
/// # }
/// ```
pub trait Updates: Sized + Send + 'static {
    /// A change.
    type Update: Send + 'static;
    /// The error type.
    type Error: Failure + Send + Sync + 'static;

    /// Waits for the next change, like the method `next` of the type, which documents the cost.
    ///
    /// # Errors
    /// As `next`.
    ///
    /// # Session loss
    /// As `next`.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    fn next_update(
        &mut self,
    ) -> impl Future<Output = Result<Self::Update, Self::Error>> + Send + '_;

    /// The changes as a stream. An error that is not [retryable](Failure::is_retryable) ends the stream;
    /// after a retryable error it continues.
    fn into_stream(self) -> UpdateStream<Self> {
        UpdateStream { waiting: Some(waiting(self)) }
    }
}

type Waiting<S> = Pin<
    Box<dyn Future<Output = (S, Result<<S as Updates>::Update, <S as Updates>::Error>)> + Send>,
>;

fn waiting<S: Updates>(mut source: S) -> Waiting<S> {
    Box::pin(async move {
        let update = source.next_update().await;
        (source, update)
    })
}

/// The changes of an [`Updates`] source, as a [`Stream`]. Allocates once per change.
#[must_use = "streams do nothing unless polled"]
pub struct UpdateStream<S: Updates> {
    /// `None` after the end.
    waiting: Option<Waiting<S>>,
}

impl<S: Updates> Stream for UpdateStream<S> {
    type Item = Result<S::Update, S::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(waiting_for) = &mut self.waiting else { return Poll::Ready(None) };
        let (source, update) = ready!(waiting_for.as_mut().poll(context));
        let goes_on = update.as_ref().err().is_none_or(Failure::is_retryable);
        self.waiting = goes_on.then(|| waiting(source));
        Poll::Ready(Some(update))
    }
}

impl<S: Updates> fmt::Debug for UpdateStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateStream").field("has_ended", &self.waiting.is_none()).finish()
    }
}

impl Updates for WatchStream {
    type Update = WatchItem;
    type Error = WatchLost;

    async fn next_update(&mut self) -> Result<WatchItem, WatchLost> {
        self.next().await
    }
}
