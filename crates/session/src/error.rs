//! Why a request failed, and why a connection was given up.

use lockkeeper_wire::{DecodeError, ErrorCode, FrameError};

/// Whether a failed request may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It had none.
    NotApplied,
    /// It may have been applied, or may still be.
    Unknown,
}

/// Why a request has no answer, or an answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The server answered with an error.
    #[error("{0}")]
    Server(ErrorCode),
    /// The connection was lost after the request was sent and before its answer came.
    #[error("the connection was lost before an answer came")]
    ConnectionLost(Outcome),
    /// The request was never sent: no server could be reached for a whole session timeout.
    #[error("no server could be reached for a whole session timeout")]
    Unreachable,
    /// The session is over, and with it all its ephemeral nodes and watches.
    #[error("the session expired")]
    SessionExpired(Outcome),
    /// The session was closed by this program, or nothing in this program moves it on any more.
    #[error("the client is closed, or the runtime in which it was connected has ended")]
    Closed,
    /// The server refused the credentials.
    #[error("the server refused the credentials")]
    AuthFailed(Outcome),
    /// The request is larger than a server takes.
    #[error(
        "the request takes {len} bytes, more than the {max} that a server takes (jute.maxbuffer)"
    )]
    TooLarge {
        /// What it would take, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// The answer is longer than this client takes. Only reads fail so.
    #[error(
        "the answer takes {len} bytes, more than the {max} that this client takes; raise its \
         `max_frame`, or read less at once"
    )]
    AnswerTooLong {
        /// What it takes, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// It went into one transaction with a delete that was refused.
    #[error("it was undone together with the delete before it")]
    Undone,
    /// It was not sent: it belongs to a lock which, at that moment, was not known to be held.
    #[error("it was not sent, because the lock that it belongs to was not known to be held")]
    NotHeld,
    /// The answer does not fit the request.
    #[error("the server's answer does not fit the request: {0}")]
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

    /// Whether the same request may succeed when it is tried again on the same session.
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
    /// The session was closed, as the caller wished.
    #[error("the session is closed")]
    Closed,
    /// The server says that the session is over.
    #[error("the session expired")]
    SessionExpired,
    /// The server did not accept a new session.
    #[error("the server refuses new sessions")]
    Refused,
    /// The server refused the credentials.
    #[error("the server refused the credentials")]
    AuthFailed,
    /// The server did not arm the watches again, so their watchers would wait for ever.
    #[error("the server does not arm watches again: {0}")]
    Unwatched(ErrorCode),
    /// The server has been silent for too long.
    #[error("the server has been silent for too long")]
    Silent,
    /// Answers came so late that over this connection nothing could prove a lease in time on which locks
    /// depend. The handshake of another connection can.
    #[error("answers came so late that the lease could not be proven in time")]
    TooLate,
    /// The peer's bytes are not frames.
    #[error("the peer does not speak the ZooKeeper protocol: {0}")]
    Frame(#[from] FrameError),
    /// A frame is not the message that it should be.
    #[error("the peer does not speak the ZooKeeper protocol: {0}")]
    Message(#[from] DecodeError),
    /// A reply to a request that was not sent, or not yet.
    #[error("a reply with xid {got}, where {expected:?} was due")]
    OutOfOrder {
        /// The xid of the reply.
        got: i32,
        /// The xid of the oldest request without a reply.
        expected: Option<i32>,
    },
}
