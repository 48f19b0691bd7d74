//! What a persistent watch tells.

use lockkeeper_session::WatchEvent;
use lockkeeper_wire::ErrorCode;

/// Why a watch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WatchLost {
    /// The session that had it is over, or was closed.
    #[error("the watch ended with its session")]
    SessionEnded,
    /// A server did not set it again after a reconnect.
    #[error("a server did not set the watch again after a reconnect: {0}")]
    Refused(ErrorCode),
}

/// What a [`WatchStream`](crate::WatchStream) tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// Something happened to a watched node.
    Event(WatchEvent),
    /// The watch is on a new connection. Servers do not make up for what happened since the old one
    /// was lost: look at the nodes again. Comes before all that is told on the new connection.
    Rearmed,
}
