//! The handshake, and what is sent on a new connection after it: credentials, watches, and the
//! requests that wait.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::{
    AuthRequest, ConnectResponse, Decoder, Record, Request, SessionId, Zxid, xid,
};

use super::{AsksFor, Identity, Phase, Session};
use crate::config::Credentials;
use crate::error::Disconnect;
use crate::event::Event;
use crate::time::Instant;
use crate::timing::Timing;

/// ZooKeeper's own clients arm at most this much at a time, so that no request is over the
/// servers' limit. In bytes.
const SET_WATCHES_BYTES: usize = 128 * 1024;

impl<T> Session<T> {
    pub(super) fn handle_handshake(
        &mut self,
        now: Instant,
        (sent, asks_for): (Instant, AsksFor),
        frame: Bytes,
    ) -> Result<(), Disconnect> {
        let response = ConnectResponse::decode(&mut Decoder::new(frame))?;
        let resumed = self.identity.id != SessionId::NONE;
        if response.timeout_ms <= 0 || response.session_id == SessionId::NONE {
            if !resumed || asks_for == AsksFor::New {
                return Err(Disconnect::Refused);
            }
            self.expire(now);
            return Err(Disconnect::SessionExpired);
        }

        // A server that hands out another session than the one asked for has ended that one. One that
        // was asked for a new one has refused the old one, as all have for longer than it can last.
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
        // The start of a session is a committed write, and its resumption is not.
        if is_new {
            self.lease.committed(sent, now);
        } else {
            // A hold may ride out an outage that began before it did, without a heartbeat that is due.
            self.note_life(now, |lease| lease.answered(sent, now));
        }

        self.events.push_back(Event::Connected { session: self.identity.id, is_new });
        self.resume(now);
        Ok(())
    }

    pub(super) fn accept(&mut self, response: ConnectResponse, is_new: bool) {
        let granted = Duration::from_millis(response.timeout_ms.unsigned_abs().into());
        // A leader that starts gives a session the timeout that it began with, so a longer one that
        // is granted later is not to be relied on.
        let timeout = if is_new { granted } else { granted.min(self.identity.timeout) };
        self.identity = Identity { id: response.session_id, password: response.password, timeout };
        self.phase = Phase::Connected;
        self.history.accepted(is_new);
        // The session has seen it now, as the server that began it had.
        self.floor = Zxid(0);
        self.unreachable = false;
        self.set_timing();
        if is_new {
            self.lease.restart(self.identity.id);
        }
    }

    /// Divides the session timeout as it is now.
    pub(super) fn set_timing(&mut self) {
        let timing = Timing::of(&self.config, self.identity.timeout);
        self.lease.set_timing(timing);
        self.busy_after = timing.slowest_answer();
        self.left_at_heartbeat = timing.left_at_grant();
    }

    /// Brings a new connection up to date: identity first, then watches, so that nothing which
    /// the waiting requests cause is missed; then deletes and what waits, in order.
    pub(super) fn resume(&mut self, now: Instant) {
        for credentials in self.config.credentials.clone() {
            self.send_credentials(now, &credentials);
        }
        for request in self.watches.rearm(self.last_zxid, SET_WATCHES_BYTES) {
            // Servers before 3.6 know neither persistent watches nor the second form.
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
