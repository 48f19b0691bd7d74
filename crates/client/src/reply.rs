//! Reply and WatchedReply: the futures of the answers to requests.

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

/// Makes a value of an answer whose paths are below a chroot; `None`: it is not one to the request.
pub(crate) type Read<T> = fn(Response, Option<&ZnodePath>) -> Option<T>;

/// The answer to a request that has already been handed over for sending. Costs one round trip, which is
/// shared by all requests that are made before the first of their answers.
///
/// Requests are sent in the order in which they are made, whether or not their answers are
/// awaited: to pipeline, make several before awaiting the first.
///
/// # Errors
/// If the server refuses the request, the connection is lost before the answer comes, no server can be
/// reached for a whole session timeout, or the client is closed. [`Error::outcome`] tells whether the request
/// may have had an effect.
///
/// # Session loss
/// A request that has no answer yet fails with an error for which [`Error::is_session_expired`] is true. It
/// is not sent again in the next session.
///
/// # Cancel safety
/// Dropping it does not take the request back, which is sent all the same.
#[must_use = "the request is sent, but only the answer tells whether it succeeded"]
#[derive(Debug)]
pub struct Reply<T> {
    receiver: oneshot::Receiver<Answer>,
    op: OpCode,
    path: ZnodePath,
    /// What is to be taken off the paths in the answer.
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

    /// The same, with the last transaction that the server had applied: this request's own, if it
    /// was a write.
    pub(crate) async fn with_zxid(mut self) -> Result<(T, Zxid), Error> {
        let Arrived { result, zxid, .. } = self.arrived().await;
        result.map(|value| (value, zxid))
    }

    /// Waits for the answer as awaiting it does, and tells its place among events and other answers. Makes
    /// no request of its own.
    ///
    /// # Session loss
    /// As [`Reply`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    ///
    /// # Panics
    /// If it has returned the answer before.
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

/// An answer that is well-formed, and not one to this operation.
pub(crate) fn misfit(op: OpCode) -> RequestError {
    RequestError::BadAnswer(DecodeError::MisplacedOp(op.code()))
}

/// The sender goes away unused only when the driver's runtime has ended.
fn unanswered() -> Answer {
    let (result, zxid) = (Err(RequestError::Closed), Zxid(0));
    Answer { result, zxid, arrival: Arrival::START }
}

/// An answer and its place in the order of what a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrived<T> {
    /// The answer.
    pub result: Result<T, Error>,
    /// The last transaction that the server had applied; 0 if no server answered.
    pub zxid: Zxid,
    /// Its place.
    pub arrival: Arrival,
}

/// The answer to a request that also sets a watch. Costs what a [`Reply`] does.
///
/// # Errors
/// As [`Reply`]; then there is no watch.
///
/// # Session loss
/// As [`Reply`]. A watch that was set ends with the session; see [`Watcher::changed`].
///
/// # Cancel safety
/// Dropping it gives up the watch. The request is sent all the same.
#[must_use = "the watch is gone when this is dropped"]
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
