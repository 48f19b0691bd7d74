//! Output: effects on connections, which are frames to send and closes.

use bytes::Bytes;
use lockkeeper_wire::{DecodeError, SessionId, Zxid};

/// The caller's name for one transport connection; never reused while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// An effect on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes: one or more whole frames, each with its length prefix.
    Send(Bytes),
    /// Close the connection after everything before this was sent. Nothing follows for this
    /// connection, and frames that it still sends are ignored; [`Server::disconnected`] may be
    /// called for it or not.
    ///
    /// [`Server::disconnected`]: crate::Server::disconnected
    Close(CloseReason),
}

/// Why the server closes a connection; its text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client closed its session.
    #[error("the client closed its session")]
    SessionClosed,
    /// The session expired, or the client came back with one that is over.
    #[error("the session is over: it expired, or was closed")]
    SessionExpired,
    /// The client came back with a session that is alive, and not with its password. It gets the same answer
    /// as after [`CloseReason::SessionExpired`].
    #[error("refused a client that showed a wrong password for the session {session}")]
    WrongPassword {
        /// The session, which goes on.
        session: SessionId,
    },
    /// The server stops; its sessions may live on at the next one.
    #[error("the server stops")]
    Stopping,
    /// The client came back on another connection.
    #[error("the client reconnected, and this older connection of its session is of no more use")]
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
    /// A client wants a session while the leases of an earlier server may go on.
    #[error(
        "no session begins for another {} s: clients of the server before this one may still hold \
         locks", .left.as_secs_f64().ceil()
    )]
    Quiet {
        /// For how long that is so still.
        left: std::time::Duration,
    },
    /// As many sessions as [`Config::max_sessions`](crate::Config::max_sessions) are alive.
    #[error("{max} sessions are alive, which is the limit")]
    TooManySessions {
        /// The limit.
        max: usize,
    },
    /// The last places are for clients that come back with a session.
    #[error(
        "refused a new session: the connections that are left are kept for those that come back"
    )]
    PlacesKept,
    /// A client came back with more watches than
    /// [`Config::max_watches`](crate::Config::max_watches). With a part of them it would wait for
    /// events that never come.
    #[error("the client has watches on {count} paths, which is over the limit of {max}")]
    TooManyWatches {
        /// How many paths it watches.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A client came back with watches that weigh more than its share of
    /// [`Config::max_watch_bytes`](crate::Config::max_watch_bytes).
    #[error("the client has watches that weigh {bytes} bytes, over its share of {max} for all")]
    WatchesTooHeavy {
        /// What they weigh, in bytes.
        bytes: usize,
        /// The limit for all connections together.
        max: usize,
    },
    /// One transaction has so many events that this client cannot have all that it watches for; see
    /// [`Config::max_fan_out`](crate::Config::max_fan_out). It gets none of them.
    #[error(
        "a transaction has more events for this client than its share of what one transaction may send \
         to all: it is to come back, and to read again what it watches"
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
    /// The identities that the client has proven are longer, all together, than those of one connection
    /// may be.
    #[error("the identities of the client have {bytes} bytes, which is over the limit of {max}")]
    IdentitiesTooLong {
        /// Their length, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// The first frame was no handshake.
    #[error("the first frame is no ZooKeeper handshake: {0}")]
    BadHandshake(DecodeError),
    /// A frame that is no request.
    #[error("a frame that is no ZooKeeper request: {0}")]
    BadFrame(DecodeError),
    /// A request that no server knows.
    #[error("op code {0} is no ZooKeeper request")]
    UnknownOp(i32),
    /// A frame above [`Config::max_frame`](crate::Config::max_frame).
    #[error("a frame of {len} bytes is over the limit of {max}")]
    FrameTooLong {
        /// The length of the frame's content, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
}

impl CloseReason {
    /// The kind of a refusal, in a word or two: repetitions of one kind say no more than the first. `None`
    /// for everyday ends, which are of interest to whoever debugs.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            // Of the quiet time the log tells once, and each client asks again and again.
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
