//! The handshake, and what follows it on a new connection: credentials, watches, and the waiting requests.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::{
    AuthRequest, ConnectResponse, Decoder, Record, Request, SessionId, Zxid, xid,
};

use super::{Identity, Phase, RequestedSession, Session};
use crate::config::Credentials;
use crate::error::Disconnect;
use crate::event::Event;
use crate::time::Instant;
use crate::timing::Timing;

/// The maximum size of one request that rearms watches, in bytes; ZooKeeper's own clients use the same. Below
/// the frame limit of every server.
const SET_WATCHES_BYTES: usize = 128 * 1024;

impl<T> Session<T> {
    pub(super) fn handle_handshake(
        &mut self,
        now: Instant,
        (sent, requested): (Instant, RequestedSession),
        frame: Bytes,
    ) -> Result<(), Disconnect> {
        let response = ConnectResponse::decode(&mut Decoder::new(frame))?;
        let resumed = self.identity.id != SessionId::NONE;
        if response.timeout_ms <= 0 || response.session_id == SessionId::NONE {
            if !resumed || requested == RequestedSession::New {
                return Err(Disconnect::Refused);
            }
            self.expire(now);
            return Err(Disconnect::SessionExpired);
        }

        // A server that returns a different session has ended the requested one. After a request for a new
        // session, all servers have refused the old one for longer than it can last.
        let is_new = response.session_id != self.identity.id;
        if is_new && resumed {
            self.expire(now);
        }

        let old_timeout = self.identity.timeout;
        self.accept(response, is_new);
        if !is_new && self.identity.timeout < old_timeout {
            self.lease.shorten(sent + self.timing().lease());
        }
        self.lease.accepted(sent);
        // The start of a session is a committed write; its resumption is not.
        if is_new {
            self.lease.committed(sent, now);
        } else {
            // A hold may have outlasted an outage before `ride_out` was called, without a heartbeat being
            // due.
            self.note_life(now, |lease| lease.answered(sent, now));
        }

        self.events.push_back(Event::Connected { session: self.identity.id, is_new });
        self.resume(now);
        Ok(())
    }

    pub(super) fn accept(&mut self, response: ConnectResponse, is_new: bool) {
        let granted = Duration::from_millis(response.timeout_ms.unsigned_abs().into());
        // After a leader change, a session gets the timeout with which it started. So a longer timeout that
        // is granted later is not reliable.
        let timeout = if is_new { granted } else { granted.min(self.identity.timeout) };
        self.identity = Identity { id: response.session_id, password: response.password, timeout };
        self.phase = Phase::Connected;
        self.history.accepted(is_new);
        // The session has now seen it, as the server that created it had.
        self.floor = Zxid(0);
        self.unreachable = false;
        self.set_timing();
        if is_new {
            self.lease.restart(self.identity.id);
        }
    }

    /// Divides the current session timeout.
    pub(super) fn set_timing(&mut self) {
        let timing = Timing::of(&self.config, self.identity.timeout);
        self.lease.set_timing(timing);
        self.busy_after = timing.slowest_answer();
        self.left_at_heartbeat = timing.left_at_grant();
    }

    /// Brings a new connection up to date: first credentials, then watches, so that no event caused by the
    /// waiting requests is missed; then deletes and the waiting requests, in order.
    pub(super) fn resume(&mut self, now: Instant) {
        for credentials in self.config.credentials.clone() {
            self.send_credentials(now, &credentials);
        }
        for request in self.watches.rearm(self.last_zxid, SET_WATCHES_BYTES) {
            // Servers before 3.6 support neither persistent watches nor `setWatches2`.
            let old = request.persistent.is_empty() && request.persistent_recursive.is_empty();
            let wrap = if old { Request::SetWatches } else { Request::SetWatches2 };
            self.write(now, xid::SET_WATCHES, &wrap(request));
        }
        let rearmed = self.watches.persistent().into_iter();
        self.events.extend(rearmed.map(|id| Event::Rearmed { id }));
        self.send_cleanups(now);
        self.send_waiting(now);
        self.advance_close(now);
    }

    pub(super) fn send_credentials(&mut self, now: Instant, credentials: &Credentials) {
        let request = Request::Auth(AuthRequest {
            kind: 0,
            scheme: credentials.scheme.clone(),
            auth: credentials.secret.clone(),
        });
        self.write(now, xid::AUTH, &request);
    }
}
