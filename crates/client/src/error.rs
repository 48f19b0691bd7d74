//! The errors of a client, whose messages say what to do.

use std::time::Duration;

use lockkeeper_session::{Outcome, RequestError};
use lockkeeper_wire::{ErrorCode, OpCode};

use crate::connect_string::Host;

/// An operation that failed: which one, on what, and why.
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

    /// The same, on another node.
    pub(crate) fn at(self, path: String) -> Self {
        Self { path, ..self }
    }

    /// The operation.
    pub fn op(&self) -> OpCode {
        self.op
    }

    /// The node that it was about, seen from the client's chroot; may be empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The error that a server answered, if one did.
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

    /// Whether the same operation may succeed when it is tried again on the same session.
    pub fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }

    /// Whether the session is over. The client starts a new one by itself; what belonged to the
    /// old one is gone.
    pub fn is_session_expired(&self) -> bool {
        matches!(self.reason, RequestError::SessionExpired(_))
    }

    /// Whether no server could be reached for a whole session timeout.
    pub fn is_unreachable(&self) -> bool {
        self.reason == RequestError::Unreachable
    }

    /// Whether it was not sent because the lock that it [belongs to](crate::bound_to) was not known
    /// to be held.
    pub fn is_not_held(&self) -> bool {
        self.reason == RequestError::NotHeld
    }

    /// How many bytes the request would take, and how many may be sent at once, if it was not sent
    /// because it is too large.
    pub fn too_large(&self) -> Option<(usize, usize)> {
        match self.reason {
            RequestError::TooLarge { len, max } => Some((len, max)),
            _ => None,
        }
    }

    /// How many bytes the answer takes, and how many this client takes, if it is longer than that.
    pub fn answer_too_long(&self) -> Option<(usize, usize)> {
        match self.reason {
            RequestError::AnswerTooLong { len, max } => Some((len, max)),
            _ => None,
        }
    }

    /// Whether the client is closed: by this program, as the runtime in which it was connected has ended, or
    /// after a server refused its credentials.
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

/// What to do, behind what has happened; nothing if it is empty.
struct Advice(&'static str);

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; {}", self.0) }
    }
}

/// What to do if a server has refused a request with this code.
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
                "write less at once, or raise that and `ClientBuilder::max_frame`"
            }
            RequestError::ConnectionLost(Outcome::Unknown) => {
                "it may or may not have been applied: look before trying again"
            }
            RequestError::ConnectionLost(Outcome::NotApplied) => "try again",
            RequestError::Unreachable => "check that the servers run and can be reached",
            RequestError::SessionExpired(_) => {
                "locks and watches of the session are gone: acquire them again"
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

/// Turns "no such node" from an error into an answer.
///
/// # Errors
/// Any other error.
pub fn present<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        result => result.map(Some),
    }
}

/// Why a transaction was not applied, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// One operation failed, so none was applied.
    #[error(
        "operation {index} of the transaction, {op:?} {path}, failed: {code}; none was applied{}",
        Advice(advice_on(*code))
    )]
    Failed {
        /// Which operation, counted from 0.
        index: usize,
        /// What it was.
        op: OpCode,
        /// The node that it was about.
        path: String,
        /// Why it failed.
        code: ErrorCode,
    },
    /// The transaction as a whole has no answer, or was refused.
    #[error(transparent)]
    Request(#[from] Error),
}

/// Something is still held, so a client was not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{holds} znodes are still held after {waited:?}, so the client was not closed")]
pub struct StillHeld {
    /// How many znodes are held: at least one for each lock.
    pub holds: usize,
    /// The time that was allowed.
    pub waited: Duration,
}

/// Why no server could be reached at first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string is malformed.
    #[error(transparent)]
    ConnectString(#[from] crate::connect_string::ConnectStringError),
    /// An option of the client has a value that no session could be had with.
    #[error("the {option} is {value}, and can be {range}")]
    OutOfRange {
        /// Which one.
        option: &'static str,
        /// What it is.
        value: String,
        /// What it can be.
        range: &'static str,
    },
    /// No server accepted a session in time.
    #[error("no ZooKeeper server reachable: {}", failures(.0))]
    Unreachable(
        /// Every server that was tried, with what was wrong the last time.
        Vec<(Host, String)>,
    ),
    /// What answers is nowhere a ZooKeeper server.
    #[error(
        "no ZooKeeper server answers: {}; wrong port, or does one of you want TLS?",
        failures(.0)
    )]
    NotZooKeeper(
        /// Every server that was tried, with what it said.
        Vec<(Host, String)>,
    ),
    /// Client and servers do not trust each other's certificates.
    #[error("no ZooKeeper server is trusted, or trusts this client: {}", failures(.0))]
    Untrusted(
        /// Every server that was tried, with what was wrong.
        Vec<(Host, String)>,
    ),
    /// This machine cannot do what is needed for a connection.
    #[error("nothing that could serve a connection can be started: {0}")]
    Io(
        /// Why.
        String,
    ),
    /// The connection string begins with `tls://`, but no root certificates to trust are given.
    #[error(
        "the connection string asks for TLS, but no roots to trust were given: see \
         `ClientBuilder::tls`, which the feature `tls` of this library switches on"
    )]
    NoTls,
    /// The server refused the credentials.
    #[error("the server refused the credentials; check their scheme and secret")]
    AuthFailed,
    /// The session timeout that the server granted leaves no room for a lease.
    #[error(
        "the server granted a session timeout of {granted_ms} ms, too short for an exact lease \
         with this tick; ask for at least {least_ms} ms, or set the servers' real tick"
    )]
    TimeoutTooShort {
        /// What the server granted, in milliseconds.
        granted_ms: u64,
        /// What would do, in milliseconds.
        least_ms: u64,
    },
}

fn failures(failures: &[(Host, String)]) -> String {
    if failures.is_empty() {
        return "none answered in time".to_owned();
    }
    let lines: Vec<_> = failures.iter().map(|(host, why)| format!("{host}: {why}")).collect();
    lines.join("; ")
}
