//! Event: what the session reports to its caller.

use lockkeeper_wire::{ErrorCode, Response, SessionId, ZnodePath, Zxid};

use crate::error::RequestError;
use crate::heartbeat::HoldId;
use crate::watch_event::WatchEvent;
use crate::watches::WatchId;

/// Something that the caller of a [`Session`](crate::Session) must know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<T> {
    /// A request is finished.
    Reply {
        /// What the caller passed with the request.
        token: T,
        /// The answer.
        result: Result<Response, RequestError>,
        /// The last transaction that the server had applied when it answered: this request's own,
        /// if it was a write that was applied. Zero if no server answered.
        zxid: Zxid,
    },
    /// A watch fired. A one-shot watch is gone with it.
    Watch {
        /// The watch.
        id: WatchId,
        /// What happened.
        event: WatchEvent,
    },
    /// A persistent watch is about to be armed on a new connection: what happened since the old one
    /// was lost is not told. Comes before any event and any answer of the new connection.
    Rearmed {
        /// The watch.
        id: WatchId,
    },
    /// A server did not arm a persistent watch on a new connection. It is gone.
    NotRearmed {
        /// The watch.
        id: WatchId,
        /// The server's reason.
        code: ErrorCode,
    },
    /// A held node exists no more, although its session lives.
    NodeGone {
        /// The hold that it was.
        id: HoldId,
    },
    /// This client may not check a held node, so it will never be proven again: the hold is over.
    CheckRefused {
        /// The hold that it was.
        id: HoldId,
        /// Its node.
        path: ZnodePath,
        /// The server's reason.
        code: ErrorCode,
    },
    /// A hold was in jeopardy, and its node is proven again.
    HeldAgain {
        /// The hold.
        id: HoldId,
    },
    /// A server accepted the session.
    Connected {
        /// The session.
        session: SessionId,
        /// Whether it is a new one.
        is_new: bool,
    },
    /// The connection was lost; the session may live on.
    Disconnected,
    /// No server has accepted the session for a whole session timeout, and nobody knows whether
    /// it lives. Requests fail at once until one does.
    Unreachable,
    /// The session is over. Its ephemeral nodes, watches, holds and cleanups are gone; the next
    /// connection starts a new one.
    Expired {
        /// The session that is over.
        session: SessionId,
    },
    /// The servers are behind what this session or an earlier one has seen: they were wiped or set back
    /// to older data, or others have taken their place. Whatever goes by numbers of transactions, such
    /// as tokens, begins anew.
    Rewound {
        /// The newest transaction that was seen before.
        seen: Zxid,
        /// The newest one now.
        now: Zxid,
    },
    /// A delete that had to happen was refused for good.
    CleanupRefused {
        /// The node, or the parent of the nodes.
        path: String,
        /// The server's reason.
        code: ErrorCode,
    },
    /// The session is closed, or gave up because of its credentials; nothing will follow.
    Closed,
}
