//! Event: what the session reports to its caller.

use lockkeeper_wire::{ErrorCode, Response, SessionId, ZnodePath, Zxid};

use crate::error::RequestError;
use crate::heartbeat::HoldId;
use crate::watch_event::WatchEvent;
use crate::watches::WatchId;

/// An event that the caller of a [`Session`](crate::Session) must handle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<T> {
    /// A request has completed.
    Reply {
        /// The token that the caller passed with the request.
        token: T,
        /// The result.
        result: Result<Response, RequestError>,
        /// The last transaction that the server had applied when it replied. For an applied write, that is
        /// the write itself. Zero if no server replied.
        zxid: Zxid,
    },
    /// A watch fired. A one-shot watch no longer exists then.
    Watch {
        /// The watch.
        id: WatchId,
        /// What happened.
        event: WatchEvent,
    },
    /// A persistent watch is about to be rearmed on a new connection. Changes since the old connection was
    /// lost are not reported. Precedes all events and replies of the new connection.
    Rearmed {
        /// The watch.
        id: WatchId,
    },
    /// A server did not rearm a persistent watch on a new connection. The watch no longer exists.
    NotRearmed {
        /// The watch.
        id: WatchId,
        /// The server's reason.
        code: ErrorCode,
    },
    /// A held node no longer exists, although its session is alive.
    NodeGone {
        /// The hold, which has ended.
        id: HoldId,
    },
    /// This client lacks the permission to check a held node, so the node can never be proven again. The hold
    /// has ended.
    CheckRefused {
        /// The hold, which has ended.
        id: HoldId,
        /// Its node.
        path: ZnodePath,
        /// The server's reason.
        code: ErrorCode,
    },
    /// A hold in jeopardy has been proven again.
    HeldAgain {
        /// The hold.
        id: HoldId,
    },
    /// A server accepted the session.
    Connected {
        /// The session.
        session: SessionId,
        /// Whether the session is new.
        is_new: bool,
    },
    /// The connection was lost. The session may still be alive.
    Disconnected,
    /// No server has accepted the session for a whole session timeout, and it is unknown whether the session
    /// is alive. All waiting requests have failed; each new request waits for a session timeout of its own.
    Unreachable,
    /// The session has expired. Its ephemeral nodes, watches, holds and cleanups no longer exist; the next
    /// connection starts a new session.
    Expired {
        /// The expired session.
        session: SessionId,
    },
    /// The servers are behind what this session or an earlier one has seen: they were wiped, restored from
    /// older data, or replaced by others. Everything that is based on transaction numbers, such as fencing
    /// tokens, starts again from lower values.
    Rewound {
        /// The newest transaction seen before.
        seen: Zxid,
        /// The newest transaction now.
        now: Zxid,
    },
    /// A server permanently refused a delete of a cleanup.
    CleanupRefused {
        /// The path of the node, or of the parent.
        path: String,
        /// The server's reason.
        code: ErrorCode,
    },
    /// The session is closed, or was ended because of its credentials. This is the last event.
    Closed,
}
