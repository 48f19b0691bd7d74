//! Output: frames to send to connections, and connections to close.

use bytes::Bytes;
use lockkeeper_wire::{DecodeError, SessionId, Zxid};

/// The caller's id of a transport connection. Never reused while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// An effect on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes: one or more complete frames, each with its length prefix.
    Send(Bytes),
    /// Close the connection after everything before this has been sent. This is the last output for the
    /// connection, and further frames from it are ignored; [`Server::disconnected`] may be called for it or
    /// not.
    ///
    /// [`Server::disconnected`]: crate::Server::disconnected
    Close(CloseReason),
}

/// Why the server closes a connection. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client closed its session.
    #[error("the client closed its session")]
    SessionClosed,
    /// The session has expired, or the client tried to resume an expired session.
    #[error("the session has expired or was closed")]
    SessionExpired,
    /// The client tried to resume a live session with a wrong password. It gets the same reply as after
    /// [`CloseReason::SessionExpired`].
    #[error("refused a client that showed a wrong password for the session {session}")]
    WrongPassword {
        /// The session, which stays alive.
        session: SessionId,
    },
    /// The server is stopping. Its sessions may survive on the next one.
    #[error("the server is stopping")]
    Stopping,
    /// The client reconnected on another connection.
    #[error("the client reconnected on a newer connection of the same session")]
    Reconnected,
    /// The client has seen transactions that this server does not have.
    #[error(
        "refused a client that has seen transaction {client}, while this server is only at \
         {server}: the data directory was wiped, or swapped for another or older one. Put the right \
         data directory back, or restore a backup with `lockkeeper engine restore`"
    )]
    ClientAhead {
        /// The newest transaction that the client has seen.
        client: Zxid,
        /// The newest transaction of this server.
        server: Zxid,
    },
    /// A client requested a new session while leases from an earlier server may still be valid.
    #[error(
        "new sessions are refused for another {} s: clients of the previous server may still hold \
         locks", .left.as_secs_f64().ceil()
    )]
    Quiet {
        /// The remaining time.
        left: std::time::Duration,
    },
    /// There are already [`Config::max_sessions`](crate::Config::max_sessions) sessions.
    #[error("{max} sessions are alive, which is the limit")]
    TooManySessions {
        /// The limit.
        max: usize,
    },
    /// The last connections are reserved for clients that resume a session.
    #[error(
        "refused a new session: the connections that are left are kept for those that come back"
    )]
    PlacesKept,
    /// A client reconnected with more watches than [`Config::max_watches`](crate::Config::max_watches). With
    /// only some of them, it would wait for events that never arrive.
    #[error("the client has watches on {count} paths, which is over the limit of {max}")]
    TooManyWatches {
        /// The number of watched paths.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A client reconnected with watches that exceed its share of
    /// [`Config::max_watch_bytes`](crate::Config::max_watch_bytes).
    #[error("the client has watches that weigh {bytes} bytes, over its share of {max} for all")]
    WatchesTooHeavy {
        /// The memory use of the watches, in bytes.
        bytes: usize,
        /// The limit for all connections together.
        max: usize,
    },
    /// One transaction has too many events for this client; see
    /// [`Config::max_fan_out`](crate::Config::max_fan_out). The client gets none of them.
    #[error(
        "a transaction has more events for this client than its fair share; the client must reconnect and \
         read its watched nodes again"
    )]
    TooManyEvents,
    /// The credentials were refused.
    #[error("authentication failed")]
    AuthFailed,
    /// The client has proven more identities than one connection may have.
    #[error("the client has shown credentials for more than {max} identities, which is the limit")]
    TooManyIdentities {
        /// The limit.
        max: usize,
    },
    /// The total length of the client's identities is above the limit for one connection.
    #[error("the identities of the client have {bytes} bytes, which is over the limit of {max}")]
    IdentitiesTooLong {
        /// Their total length, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// The first frame is not a handshake.
    #[error("the first frame is not a ZooKeeper handshake: {0}")]
    BadHandshake(DecodeError),
    /// A frame is not a valid request.
    #[error("a frame is not a ZooKeeper request: {0}")]
    BadFrame(DecodeError),
    /// The op code is not a request.
    #[error("op code {0} is not a ZooKeeper request")]
    UnknownOp(i32),
    /// A frame is longer than [`Config::max_frame`](crate::Config::max_frame).
    #[error("a frame of {len} bytes is over the limit of {max}")]
    FrameTooLong {
        /// The length of the frame's content, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
}

impl CloseReason {
    /// The kind of a refusal, in a word or two: for limiting repetitions. `None` for ordinary ends, which are
    /// useful only for debugging.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            // The log reports the quiet time once, and each client retries repeatedly.
            Self::SessionClosed
            | Self::SessionExpired
            | Self::Reconnected
            | Self::Stopping
            | Self::Quiet { .. } => None,
            Self::WrongPassword { .. } => Some("session password"),
            Self::ClientAhead { .. } => Some("client ahead"),
            Self::TooManySessions { .. } => Some("sessions"),
            Self::TooManyWatches { .. } => Some("watches of a session"),
            Self::WatchesTooHeavy { .. } => Some("watch bytes of a session"),
            Self::PlacesKept => Some("kept places"),
            Self::TooManyEvents => Some("events of a transaction"),
            Self::AuthFailed => Some("authentication"),
            Self::TooManyIdentities { .. } => Some("identities"),
            Self::IdentitiesTooLong { .. } => Some("length of identities"),
            Self::BadHandshake(_) => Some("handshake"),
            Self::BadFrame(_) => Some("frame"),
            Self::UnknownOp(_) => Some("op code"),
            Self::FrameTooLong { .. } => Some("long frame"),
        }
    }
}
