//! The first message of each side.

use bytes::Bytes;

use crate::codec::record;
use crate::ids::{SessionId, Zxid};

/// The length of a session password, in bytes.
pub const PASSWORD_LEN: usize = 16;

/// The first message of a client. It asks for a new session or resumes an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Always 0.
    pub protocol_version: i32,
    /// The newest transaction that the client has seen. A server that has not applied it refuses the client.
    pub last_zxid_seen: Zxid,
    /// The requested session timeout, in milliseconds.
    pub timeout_ms: i32,
    /// The session to resume, or [`SessionId::NONE`].
    pub session_id: SessionId,
    /// The password of that session, or 16 zero bytes.
    pub password: Bytes,
    /// Whether the client accepts a read-only server. `None`: the client is too old to send the field, and
    /// the reply must omit it too.
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
    /// Asks for a new session, from a client that has not seen a transaction.
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

/// The reply to a [`ConnectRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol_version: i32,
    /// The negotiated session timeout in milliseconds; 0 if the session has expired.
    pub timeout_ms: i32,
    /// The session.
    pub session_id: SessionId,
    /// The password that is needed to resume the session.
    pub password: Bytes,
    /// Whether the server is read-only; present if the request had the field.
    pub read_only: Option<bool>,
}

record!(ConnectResponse { protocol_version, timeout_ms, session_id, password, read_only });

impl ConnectResponse {
    /// The reply to a client whose session has expired or whose password is wrong.
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
