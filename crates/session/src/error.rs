//! Why a request failed, and why a connection was closed.

use lockkeeper_wire::{DecodeError, ErrorCode, FrameError};

/// Whether a failed request may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It had no effect.
    NotApplied,
    /// It may have been applied, or may be applied later.
    Unknown,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The server answered with an error.
    #[error("{0}")]
    Server(ErrorCode),
    /// The connection was lost before the server replied.
    #[error("the connection was lost before the server replied")]
    ConnectionLost(Outcome),
    /// The request was never sent: no server was reachable for a whole session timeout.
    #[error("no server could be reached for a whole session timeout")]
    Unreachable,
    /// The session has expired; its ephemeral nodes and watches no longer exist.
    #[error("the session has expired")]
    SessionExpired(Outcome),
    /// The program closed the session, or the runtime that drives it has ended.
    #[error("the client is closed, or its runtime has ended")]
    Closed,
    /// The server refused the credentials.
    #[error("the server refused the credentials")]
    AuthFailed(Outcome),
    /// The request is larger than a server accepts.
    #[error("the request takes {len} bytes, but servers accept at most {max} (jute.maxbuffer)")]
    TooLarge {
        /// The size of the request, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// The reply is longer than this client accepts. Only reads fail with this error.
    #[error(
        "the reply takes {len} bytes, but this client accepts at most {max}; raise its \
         `max_frame`, or read less at once"
    )]
    AnswerTooLong {
        /// The size of the reply, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// The request was part of a transaction in which another operation, a delete, was refused.
    #[error("the transaction was rolled back, because the delete in it was refused")]
    Undone,
    /// The request was not sent: it is bound to a lock, and the lock was not known to be held.
    #[error("the request was not sent, because its lock was not known to be held")]
    NotHeld,
    /// The reply does not match the request.
    #[error("the server's reply does not match the request: {0}")]
    BadAnswer(DecodeError),
}

impl RequestError {
    /// Whether the request may have had an effect.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::ConnectionLost(outcome)
            | Self::SessionExpired(outcome)
            | Self::AuthFailed(outcome) => *outcome,
            Self::Server(ErrorCode::OperationTimeout | ErrorCode::ConnectionLoss)
            | Self::BadAnswer(_) => Outcome::Unknown,
            _ => Outcome::NotApplied,
        }
    }

    /// Whether the same request may succeed when it is repeated in the same session.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::ConnectionLost(_) | Self::Unreachable | Self::Undone | Self::NotHeld => true,
            Self::Server(code) => matches!(
                code,
                ErrorCode::ConnectionLoss
                    | ErrorCode::OperationTimeout
                    | ErrorCode::SessionMoved
                    | ErrorCode::ThrottledOp
            ),
            _ => false,
        }
    }
}

/// Why the caller must close the transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// The caller closed the session.
    #[error("the session is closed")]
    Closed,
    /// The server reports that the session has expired.
    #[error("the session expired")]
    SessionExpired,
    /// The server did not accept a new session.
    #[error("the server refuses new sessions")]
    Refused,
    /// The server refused the credentials.
    #[error("the server refused the credentials")]
    AuthFailed,
    /// The server did not rearm the watches, so their watchers would wait forever.
    #[error("the server did not rearm the watches: {0}")]
    Unwatched(ErrorCode),
    /// The server has not sent anything for too long.
    #[error("the server has been silent for too long")]
    Silent,
    /// Replies came so late that no write over this connection can renew a lease that locks depend on in
    /// time. The handshake of another connection can.
    #[error("replies came too late to renew the lease in time")]
    TooLate,
    /// The bytes from the peer are not valid frames.
    #[error("the peer does not speak the ZooKeeper protocol: {0}")]
    Frame(#[from] FrameError),
    /// A frame is not a valid message.
    #[error("the peer does not speak the ZooKeeper protocol: {0}")]
    Message(#[from] DecodeError),
    /// A reply does not belong to the oldest request in flight.
    #[error("unexpected reply: got xid {got}, expected {expected:?}")]
    OutOfOrder {
        /// The xid of the reply.
        got: i32,
        /// The xid of the oldest request in flight.
        expected: Option<i32>,
    },
}
