//! How a presence stands, and why it could not begin or has ended.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{
    Client, Error, Outcome, PathError, SessionId, TransactionError, ZnodePath, Zxid, impl_failure,
};
use tokio::sync::watch;

use lockkeeper_client::retry::TooLong;

/// How a [`Presence`](crate::Presence) stands, as far as is known here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PresenceState {
    /// The node is there, and belongs to the present session.
    Present {
        /// The transaction that made it: it grows from one life to the next.
        czxid: Zxid,
    },
    /// The node is not there, and is being made.
    Absent,
    /// Somebody else's node is there. It is waited for to go.
    Taken {
        /// Its session; [`SessionId::NONE`] if it is no ephemeral node, which does not go by itself.
        by: SessionId,
    },
    /// The node is not there, as servers seem to close the connection at its data:
    /// [`PresenceError::TooLong`] in the background. It is tried again every 30 seconds.
    Stuck(PresenceError),
    /// It has ended.
    Ended(PresenceError),
}

/// Why a [`Presence`](crate::Presence) could not begin, or has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresenceError {
    /// The path is not one.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It is `/`, or `/zookeeper` or below it, where the server keeps what is its own.
    #[error("{0} cannot have a presence; name a path of its own for it, like /workers/7")]
    Reserved(ZnodePath),
    /// Somebody else's node is there, and it was not to be waited for.
    #[error("{path} is taken by {}", owner_of(*by))]
    Taken {
        /// The node.
        path: String,
        /// Its session; [`SessionId::NONE`] if it is no ephemeral node.
        by: SessionId,
    },
    /// This client has a presence there already.
    #[error("{path} has a presence of this client already; end that one first, or share it")]
    InUse {
        /// The node.
        path: ZnodePath,
    },
    /// Servers close the connection whenever the data comes. This ends no presence that has begun: see
    /// [`PresenceState::Stuck`].
    #[error(
        "the connection was lost {tries} times in a row when {path} was written with {bytes} bytes of data; \
         servers close it if that is more than they take at once: make it shorter, or raise jute.maxbuffer \
         on all of them"
    )]
    TooLong {
        /// The node.
        path: ZnodePath,
        /// How long the data is.
        bytes: usize,
        /// How often it was tried.
        tries: u32,
    },
    /// The servers keep no nodes with a time to live.
    #[error(
        "{path} needs a time to live, which the servers do not offer: ZooKeeper does with \
         extendedTypesEnabled=true, Lockkeeper's engine with allow_ttl_nodes"
    )]
    NoTtlNodes {
        /// The node.
        path: ZnodePath,
    },
    /// A server refused the node for good.
    #[error(transparent)]
    Refused(#[from] TransactionError),
    /// Nothing keeps the node there any more: the presence was ended or dropped, the runtime in which its
    /// client was connected has ended, or the closure of `replaces` has panicked.
    #[error(
        "nothing keeps {path} there any more: its presence was ended or dropped, the runtime in which the \
         client was connected has ended, or `replaces` has panicked; start another one, and keep the \
         runtime of its client running"
    )]
    Stopped {
        /// The node.
        path: ZnodePath,
    },
    /// A request failed for good.
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
    /// The path, if a presence can be there.
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
            "a node that goes with no session; delete it if nobody needs it, or choose another name"
                .into()
        }
        session => format!("the session {session}; wait for its end, or choose another name"),
    }
}

/// Tells how a presence stands, for the task that keeps it. However that ends, the last state says so.
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

    /// Tells a state, unless it was told last.
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

/// What a [`Presence`](crate::Presence) does when somebody else's node is at its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenTaken {
    /// It waits until the node is gone, and then makes its own.
    #[default]
    Wait,
    /// It ends.
    Fail,
}

/// The pause before the next try of data that seems to be too long for servers. Each may cost everybody who
/// uses the client the connection.
pub(crate) const STUCK_PAUSE: Duration = Duration::from_secs(30);

/// How an earlier life is known by its data.
pub(crate) type IsOurs = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;
