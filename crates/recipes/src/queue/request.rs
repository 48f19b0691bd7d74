//! [`Request`]: an item whose putter waits for an answer.

use std::fmt;
use std::sync::Arc;

use lockkeeper_client::retry::outlast;
use lockkeeper_client::{Cleanup, ZnodePath};
use serde::de::DeserializeOwned;

use crate::queue::answer::{AnswerData, ItemAnswer};
use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::queue::handle::Queue;
use crate::queue::layout::{is_id, new_id};
use crate::queue::options::PutOptions;
use crate::queue::sweep::AT_ONCE;

/// An item that was put by [`Queue::request`]. Dropping it discards the answer, unless it is
/// [kept](PutOptions::keep_answer); the item stays in the queue.
#[must_use = "dropping it discards the answer"]
pub struct Request {
    core: Arc<Core>,
    /// The item's internal id.
    item: String,
    /// The id that its putter has set.
    name: Option<String>,
    node: ZnodePath,
    is_kept: bool,
}

impl<T, D> Queue<T, D> {
    /// Puts an item, and returns a handle that waits for its answer. Costs as much as [`Queue::put`].
    ///
    /// # Errors
    /// As [`Queue::put`].
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// As [`Queue::put`]: the answer of an item that was put is then discarded.
    pub async fn request(&self, value: &T) -> Result<Request, QueueError> {
        self.request_with(value, &PutOptions::new()).await
    }

    /// [`Queue::request`] with options. Costs as much as [`Queue::put_with`].
    ///
    /// # Errors
    /// As [`Queue::put_with`].
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// As [`Queue::request`].
    pub async fn request_with(
        &self,
        value: &T,
        options: &PutOptions,
    ) -> Result<Request, QueueError> {
        self.core.require_own_layout("answers")?;
        let body = self.encode(std::slice::from_ref(value))?;
        let (core, id) = (&self.core, new_id(&self.core.client));
        // Discards the answer if it is unknown whether the item was put, or the caller has gone.
        let request =
            Request::new(core, id.clone(), options.id.clone(), options.keep_answer.is_some());
        core.put_request(&id, &body, options).await?;
        Ok(request)
    }

    /// The request with this id whose answer is [kept](PutOptions::keep_answer); `None` if it is not found. Costs 1
    /// round trip (1 read); for an id that the putter has set, a listing of all answers and 1 for each 100.
    ///
    /// # Errors
    /// As [`Queue::inspect`].
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn find_request(&self, id: &str) -> Result<Option<Request>, QueueError> {
        self.core.require_own_layout("answers")?;
        if !is_id(id) {
            return Ok(None);
        }
        let core = &self.core;
        let kept = |answer: Option<&AnswerData>| answer.is_some_and(|it| it.until.is_some());
        let named = core.places.answer(id);
        let found = core.answers_in(std::slice::from_ref(&named)).await?.pop().flatten();
        if kept(found.as_ref()) {
            return Ok(Some(Request::new(core, id.to_owned(), None, true)));
        }

        // It may be an id that a putter has set, once or more often: the answer that is kept longest is the newest.
        let names = core.names_in(&core.places.answers).await?.unwrap_or_default();
        let mut newest = None;
        for names in names.chunks(AT_ONCE) {
            let nodes: Vec<_> = names.iter().map(|name| core.places.answer(name)).collect();
            for (name, answer) in names.iter().zip(core.answers_in(&nodes).await?) {
                let Some(AnswerData { until: Some(until), name: Some(of), .. }) = answer else {
                    continue;
                };
                if of == id {
                    newest = newest.max(Some((until, name.clone())));
                }
            }
        }
        Ok(newest.map(|(_, item)| Request::new(core, item, Some(id.to_owned()), true)))
    }
}

impl Request {
    fn new(core: &Arc<Core>, item: String, name: Option<String>, is_kept: bool) -> Self {
        let node = core.places.answer(&item);
        Self { core: Arc::clone(core), item, name, node, is_kept }
    }

