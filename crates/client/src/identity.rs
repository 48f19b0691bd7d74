//! SessionIdentity: what another process needs to close a session of this one.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::SessionId;

/// A session as its servers know it, for a process that closes it when its owner cannot: see
/// [`ClientBuilder::close_session`](crate::ClientBuilder::close_session).
///
/// The password is secret: anyone who has it can take the session over, and its locks with it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionIdentity {
    /// The number of the session.
    pub id: SessionId,
    /// What proves to a server that the session is one's own.
    pub password: Bytes,
    /// The session timeout that was negotiated. A session that was silent for so long is over.
    pub timeout: Duration,
}

lockkeeper_wire::impl_debug! {
    /// Without the password.
    SessionIdentity, self => id: self.id, timeout: self.timeout
}
