//! The task that keeps a node in existence, for [`Presence`](crate::Presence) and
//! [`TtlPresence`](crate::TtlPresence).

use lockkeeper_client::retry::{self, Backoff};
use lockkeeper_client::{Client, CreateMode, Error, ZnodePath};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::watch::presence::state::{PresenceError, PresenceState, StateSender};

/// The part of keeping a node in existence that differs between kinds of nodes.
pub(crate) trait KeptNode: Sized + Send + 'static {
    /// Whose node exists, and what shows its end.
    type Seen: Send;

    fn client(&self) -> &Client;

    fn state(&self) -> &StateSender;

    /// Creates the node, if it does not exist, and finds out whose it is.
    fn enter(&mut self) -> impl Future<Output = EnterOutcome<Self::Seen>> + Send;

    /// Returns when the node may be gone or another one.
    fn stay(&mut self, seen: Self::Seen) -> impl Future<Output = Result<(), PresenceError>> + Send;

    /// Returns when a server is reachable again.
    fn reach(&mut self) -> impl Future<Output = ()> + Send;

    /// Waits before the next try of data that seems to be too long for servers.
    fn rest(&mut self) -> impl Future<Output = ()> + Send;

    /// Deletes the node, if it is this presence's, and waits for the confirmation.
    fn end(self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The outcome of an attempt to create a node.
pub(crate) enum EnterOutcome<S> {
    Done(S),
    Again { is_unreachable: Option<Error> },
    Failed(PresenceError),
}

impl<S> EnterOutcome<S> {
    pub(crate) const AGAIN: Self = Self::Again { is_unreachable: None };

    /// An attempt that has failed, for now or permanently.
    pub(crate) fn passing(error: Error) -> Self {
        if error.is_unreachable() {
            return Self::Again { is_unreachable: Some(error) };
        }
        match error.is_retryable() || error.is_session_expired() {
            true => Self::AGAIN,
            false => Self::Failed(error.into()),
        }
    }
}

/// Creates the missing parents of a node.
pub(crate) async fn make_parents<S>(
    client: &Client,
    path: &ZnodePath,
    mode: CreateMode,
) -> EnterOutcome<S> {
    let Some(parent) = path.parent() else { return EnterOutcome::AGAIN };
    match client.ensure(&parent, mode).await {
        Ok(()) => EnterOutcome::AGAIN,
        Err(error) => EnterOutcome::passing(error),
    }
}

/// The task of a started presence. Dropping this stops the task.
#[derive(Debug)]
pub(crate) struct PresenceTask {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl PresenceTask {
    /// Returns when the node exists, or is another program's.
    pub(crate) async fn begin(mut node: impl KeptNode) -> Result<Self, PresenceError> {
        let seen = loop {
            match node.enter().await {
                EnterOutcome::Done(seen) => break seen,
                EnterOutcome::Again { is_unreachable: Some(error) } => return Err(error.into()),
                EnterOutcome::Again { .. } => retry::pause().await,
                EnterOutcome::Failed(error) => return Err(error),
            }
        };
        let (stop, stopped) = oneshot::channel();
        let runtime = node.client().tokio_runtime().clone();
        Ok(Self { stop, task: runtime.spawn(run(node, seen, stopped)) })
    }

    /// Has the node deleted, and waits for the confirmation.
    pub(crate) async fn end(self) -> Result<(), Error> {
        // The task is gone only if it has ended by itself.
        let _ = self.stop.send(());
        // This fails only if the runtime has ended, or the task has panicked: no task keeps the node then.
        self.task.await.unwrap_or(Ok(()))
    }
}

/// Runs until it is stopped. A requested delete is made here, because it must not wait for a caller that is
/// not polled any more.
async fn run<N: KeptNode>(
    mut node: N,
    seen: N::Seen,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Error> {
    let asked = tokio::select! {
        // A fixed order makes simulations reproducible.
        biased;
        asked = stopped => asked,
        error = keep(&mut node, seen) => {
            node.state().tell(PresenceState::Ended(error));
            return Ok(());
        }
    };
    match asked {
        Ok(()) => node.end().await,
        Err(_) => Ok(()),
    }
}

/// Returns why the task cannot continue.
async fn keep<N: KeptNode>(node: &mut N, mut seen: N::Seen) -> PresenceError {
    loop {
        if let Err(error) = node.stay(seen).await {
            return error;
        }

        let mut backoff = Backoff::default();
        seen = loop {
            match node.enter().await {
                EnterOutcome::Done(next) => break next,
                EnterOutcome::Failed(too_long @ PresenceError::TooLong { .. }) => {
                    node.state().tell(PresenceState::Stuck(too_long));
                    node.rest().await;
                }
                EnterOutcome::Failed(error) => return error,
                EnterOutcome::Again { is_unreachable: Some(_) } => node.reach().await,
                EnterOutcome::Again { .. } => backoff.pause().await,
            }
        };
    }
}
