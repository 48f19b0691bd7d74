//! Term: a leadership that the work of `Election::lead` shares. It ends for all its handles at once.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;

use lockkeeper_client::retry::closed;
use lockkeeper_client::{Client, Instant, Reply};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::acquire::local::SharedHold;
use crate::error::LossReason;
use crate::guard::Guard;
use crate::guard::jeopardy::passed;

/// A leadership whose handles may outlive the work. Dropping the term ends leadership for each of them.
pub(super) struct Term<L: Deref<Target = Guard>> {
    /// Both are `Some` until the end.
    leadership: Option<Arc<L>>,
    hold: Option<SharedHold>,
    /// Ends when the last handle is dropped.
    handles: oneshot::Receiver<Infallible>,
}

/// A resignation in progress.
enum Resigning {
    Sent(Option<Reply<()>>),
    /// It waits for the remaining handles.
    Waiting(JoinHandle<()>),
}

impl<L: Deref<Target = Guard>> Term<L> {
    /// `handles`: its other end is dropped with the leadership.
    pub(super) fn new(
        leadership: L,
        hold: Option<SharedHold>,
        handles: oneshot::Receiver<Infallible>,
    ) -> Self {
        Self { leadership: Some(Arc::new(leadership)), hold, handles }
    }

    pub(super) fn leadership(&self) -> Arc<L> {
        Arc::clone(self.leadership.as_ref().expect("there until the end"))
    }

    /// Ends the term, and waits until a server has confirmed the resignation or cannot do so.
    pub(super) async fn end(mut self, reason: LossReason) {
        match self.resign(reason) {
            // A release that is not confirmed continues in the background.
            Some(Resigning::Sent(Some(answer))) => drop(answer.await),
            Some(Resigning::Waiting(task)) => drop(task.await),
            Some(Resigning::Sent(None)) | None => {}
        }
    }

    fn resign(&mut self, reason: LossReason) -> Option<Resigning> {
        let (leadership, hold) = (self.leadership.take()?, self.hold.take()?);
        let client = leadership.client().clone();
        let election = leadership.path().clone();
        // Each handle reports the loss before another candidate can lead.
        let deadline = leadership.end(reason);
        drop(leadership);

        let (_, empty) = oneshot::channel();
        let mut handles = std::mem::replace(&mut self.handles, empty);
        let is_kept = matches!(handles.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        match deadline {
            Some(deadline) if is_kept => {
                tracing::warn!(
                    %election, %reason,
                    "a handle of the leadership outlives the work: the next candidate leads when the \
                     handle is dropped, or when the last deadline that it reported has passed"
                );
                let runtime = client.tokio_runtime().clone();
                let task = runtime.spawn(resign_later(hold, handles, client, deadline));
                Some(Resigning::Waiting(task))
            }
            _ => Some(Resigning::Sent(hold.give_back())),
        }
    }
}

impl<L: Deref<Target = Guard>> Drop for Term<L> {
    fn drop(&mut self) {
        drop(self.resign(LossReason::Released));
    }
}

/// Keeps the promise made to the handles: no other candidate leads until the deadline that one of them may have
/// read.
async fn resign_later(
    hold: SharedHold,
    handles: oneshot::Receiver<Infallible>,
    client: Client,
    deadline: Instant,
) {
    tokio::select! {
        biased;
        _ = handles => {}
        () = passed(&client, deadline.since(client.now())) => {}
        () = closed(&client) => {}
    }
    if let Some(answer) = hold.give_back() {
        drop(answer.await);
    }
}
