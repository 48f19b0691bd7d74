//! How a presence stands, and why it could not begin or has ended.

use std::sync::Arc;

use lockkeeper_client::{Error, PathError, SessionId, TransactionError, ZnodePath, Zxid};

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
    /// The runtime that kept the node there has ended.
    #[error(
        "the runtime that kept {path} there has ended; keep it running as long as the presence"
    )]
    Stopped {
        /// The node.
        path: ZnodePath,
    },
    /// A request failed for good.
    #[error(transparent)]
    Request(#[from] Error),
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

/// What a [`Presence`](crate::Presence) does when somebody else's node is at its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenTaken {
    /// It waits until the node is gone, and then makes its own.
    #[default]
    Wait,
    /// It ends.
    Fail,
}

/// How an earlier life is known by its data.
pub(crate) type IsOurs = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;
