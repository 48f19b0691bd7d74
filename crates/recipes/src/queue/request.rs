//! [`Request`]: an item whose putter waits for what comes of it.

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

/// An item that was put by [`Queue::request`]. Dropping it gives the answer up, unless it is
/// [kept](PutOptions::keep_answer); the item stays in the queue.
#[must_use = "dropping it gives the answer up"]
pub struct Request {
    core: Arc<Core>,
    /// The item's own id.
    item: String,
    /// The id that its putter has given it.
    name: Option<String>,
    node: ZnodePath,
    is_kept: bool,
}

impl<T, D> Queue<T, D> {
    /// Puts an item, and gives what waits for its answer. Costs what [`Queue::put`] does.
    ///
    /// # Errors
    /// As [`Queue::put`].
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// As [`Queue::put`]: whatever was put has nobody then who waits for it.
    pub async fn request(&self, value: &T) -> Result<Request, QueueError> {
        self.request_with(value, &PutOptions::new()).await
    }

    /// [`Queue::request`] with options. Costs what [`Queue::put_with`] does.
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
        self.core.only_own("answers")?;
        let body = self.encode(std::slice::from_ref(value))?;
        let (core, id) = (&self.core, new_id(&self.core.client));
        // If nobody knows whether it was put, or asks any more, it is dropped.
        let request =
            Request::new(core, id.clone(), options.id.clone(), options.keep_answer.is_some());
        core.put_request(&id, &body, options).await?;
        Ok(request)
    }

    /// The request with this id whose answer is [kept](PutOptions::keep_answer); `None` if there is none. Costs 1 round
    /// trip (1 read), and with an id of the caller's a listing of all answers and 1 for each 100.
    ///
    /// # Errors
    /// As [`Queue::inspect`].
    ///
    /// # Session loss
    /// Goes on in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn find_request(&self, id: &str) -> Result<Option<Request>, QueueError> {
        self.core.only_own("answers")?;
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

        // It may be the name that a putter has given, once or more often: the answer that is kept longest is the newest.
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

    /// Waits for the answer: what [`Item::done_with_answer`](crate::Item::done_with_answer) was given, or `null` if the
    /// item was recorded done without one. Costs 1 round trip (1 read) and an event for each note.
    ///
    /// # Errors
    /// [`QueueError::Buried`] if the item is a dead letter, [`QueueError::Cancelled`] if it was cancelled,
    /// [`QueueError::NoAnswer`] if the answer is not kept any more, [`QueueError::Undecodable`] if it is no `R`.
    ///
    /// # Session loss
    /// Fails with [`QueueError::NoAnswer`], unless the answer is kept.
    ///
    /// # Cancel safety
    /// Safe: call it again. To wait for some time only, use `tokio::time::timeout`.
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

    /// What whoever works on it has [noted](crate::Item::note) last; `None` if nothing, or if it has ended. Costs 1 round
    /// trip (1 read).
    ///
    /// # Errors
    /// [`QueueError::NoAnswer`] if it is not kept any more.
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

    /// [Cancels](Queue::cancel) the item. Says whether it was still there. Costs what that does.
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
