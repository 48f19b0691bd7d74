//! The first frame of a connection: it starts a new session, resumes one, or is refused.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, PASSWORD_LEN, Record as _, SessionId, Zxid,
};

use crate::config::Now;
use crate::output::{CloseReason, ConnectionId};
use crate::server::Server;
use crate::sessions::Session;

impl Server {
    pub(crate) fn handshake(&mut self, now: Now, connection: ConnectionId, frame: Bytes) {
        let Some(request) = self.read_handshake(connection, frame) else { return };
        let session = if request.session_id == SessionId::NONE {
            if let Some(reason) = self.refuses_new(now, connection) {
                return self.close(connection, reason);
            }
            Ok(self.open_session(now, &request))
        } else {
            self.resume_session(now, &request)
        };
        match session {
            Ok(session) => self.welcome(connection, session, &request),
            Err(reason) => self.turn_away(connection, &request, reason),
        }
    }

    /// Handles the handshake, or returns why the connection must be closed.
    pub(crate) fn read_handshake(
        &mut self,
        connection: ConnectionId,
        frame: Bytes,
    ) -> Option<ConnectRequest> {
        let request = match ConnectRequest::decode(&mut Decoder::new(frame)) {
            Ok(request) => request,
            Err(error) => {
                self.close(connection, CloseReason::BadHandshake(error));
                return None;
            }
        };
        if request.last_zxid_seen > self.last_zxid {
            let (client, server) = (request.last_zxid_seen, self.last_zxid);
            self.close(connection, CloseReason::ClientAhead { client, server });
            return None;
        }
        Some(request)
    }

    /// Why a new session is refused, if it is. Existing sessions are not affected.
    fn refuses_new(&self, now: Now, connection: ConnectionId) -> Option<CloseReason> {
        let max = self.config.max_sessions;
        if now.monotonic < self.quiet_until {
            return Some(CloseReason::Quiet { left: self.quiet_until - now.monotonic });
        }
        if self.connections.get(&connection).is_some_and(|c| c.only_resumes) {
            return Some(CloseReason::PlacesKept);
        }
        (self.sessions.len() >= max).then_some(CloseReason::TooManySessions { max })
    }

    fn open_session(&mut self, now: Now, request: &ConnectRequest) -> SessionId {
        let stamp = self.next_stamp(now);
        let id = session_id(stamp.zxid);
        let mut password = [0; PASSWORD_LEN];
        self.entropy.fill(&mut password);
        let timeout = self.negotiate(request);
        let session = Session::new(timeout, password);
        self.sessions.insert(now.monotonic, id, session);
        id
    }

    /// The password is checked first: knowing a session's id, which the stat of every ephemeral node shows,
    /// must not be enough to cut off its connection.
    fn resume_session(
        &mut self,
        now: Now,
        request: &ConnectRequest,
    ) -> Result<SessionId, CloseReason> {
        let id = request.session_id;
        let session = self.sessions.get(id).ok_or(CloseReason::SessionExpired)?;
        if !session.has_password(&request.password) {
            return Err(CloseReason::WrongPassword { session: id });
        }
        if let Some(older) = session.connection {
            self.close(older, CloseReason::Reconnected);
        }
        let timeout = self.negotiate(request);
        self.sessions.set_timeout(id, timeout);
        self.sessions.hear_from(now.monotonic, id);
        Ok(id)
    }

    fn negotiate(&mut self, request: &ConnectRequest) -> Duration {
        let wished = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        let (min, max) = (self.config.min_session_timeout, self.config.max_session_timeout);
        let granted = wished.max(min).min(max);
        self.longest_timeout = self.longest_timeout.max(granted);
        granted
    }

    fn welcome(&mut self, connection: ConnectionId, id: SessionId, request: &ConnectRequest) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.connection = Some(connection);
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: session.timeout.as_millis().try_into().unwrap_or(i32::MAX),
            session_id: id,
            password: Bytes::copy_from_slice(&session.password),
            read_only: request.read_only.map(|_| false),
        };
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.session = Some(id);
        }
        self.outbox.frame(connection, |out| response.encode(out));
    }

    /// The reply does not contain the reason: not every client may learn that a session is alive.
    fn turn_away(
        &mut self,
        connection: ConnectionId,
        request: &ConnectRequest,
        reason: CloseReason,
    ) {
        let response = ConnectResponse::expired(request.read_only.map(|_| false));
        self.outbox.frame(connection, |out| response.encode(out));
        self.close(connection, reason);
    }
}

/// A session id is the number of the transaction that creates the session, so ids are never reused, not even
/// after a restart. The highest byte is 1, as for server 1 of an ensemble. This keeps ids distinct from 0 and
/// from the numbers that ZooKeeper uses for containers and TTL nodes.
fn session_id(zxid: Zxid) -> SessionId {
    SessionId(1 << 56 | (zxid.0 & ((1 << 56) - 1)))
}
