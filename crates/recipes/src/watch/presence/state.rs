//! States and errors of presences.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{
    Client, Error, Outcome, PathError, SessionId, TransactionError, ZnodePath, Zxid, impl_failure,
};
use tokio::sync::watch;

use lockkeeper_client::retry::TooLong;

/// The state of a [`Presence`](crate::Presence), as far as known here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PresenceState {
    /// The node exists, and belongs to the current session.
    Present {
        /// The transaction that created it. It grows with each creation.
        czxid: Zxid,
    },
    /// The node does not exist, and is being created.
    Absent,
    /// Another program's node is at the path. The presence waits for its deletion.
    Taken {
        /// Its session; [`SessionId::NONE`] if the node is not ephemeral and stays until it is deleted.
        by: SessionId,
    },
    /// The node does not exist, because servers seem to close the connection at its data
    /// ([`PresenceError::TooLong`]).
    /// The presence tries again every 30 seconds.
    Stuck(PresenceError),
    /// The presence has ended.
    Ended(PresenceError),
}

/// Why a [`Presence`](crate::Presence) could not start, or has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresenceError {
    /// The text is not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The path is `/`, or `/zookeeper` or below it, which the server uses itself.
    #[error("{0} cannot be used for a presence; use another path, such as /workers/7")]
    Reserved(ZnodePath),
    /// Another program's node is at the path, and the presence does not wait for it.
    #[error("{path} is taken by {}", owner_of(*by))]
    Taken {
        /// The node.
        path: String,
        /// Its session; [`SessionId::NONE`] if the node is not ephemeral.
        by: SessionId,
    },
    /// This client already has a presence at the path.
    #[error("this client already has a presence at {path}; end it first, or share it")]
    InUse {
        /// The node.
        path: ZnodePath,
    },
    /// The connection is lost whenever the data is sent. This does not end a presence that has started: see
    /// [`PresenceState::Stuck`].
    #[error(
        "the connection was lost {tries} times in a row when {path} was written with {bytes} bytes of data; \
         servers close it if that is more than they take at once: make it shorter, or raise jute.maxbuffer \
         on all of them"
    )]
    TooLong {
        /// The node.
        path: ZnodePath,
        /// The size of the data.
        bytes: usize,
        /// The number of attempts.
        tries: u32,
    },
    /// The servers do not support nodes with a time to live.
    #[error(
        "{path} needs a time to live, which the servers do not support; enable it with \
         extendedTypesEnabled=true (ZooKeeper) or allow_ttl_nodes (Lockkeeper's engine)"
    )]
    NoTtlNodes {
        /// The node.
        path: ZnodePath,
    },
    /// A server refused the node permanently.
    #[error(transparent)]
    Refused(#[from] TransactionError),
    /// The node is not kept in existence any more: the presence was ended or dropped, the runtime in which its
    /// client was connected has ended, or the closure of `replaces` has panicked.
    #[error(
        "{path} is no longer kept: its presence was ended or dropped, the runtime in which the \
         client was connected has ended, or `replaces` has panicked; start another one, and keep the \
         runtime of its client running"
    )]
    Stopped {
        /// The node.
        path: ZnodePath,
    },
    /// A request failed permanently.
    #[error(transparent)]
    Request(#[from] Error),
}

impl_failure!(PresenceError {
    // The other program, or the other presence of this one, may end.
    Self::Taken { .. } | Self::InUse { .. } => (true, Outcome::NotApplied),
    Self::Refused(error) => (error.is_retryable(), error.outcome()),
    Self::Request(error) => (error.is_retryable(), error.outcome()),
    Self::TooLong { .. } | Self::Stopped { .. } => (false, Outcome::Unknown),
    Self::Path(_) | Self::Reserved(_) | Self::NoTtlNodes { .. } => (false, Outcome::NotApplied),
});

impl PresenceError {
    /// The path, if it is valid for a presence.
    pub(crate) fn check(client: &Client, path: &str) -> Result<ZnodePath, Self> {
        let path = ZnodePath::new(path)?;
        match path.is_root() || client.is_servers_own(&path) {
            true => Err(Self::Reserved(path)),
            false => Ok(path),
        }
    }

    pub(crate) fn too_long(path: &ZnodePath, TooLong { bytes, tries }: TooLong) -> Self {
        Self::TooLong { path: path.clone(), bytes, tries }
    }
}

fn owner_of(session: SessionId) -> String {
    match session {
        SessionId::NONE => {
            "a node that is not ephemeral; delete it if it is unused, or choose another name".into()
        }
        session => format!("the session {session}; wait for its end, or choose another name"),
    }
}

/// Reports the state of a presence. However its task ends, the last state says why.
#[derive(Debug)]
pub(crate) struct StateSender {
    path: ZnodePath,
    state: watch::Sender<PresenceState>,
}

impl StateSender {
    pub(crate) fn new(path: ZnodePath) -> (Self, watch::Receiver<PresenceState>) {
        let (state, changes) = watch::channel(PresenceState::Absent);
        (Self { path, state }, changes)
    }

    /// Reports a state, unless it was reported last.
    pub(crate) fn tell(&self, now: PresenceState) {
        self.state.send_if_modified(|state| {
            let is_new = *state != now;
            *state = now;
            is_new
        });
    }
}

impl Drop for StateSender {
    fn drop(&mut self) {
        self.state.send_if_modified(|state| {
            let is_silent = !matches!(state, PresenceState::Ended(_));
            if is_silent {
                *state = PresenceState::Ended(PresenceError::Stopped { path: self.path.clone() });
            }
            is_silent
        });
    }
}

/// What a [`Presence`](crate::Presence) does when another program's node is at its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenTaken {
    /// It waits until the node is gone, and then creates its own.
    #[default]
    Wait,
    /// It ends.
    Fail,
}

/// The pause before the next try of data that seems to be too long for servers. Each try may cost all users of
/// the client the connection.
pub(crate) const STUCK_PAUSE: Duration = Duration::from_secs(30);

/// Recognises the node of an earlier run by its data.
pub(crate) type IsOurs = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;
