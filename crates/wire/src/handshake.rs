//! The first message of each side.

use bytes::Bytes;

use crate::codec::record;
use crate::ids::{SessionId, Zxid};

/// The length of a session password, in bytes.
pub const PASSWORD_LEN: usize = 16;

/// What a client sends first: a wish for a new session, or for its old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Always 0.
    pub protocol_version: i32,
    /// The newest transaction that the client has seen; a server that is behind it refuses.
    pub last_zxid_seen: Zxid,
    /// The wished session timeout, in milliseconds.
    pub timeout_ms: i32,
    /// The old session, or [`SessionId::NONE`].
    pub session_id: SessionId,
    /// The old session's password, or 16 zero bytes.
    pub password: Bytes,
    /// Whether a read-only server will do. `None`: a client so old that it does not say, and whose
    /// reply must not say either.
    pub read_only: Option<bool>,
}

record!(ConnectRequest {
    protocol_version,
    last_zxid_seen,
    timeout_ms,
    session_id,
    password,
    read_only,
});

impl ConnectRequest {
    /// The wish of a client that has seen nothing yet for a new session, of so many milliseconds.
    pub fn new_session(timeout_ms: i32) -> Self {
        Self {
            protocol_version: 0,
            last_zxid_seen: Zxid(0),
            timeout_ms,
            session_id: SessionId::NONE,
            password: Bytes::from_static(&[0; PASSWORD_LEN]),
            read_only: Some(false),
        }
    }
}

/// What a server answers to a [`ConnectRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol_version: i32,
    /// The negotiated session timeout in milliseconds; 0 means that the session is over.
    pub timeout_ms: i32,
    /// The session.
    pub session_id: SessionId,
    /// The password that a reconnect must show.
    pub password: Bytes,
    /// Whether the server is read-only; present if the request had the field.
    pub read_only: Option<bool>,
}

record!(ConnectResponse { protocol_version, timeout_ms, session_id, password, read_only });

impl ConnectResponse {
    /// The answer to a client whose session is over, or whose password is wrong.
    pub fn expired(read_only: Option<bool>) -> Self {
        Self {
            protocol_version: 0,
            timeout_ms: 0,
            session_id: SessionId::NONE,
            password: Bytes::from_static(&[0; PASSWORD_LEN]),
            read_only,
        }
    }
}
