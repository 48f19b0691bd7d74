//! The errors of a client. Their messages say what to do.

use std::time::Duration;

use lockkeeper_session::{Outcome, RequestError};
use lockkeeper_wire::{ErrorCode, OpCode};

use crate::connect_string::Host;

/// A failed operation: the operation, the node, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    op: OpCode,
    path: String,
    reason: RequestError,
}

impl Error {
    pub(crate) fn new(op: OpCode, path: impl Into<String>, reason: RequestError) -> Self {
        Self { op, path: path.into(), reason }
    }

    /// The same error for another node.
    pub(crate) fn at(self, path: String) -> Self {
        Self { path, ..self }
    }

    /// The operation.
    pub fn op(&self) -> OpCode {
        self.op
    }

    /// The node, relative to the client's chroot; may be empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The error code, if a server replied with one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self.reason {
            RequestError::Server(code) => Some(code),
            _ => None,
        }
    }

    /// Whether the operation may have had an effect.
    pub fn outcome(&self) -> Outcome {
        self.reason.outcome()
    }

    /// Whether the same operation may succeed when it is repeated in the same session.
    pub fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }

    /// Whether the session has expired. The client starts a new one automatically; everything that belonged
    /// to the old one is lost.
    pub fn is_session_expired(&self) -> bool {
        matches!(self.reason, RequestError::SessionExpired(_))
    }

    /// Whether no server was reachable for a whole session timeout.
    pub fn is_unreachable(&self) -> bool {
        self.reason == RequestError::Unreachable
    }

    /// Whether the request was not sent because its lock was not known to be held; see
    /// [`bound_to`](crate::bound_to).
    pub fn is_not_held(&self) -> bool {
        self.reason == RequestError::NotHeld
    }

    /// If the request was not sent because it is too large: its size and the limit, in bytes.
    pub fn too_large(&self) -> Option<(usize, usize)> {
        match self.reason {
            RequestError::TooLarge { len, max } => Some((len, max)),
            _ => None,
        }
    }

    /// If the reply is longer than this client accepts: its size and the limit, in bytes.
    pub fn answer_too_long(&self) -> Option<(usize, usize)> {
        match self.reason {
            RequestError::AnswerTooLong { len, max } => Some((len, max)),
            _ => None,
        }
    }

    /// Whether the client is closed: by the program, because the runtime in which it was connected has ended,
    /// or because a server refused its credentials.
    pub fn is_closed(&self) -> bool {
        self.reason == RequestError::Closed
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.op)?;
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        write!(f, ": {}{}", self.reason, Advice(self.advice()))
    }
}

/// A hint that is appended to an error message, unless it is empty.
struct Advice(&'static str);

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; {}", self.0) }
    }
}

/// What to do when a server has refused a request with this code.
fn advice_on(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NoAuth => "show credentials that its access control list allows",
        ErrorCode::InvalidAcl => {
            "show credentials if the list names the creator, and check its schemes and ids"
        }
        ErrorCode::NoNode => "create it, or its parent, first",
        ErrorCode::Unimplemented => "use servers 3.6 or newer",
        ErrorCode::QuotaExceeded => {
            "the server has no room: its disk or its memory is full, or a quota is reached"
        }
        ErrorCode::BadArguments => "check the path, and that a time to live is 1 ms to 34 years",
        _ => "",
    }
}

impl Error {
    fn advice(&self) -> &'static str {
        match &self.reason {
            RequestError::Server(code) => advice_on(*code),
            RequestError::TooLarge { .. } => {
                "write less at once, or raise that limit and `ClientBuilder::max_frame`"
            }
            RequestError::ConnectionLost(Outcome::Unknown) => {
                "it may or may not have been applied: read the node before you retry"
            }
            RequestError::ConnectionLost(Outcome::NotApplied) => "try again",
            RequestError::Unreachable => "check that the servers are running and reachable",
            RequestError::SessionExpired(_) => {
                "the session's locks and watches are lost: acquire them again"
            }
            _ => "",
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// Converts the error "no such node" to `None`.
///
/// # Errors
/// Any other error.
pub fn present<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        result => result.map(Some),
    }
}

/// Why a transaction was not applied, or may not have been applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// An operation failed, so no operation was applied.
    #[error(
        "operation {index} of the transaction, {op:?} {path}, failed: {code}; no operation was applied{}",
        Advice(advice_on(*code))
    )]
    Failed {
        /// The index of the operation, counted from 0.
        index: usize,
        /// The operation.
        op: OpCode,
        /// The node of the operation.
        path: String,
        /// The reason.
        code: ErrorCode,
    },
    /// The transaction as a whole was refused or not answered.
    #[error(transparent)]
    Request(#[from] Error),
}

/// Something is still held, so the client was not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{holds} znodes are still held after {waited:?}, so the client was not closed")]
pub struct StillHeld {
    /// The number of held znodes: at least one per lock.
    pub holds: usize,
    /// The time limit.
    pub waited: Duration,
}

/// Why a client could not connect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string is malformed.
    #[error(transparent)]
    ConnectString(#[from] crate::connect_string::ConnectStringError),
    /// An option has a value with which no session is possible.
    #[error("the {option} is {value}; it must be {range}")]
    OutOfRange {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        range: &'static str,
    },
    /// No server accepted a session in time.
    #[error("no ZooKeeper server reachable: {}", failures(.0))]
    Unreachable(
        /// Every server that was tried, with its last error.
        Vec<(Host, String)>,
    ),
    /// None of the servers speaks the ZooKeeper protocol.
    #[error(
        "no ZooKeeper server answers: {}; check the port, and whether the server requires TLS",
        failures(.0)
    )]
    NotZooKeeper(
        /// Every server that was tried, with what it sent.
        Vec<(Host, String)>,
    ),
    /// The client and the servers do not trust each other's certificates.
    #[error("no ZooKeeper server and this client trust each other: {}", failures(.0))]
    Untrusted(
        /// Every server that was tried, with the reason.
        Vec<(Host, String)>,
    ),
    /// This machine cannot start what a connection needs.
    #[error("cannot start the connection task: {0}")]
    Io(
        /// The reason.
        String,
    ),
    /// The connection string begins with `tls://`, but no trusted root certificates were given.
    #[error(
        "the connection string asks for TLS, but no trusted roots were given: see \
         `ClientBuilder::tls`, which requires the feature `tls` of this library"
    )]
    NoTls,
    /// The server refused the credentials.
    #[error("the server refused the credentials; check their scheme and secret")]
    AuthFailed,
    /// The session timeout that the server granted is too short for a lease.
    #[error(
        "the server granted a session timeout of {granted_ms} ms, too short for an exact lease \
         with this tick; request at least {least_ms} ms, or set the servers' real tick"
    )]
    TimeoutTooShort {
        /// The granted timeout, in milliseconds.
        granted_ms: u64,
        /// The shortest sufficient timeout, in milliseconds.
        least_ms: u64,
    },
}

fn failures(failures: &[(Host, String)]) -> String {
    if failures.is_empty() {
        return "no server answered in time".to_owned();
    }
    let lines: Vec<_> = failures.iter().map(|(host, why)| format!("{host}: {why}")).collect();
    lines.join("; ")
}
