//! The first message of each side.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Decoder, Record};
use crate::error::DecodeError;
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

impl Record for ConnectRequest {
    fn encode(&self, out: &mut BytesMut) {
        out.put_i32(self.protocol_version);
        self.last_zxid_seen.encode(out);
        out.put_i32(self.timeout_ms);
        self.session_id.encode(out);
        self.password.encode(out);
        encode_trailing(self.read_only, out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: i32::decode(input)?,
            last_zxid_seen: Zxid::decode(input)?,
            timeout_ms: i32::decode(input)?,
            session_id: SessionId::decode(input)?,
            password: Bytes::decode(input)?,
            read_only: decode_trailing(input)?,
        })
    }
}

impl Record for ConnectResponse {
    fn encode(&self, out: &mut BytesMut) {
        out.put_i32(self.protocol_version);
        out.put_i32(self.timeout_ms);
        self.session_id.encode(out);
        self.password.encode(out);
        encode_trailing(self.read_only, out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: i32::decode(input)?,
            timeout_ms: i32::decode(input)?,
            session_id: SessionId::decode(input)?,
            password: Bytes::decode(input)?,
            read_only: decode_trailing(input)?,
        })
    }
}

fn encode_trailing(flag: Option<bool>, out: &mut BytesMut) {
    if let Some(flag) = flag {
        flag.encode(out);
    }
}

fn decode_trailing(input: &mut Decoder) -> Result<Option<bool>, DecodeError> {
    match input.remaining() {
        0 => Ok(None),
        _ => bool::decode(input).map(Some),
    }
}