    /// The id of the item, as [`Item::id`](crate::Item::id).
    pub fn id(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.item)
    }

    /// Waits for the answer: the value given to [`Item::done_with_answer`](crate::Item::done_with_answer), or
    /// `null` if the item was recorded done without one. Costs 1 round trip (1 read) and an event for each note.
    ///
    /// # Errors
    /// [`QueueError::Buried`] if the item is a dead letter, [`QueueError::Cancelled`] if it was cancelled,
    /// [`QueueError::NoAnswer`] if the answer is no longer kept, [`QueueError::Undecodable`] if it cannot be
    /// decoded as `R`.
    ///
    /// # Session loss
    /// Fails with [`QueueError::NoAnswer`], unless the answer is kept.
    ///
    /// # Cancel safety
    /// Safe: call it again. For a time limit, use `tokio::time::timeout`.
    pub async fn answer<R: DeserializeOwned>(&self) -> Result<R, QueueError> {
        loop {
            let (data, mut watcher) = match self.core.client.data_watched(&self.node).await {
                Ok(((data, _), watcher)) => (data, watcher),
                Err(error)
                    if error.code().is_some() || error.is_session_expired() && !self.is_kept =>
                {
                    return Err(self.gone(error));
                }
                Err(error) if error.is_session_expired() => continue,
                Err(error) => {
                    outlast(&self.core.client, &error).await;
                    continue;
                }
            };
            let (path, id) = (self.core.path().clone(), self.id().to_owned());
            match AnswerData::read(&data).map(|data| data.answer) {
                Ok(None | Some(ItemAnswer::Note(_))) => drop(watcher.changed().await),
                Ok(Some(ItemAnswer::Done(value))) => {
                    return serde_json::from_value(value).map_err(|error| {
                        QueueError::Undecodable { path, id, reason: error.to_string() }
                    });
                }
                Ok(Some(ItemAnswer::Dead(reason))) => {
                    return Err(QueueError::Buried { path, id, reason });
                }
                Ok(Some(ItemAnswer::Cancelled)) => return Err(QueueError::Cancelled { path, id }),
                Err(reason) => return Err(QueueError::Undecodable { path, id, reason }),
            }
        }
    }

    /// The last [note](crate::Item::note) of the consumer that works on the item; `None` without a note, or if the
    /// item has ended. Costs 1 round trip (1 read).
    ///
    /// # Errors
    /// [`QueueError::NoAnswer`] if the answer is no longer kept.
    ///
    /// # Session loss
    /// As [`Request::answer`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn note(&self) -> Result<Option<String>, QueueError> {
        let (path, id) = (self.core.path().clone(), self.id().to_owned());
        let data = self.core.data_in(&self.node).await?;
        match AnswerData::read(&data.ok_or(QueueError::NoAnswer { path, id })?) {
            Ok(AnswerData { answer: Some(ItemAnswer::Note(note)), .. }) => Ok(Some(note)),
            _ => Ok(None),
        }
    }

    /// [Cancels](Queue::cancel) the item. Returns whether it was still in the queue. Costs the same.
    ///
    /// # Errors
    /// As [`Queue::cancel`].
    ///
    /// # Session loss
    /// As [`Queue::cancel`].
    ///
    /// # Cancel safety
    /// When dropped, it may be cancelled.
    pub async fn cancel(&self) -> Result<bool, QueueError> {
        self.core.cancel_item(&self.item, self.name.as_deref()).await
    }

    fn gone(&self, error: lockkeeper_client::Error) -> QueueError {
        let (path, id) = (self.core.path().clone(), self.id().to_owned());
        match error.code() {
            None | Some(lockkeeper_client::ErrorCode::NoNode) => QueueError::NoAnswer { path, id },
            Some(_) => QueueError::Client { path: self.node.clone(), source: error },
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_kept {
            self.core.client.clean_up(Cleanup::Node(self.node.clone()));
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", self.node)
    }
}
