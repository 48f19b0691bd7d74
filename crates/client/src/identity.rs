//! SessionIdentity: what another process needs to close a session.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::SessionId;

/// A session as its servers know it, for a process that closes it when its owner cannot; see
/// [`ClientBuilder::close_session`](crate::ClientBuilder::close_session).
///
/// The password is secret: anyone with the password can take over the session and its locks.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionIdentity {
    /// The session id.
    pub id: SessionId,
    /// The password that authorizes a client to resume or close the session.
    pub password: Bytes,
    /// The negotiated session timeout. After so much silence the session has expired.
    pub timeout: Duration,
}

lockkeeper_wire::impl_debug! {
    /// The password is left out.
    SessionIdentity, self => id: self.id, timeout: self.timeout
}
