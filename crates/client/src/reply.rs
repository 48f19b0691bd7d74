//! Reply and WatchedReply: the futures of replies to requests.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lockkeeper_session::RequestError;
use lockkeeper_wire::{DecodeError, OpCode, Response, ZnodePath, Zxid};
use tokio::sync::oneshot;

use crate::arrival::Arrival;
use crate::error::Error;
use crate::shared::Answer;
use crate::watcher::Watcher;

/// Converts a response, whose paths are below a chroot, to a value. `None` if the response does not match the
/// request.
pub(crate) type Read<T> = fn(Response, Option<&ZnodePath>) -> Option<T>;

/// The reply to a request that has already been queued for sending. Costs one round trip, shared by all
/// requests that are made before the first of their replies.
///
/// Requests are sent in the order in which they are made, whether or not their replies are awaited. To
/// pipeline, make several requests before awaiting the first reply.
///
/// # Errors
/// If the server refuses the request, the connection is lost before the reply arrives, no server is reachable
/// for a whole session timeout, or the client is closed. [`Error::outcome`] returns whether the request may
/// have had an effect.
///
/// # Session loss
/// An unanswered request fails with an error for which [`Error::is_session_expired`] is true. It is not
/// repeated in the next session.
///
/// # Cancel safety
/// Dropping it does not cancel the request.
#[must_use = "the request is sent, but only its reply shows whether it succeeded"]
#[derive(Debug)]
pub struct Reply<T> {
    receiver: oneshot::Receiver<Answer>,
    op: OpCode,
    path: ZnodePath,
    /// The prefix to remove from the paths in the response.
    chroot: Option<ZnodePath>,
    read: Read<T>,
}

impl<T> Reply<T> {
    pub(crate) fn new(
        receiver: oneshot::Receiver<Answer>,
        op: OpCode,
        path: ZnodePath,
        chroot: Option<ZnodePath>,
        read: Read<T>,
    ) -> Self {
        Self { receiver, op, path, chroot, read }
    }

    /// The result, with the last transaction that the server had applied. For a write, that is the write
    /// itself.
    pub(crate) async fn with_zxid(mut self) -> Result<(T, Zxid), Error> {
        let Arrived { result, zxid, .. } = self.arrived().await;
        result.map(|value| (value, zxid))
    }

    /// Waits for the reply as awaiting it does, and returns its position among events and other replies.
    /// Makes no request of its own.
    ///
    /// # Session loss
    /// As [`Reply`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    ///
    /// # Panics
    /// If the reply has already been returned.
    pub async fn arrived(&mut self) -> Arrived<T> {
        let answer = (&mut self.receiver).await.unwrap_or_else(|_| unanswered());
        let (zxid, arrival) = (answer.zxid, answer.arrival);
        Arrived { result: self.finish(answer), zxid, arrival }
    }

    fn finish(&self, answer: Answer) -> Result<T, Error> {
        answer
            .result
            .and_then(|response| (self.read)(response, self.chroot.as_ref()).ok_or(misfit(self.op)))
            .map_err(|reason| Error::new(self.op, self.path.as_str(), reason))
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.receiver).poll(context));
        Poll::Ready(self.finish(answer.unwrap_or_else(|_| unanswered())))
    }
}

/// A well-formed response that does not match this operation.
pub(crate) fn misfit(op: OpCode) -> RequestError {
    RequestError::BadAnswer(DecodeError::MisplacedOp(op.code()))
}

/// The sender is dropped unused only when the driver's runtime has ended.
fn unanswered() -> Answer {
    let (result, zxid) = (Err(RequestError::Closed), Zxid(0));
    Answer { result, zxid, arrival: Arrival::START }
}

/// A reply and its position among events and other replies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrived<T> {
    /// The result.
    pub result: Result<T, Error>,
    /// The last transaction that the server had applied; 0 if no server replied.
    pub zxid: Zxid,
    /// The position.
    pub arrival: Arrival,
}

/// The reply to a request that also sets a watch. Costs the same as a [`Reply`].
///
/// # Errors
/// As [`Reply`]; no watch is set then.
///
/// # Session loss
/// As [`Reply`]. A watch that was set ends with the session; see [`Watcher::changed`].
///
/// # Cancel safety
/// Dropping it removes the watch. The request is sent anyway.
#[must_use = "the watch ends when this is dropped"]
#[derive(Debug)]
pub struct WatchedReply<T> {
    reply: Reply<T>,
    watcher: Option<Watcher>,
}

impl<T> WatchedReply<T> {
    pub(crate) fn new(reply: Reply<T>, watcher: Watcher) -> Self {
        Self { reply, watcher: Some(watcher) }
    }
}

impl<T> Future for WatchedReply<T> {
    type Output = Result<(T, Watcher), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.reply).poll(context));
        let watcher = self.watcher.take();
        Poll::Ready(result.map(|value| (value, watcher.expect("polled after completion"))))
    }
}
