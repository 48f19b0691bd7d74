//! The node of a holder, and its deletion.

use bytes::Bytes;
use lockkeeper_client::{
    Cleanup, Client, Created, Error, NameUse, Reply, SessionId, Stat, ZnodePath,
};

use crate::contender::node::Contender;
use crate::error::{AcquireError, LossReason, ReleaseError};
use crate::guard::state::HolderState;

/// The node of a holder. Dropping it deletes the node.
#[derive(Debug)]
pub(crate) struct OwnedNode {
    pub(crate) client: Client,
    /// The lock's path.
    pub(crate) path: ZnodePath,
    pub(crate) node: Created,
    /// The data that it was created with.
    pub(crate) data: Bytes,
    /// Whether other nodes can have the same name.
    pub(crate) name: NameUse,
    /// The cleanup that deletes the node; `None` if the deletion is left to others.
    pub(crate) cleanup: Option<Cleanup>,
}

impl OwnedNode {
    /// Takes over from a contender at the front.
    pub(crate) fn of(mut contender: Contender) -> Result<Self, AcquireError> {
        let Some(node) = contender.take_node() else { return Err(contender.deleted()) };
        let (client, path) = (contender.client().clone(), contender.path().clone());
        let data = contender.data().clone();
        let cleanup = Some(Cleanup::Node(node.path.clone()));
        Ok(Self { client, path, node, data, name: NameUse::Once, cleanup })
    }

    /// Moves the duty to delete the node to the returned value.
    pub(crate) fn take_duty(&mut self) -> Self {
        let Self { client, path, node, data, name, cleanup } = self;
        Self {
            client: client.clone(),
            path: path.clone(),
            node: node.clone(),
            data: data.clone(),
            name: *name,
            cleanup: cleanup.take(),
        }
    }

    /// Queues the deletion; `None` if there is no node to delete.
    pub(crate) fn begin_deletion(mut self) -> Option<Reply<()>> {
        let cleanup = self.cleanup.take()?;
        // The node is gone with its session.
        let is_there = self.session() == self.client.session_id();
        is_there.then(|| self.client.clean_up_confirmed(cleanup))
    }

    /// The session that the node belongs to.
    pub(crate) fn session(&self) -> SessionId {
        self.node.stat.ephemeral_owner
    }

    /// Whether this is the stat of the node, and not of another one with the same name.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        stat.czxid == self.node.stat.czxid
    }

    /// Whether the node at its path is still this one. Makes no request if no other node can have the same name.
    pub(crate) async fn is_same(&self) -> Result<bool, Error> {
        match self.name {
            NameUse::Once => Ok(true),
            NameUse::Reused(_) | NameUse::Watched(_) => {
                let found = self.client.exists(&self.node.path).await?;
                Ok(found.is_some_and(|stat| self.is(&stat)))
            }
        }
    }
}

impl Drop for OwnedNode {
    fn drop(&mut self) {
        // The node is gone with its session.
        if let Some(cleanup) = self.cleanup.take()
            && self.session() == self.client.session_id()
        {
            self.client.clean_up(cleanup);
        }
    }
}

/// A release in progress.
#[derive(Debug)]
pub(crate) struct Releasing {
    /// The state of the lock at the release.
    pub(crate) state: HolderState,
    /// `None` if there was no node left to delete.
    pub(crate) answer: Option<Reply<()>>,
}

impl Releasing {
    /// Waits until a server has confirmed the release, if the lock was still held.
    pub(crate) async fn confirmed(self) -> Result<(), ReleaseError> {
        match self.state {
            HolderState::Lost(reason) => return Err(ReleaseError::Lost(reason)),
            // Whether it was still held will never be known.
            HolderState::Jeopardy => return Err(ReleaseError::Lost(LossReason::DeadlinePassed)),
            _ => {}
        }

        match self.answer {
            Some(answer) => deleted(answer.await),
            None => Ok(()),
        }
    }
}

/// Interprets the reply to the deletion of a guard's node as the result of the release.
///
/// # Errors
/// If the session was over, or no server has confirmed the deletion.
pub fn deleted(answer: Result<(), Error>) -> Result<(), ReleaseError> {
    answer.map_err(|error| match error.is_session_expired() {
        true => ReleaseError::Lost(LossReason::SessionExpired),
        false => ReleaseError::Unconfirmed(error),
    })
}
