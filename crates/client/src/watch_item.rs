//! The items of a persistent watch.

use lockkeeper_session::WatchEvent;
use lockkeeper_wire::ErrorCode;

/// Why a watch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WatchLost {
    /// The session of the watch has expired, or was closed.
    #[error("the watch ended with its session")]
    SessionEnded,
    /// A server did not rearm the watch after a reconnect.
    #[error("a server did not rearm the watch after a reconnect: {0}")]
    Refused(ErrorCode),
}

/// An item of a [`WatchStream`](crate::WatchStream).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// A watched node changed.
    Event(WatchEvent),
    /// The watch was rearmed on a new connection. Changes since the old connection was lost are not reported:
    /// read the nodes again. Precedes all events of the new connection.
    Rearmed,
}
