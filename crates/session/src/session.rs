//! The session: one client's relation to a service, over as many connections as it takes.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    AuthRequest, ConnectRequest, ConnectResponse, Decoder, ErrorCode, OpCode, PASSWORD_LEN, Record,
    RemoveWatchesRequest, ReplyHeader, Request, Response, SessionId, WatchEvent, ZnodePath, Zxid,
    split_frame, write_frame, xid,
};

use crate::cleanup::{CleanupQueue, Entry};
use crate::config::{heartbeat_interval, ping_interval, silence_limit};
use crate::heartbeat::Heartbeat;
use crate::lease::Lease;
use crate::requests::{Origin, Queued, Sent, set_watch_flag, watched_path};
use crate::watches::{Removal, Watches};
use crate::{
    Cleanup, Config, Credentials, Disconnect, Event, HoldId, Instant, LeaseMode, LeaseState,
    Outcome, RequestError, WatchId, WatchKind,
};

/// ZooKeeper's own clients arm at most this much at a time, so that no request is over the
/// servers' limit. In bytes.
const SET_WATCHES_BYTES: usize = 128 * 1024;

/// How a session stands with its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contact {
    /// A server has accepted the session.
    Connected,
    /// No server has it now; requests wait.
    Disconnected,
    /// None has had it for a whole session timeout; requests fail at once.
    Unreachable,
    /// It is closed for good.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No transport.
    Idle,
    /// The handshake is on its way.
    Handshaking { since: Instant },
    /// Requests flow.
    Connected,
    /// Nothing will happen any more.
    Closed,
}

#[derive(Clone, Debug)]
struct Identity {
    id: SessionId,
    password: Bytes,
    timeout: Duration,
}

/// A client's session.
///
/// `T` is what the caller passes with a request and gets back with the answer. One request is
/// answered by exactly one [`Event::Reply`], always.
#[derive(Clone, Debug)]
pub struct Session<T> {
    config: Config,
    phase: Phase,
    /// The last moment at which a server had the session, or the session was made.
    contact_lost: Instant,
    unreachable: bool,
    closing: bool,
    identity: Identity,
    last_zxid: Zxid,
    next_xid: i32,
    queued: VecDeque<Queued<T>>,
    in_flight: VecDeque<Sent<T>>,
    pings: VecDeque<Instant>,
    last_sent: Instant,
    last_received: Instant,
    lease: Lease,
    watches: Watches,
    heartbeat: Heartbeat,
    cleanup: CleanupQueue<T>,
    output: BytesMut,
    events: VecDeque<Event<T>>,
}

impl<T> Session<T> {
    /// A session that no server knows yet.
    pub fn new(config: Config, now: Instant) -> Self {
        let identity = Identity::none(config.session_timeout);
        Self {
            config,
            phase: Phase::Idle,
            contact_lost: now,
            unreachable: false,
            closing: false,
            identity,
            last_zxid: Zxid(0),
            next_xid: 1,
            queued: VecDeque::new(),
            in_flight: VecDeque::new(),
            pings: VecDeque::new(),
            last_sent: now,
            last_received: now,
            lease: Lease::default(),
            watches: Watches::default(),
            heartbeat: Heartbeat::default(),
            cleanup: CleanupQueue::default(),
            output: BytesMut::new(),
            events: VecDeque::new(),
        }
    }

    // ----- what the caller asks ---------------------------------------------------------------

    /// How the session stands with its servers.
    pub fn contact(&self) -> Contact {
        match self.phase {
            Phase::Connected => Contact::Connected,
            Phase::Closed => Contact::Closed,
            _ if self.unreachable => Contact::Unreachable,
            _ => Contact::Disconnected,
        }
    }

    /// The session's identity; [`SessionId::NONE`] before the first connection and after an
    /// expiry.
    pub fn id(&self) -> SessionId {
        self.identity.id
    }

    /// The negotiated session timeout, or the wished one before the first connection.
    pub fn timeout(&self) -> Duration {
        self.identity.timeout
    }

    /// Until when no server can have expired the session.
    pub fn lease(&self) -> LeaseState {
        self.lease.state()
    }

    /// What the caller decided.
    pub fn config(&self) -> &Config {
        &self.config
    }

    // ----- what the caller wants --------------------------------------------------------------

    /// Sends a request, or queues it until a server can be reached; for a session timeout at most.
    pub fn submit(&mut self, now: Instant, request: Request, token: T) {
        self.submit_request(now, Queued { request, token, watch: None });
    }

    /// The same for a request that sets a watch. The watch exists when the request has been
    /// answered without an error (a missing node is none if `kind` is [`WatchKind::Exists`]).
    pub fn submit_watching(
        &mut self,
        now: Instant,
        request: Request,
        kind: WatchKind,
        token: T,
    ) -> WatchId {
        let path = watched_path(&request).unwrap_or_default().to_owned();
        let id = self.watches.add(path, kind);
        self.submit_request(now, Queued { request, token, watch: Some(id) });
        id
    }

    /// Forgets a watch, and has the server forget it if nobody else on this session needs it.
    pub fn unwatch(&mut self, now: Instant, id: WatchId) {
        let Some(Removal { path, kind }) = self.watches.remove(id) else {
            return;
        };
        if self.phase == Phase::Connected {
            let removal = RemoveWatchesRequest { path, kind: kind.code() };
            self.send(now, Request::RemoveWatches(removal), Origin::Nobody, None);
        }
    }

    /// Begins to prove that the node exists and the session lives, with a committed write every
    /// third of the timeout. Under [`LeaseMode::Direct`] nothing is sent: pings prove the session.
    pub fn hold(&mut self, now: Instant, path: ZnodePath) -> HoldId {
        let due = now + heartbeat_interval(self.identity.timeout);
        self.heartbeat.hold(path, (self.config.lease == LeaseMode::Quorum).then_some(due))
    }

    /// Ends a hold.
    pub fn unhold(&mut self, id: HoldId) {
        self.heartbeat.release(id);
    }

    /// Deletes something before the session ends, over as many connections as it takes. The
    /// `notify` token is answered when it is certain.
    pub fn clean_up(&mut self, now: Instant, target: Cleanup, notify: Option<T>) {
        let entry = Entry { target, notify };
        if self.phase == Phase::Closed {
            return self.answer(entry.notify, Err(RequestError::Closed));
        }
        self.cleanup.push(entry);
        if self.phase == Phase::Connected {
            self.send_cleanups(now);
        }
    }

    /// Shows credentials to this and every later server.
    pub fn authenticate(&mut self, now: Instant, credentials: Credentials) {
        if self.phase == Phase::Connected {
            self.send_credentials(now, &credentials);
        }
        self.config.credentials.push(credentials);
    }

    /// Ends the session: first what has been submitted and what must be cleaned up, then the
    /// session itself, then [`Event::Closed`].
    pub fn close(&mut self, now: Instant) {
        self.closing = true;
        self.advance_close(now);
    }

    // ----- what happened ----------------------------------------------------------------------

    /// A transport to a server is there. The handshake is the first thing to transmit.
    pub fn handle_connected(&mut self, now: Instant) {
        if self.phase == Phase::Closed {
            return;
        }
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid,
            timeout_ms: millis(self.config.session_timeout),
            session_id: self.identity.id,
            password: self.identity.password.clone(),
            read_only: Some(false),
        };
        self.output.clear();
        write_frame(&mut self.output, |out| request.encode(out));
        self.phase = Phase::Handshaking { since: now };
        (self.last_sent, self.last_received) = (now, now);
    }

    /// Bytes came from the server. Whole frames are taken from the front of `input`; the rest must
    /// be there again, with what follows, at the next call. A new transport begins with an empty
    /// buffer.
    ///
    /// # Errors
    /// Why the caller must close the transport and call [`Session::handle_disconnected`].
    pub fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Disconnect> {
        while let Some(frame) = split_frame(input, self.config.max_frame)? {
            self.last_received = now;
            match self.phase {
                Phase::Handshaking { since } => self.handle_handshake(now, since, frame)?,
                Phase::Connected => self.handle_message(now, frame)?,
                Phase::Idle | Phase::Closed => {}
            }
        }
        Ok(())
    }

    /// The transport is gone.
    pub fn handle_disconnected(&mut self, now: Instant) {
        let was_connected = self.phase == Phase::Connected;
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Idle;
        self.output.clear();
        self.pings.clear();
        self.heartbeat.disconnected(now);
        self.fail_in_flight(RequestError::ConnectionLost);
        if was_connected {
            self.contact_lost = now;
            self.events.push_back(Event::Disconnected);
        }
        self.advance_close(now);
    }

    /// The time that [`Session::poll_timeout`] named has come.
    ///
    /// # Errors
    /// Why the caller must close the transport and call [`Session::handle_disconnected`].
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Disconnect> {
        let timeout = self.identity.timeout;
        match self.phase {
            Phase::Closed => {}
            Phase::Idle => self.check_contact(now),
            Phase::Handshaking { since } => {
                self.check_contact(now);
                if now.since(since) >= timeout / 3 {
                    return Err(Disconnect::Silent);
                }
            }
            Phase::Connected => {
                if now.since(self.last_received) >= silence_limit(timeout) {
                    return Err(Disconnect::Silent);
                }
                if self.heartbeat.due().is_some_and(|due| due <= now) {
                    self.send_heartbeat(now);
                }
                self.send_cleanups(now);
                if now.since(self.last_sent) >= ping_interval(timeout) {
                    self.send_ping(now);
                }
            }
        }
        Ok(())
    }

    // ----- what came of it --------------------------------------------------------------------

    /// Takes the bytes to transmit, if there are any.
    pub fn poll_transmit(&mut self) -> Option<BytesMut> {
        (!self.output.is_empty()).then(|| self.output.split())
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event<T>> {
        self.events.pop_front()
    }

    /// When [`Session::handle_timeout`] is to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timeout = self.identity.timeout;
        let contact = (!self.unreachable).then_some(self.contact_lost + timeout);
        match self.phase {
            Phase::Closed => None,
            Phase::Idle => contact,
            Phase::Handshaking { since } => earliest(contact, Some(since + timeout / 3)),
            Phase::Connected => {
                let ping = self.last_sent + ping_interval(timeout);
                let silence = self.last_received + silence_limit(timeout);
                earliest(self.heartbeat.due(), Some(ping.min(silence)))
            }
        }
    }

    // ----- the handshake ----------------------------------------------------------------------

    fn handle_handshake(
        &mut self,
        now: Instant,
        sent: Instant,
        frame: Bytes,
    ) -> Result<(), Disconnect> {
        let response = ConnectResponse::decode(&mut Decoder::new(frame))?;
        let resumed = self.identity.id != SessionId::NONE;
        if response.timeout_ms <= 0 || response.session_id == SessionId::NONE {
            if !resumed {
                return Err(Disconnect::Refused);
            }
            self.expire(now);
            return Err(Disconnect::SessionExpired);
        }
        // A server that hands out another session than the one asked for has ended that one.
        let is_new = response.session_id != self.identity.id;
        if is_new && resumed {
            self.expire(now);
        }
        self.accept(response, is_new);
        if is_new {
            self.lease.committed(sent, now);
        } else {
            self.lease.answered(sent, now);
        }
        self.events.push_back(Event::Connected { session: self.identity.id, is_new });
        self.resume(now);
        Ok(())
    }

    fn accept(&mut self, response: ConnectResponse, is_new: bool) {
        let timeout = Duration::from_millis(response.timeout_ms.unsigned_abs().into());
        self.identity = Identity { id: response.session_id, password: response.password, timeout };
        self.phase = Phase::Connected;
        self.unreachable = false;
        self.lease.set_terms(
            self.config.lease,
            self.config.lease_length(timeout),
            self.config.lease_margin(timeout),
        );
        if is_new {
            self.lease.restart(self.identity.id);
        }
    }

    /// Brings a new connection up to date: identity first, then watches, so that nothing which
    /// the waiting requests cause is missed; then deletes, then what waits.
    fn resume(&mut self, now: Instant) {
        for credentials in self.config.credentials.clone() {
            self.send_credentials(now, &credentials);
        }
        for request in self.watches.rearm(self.last_zxid, SET_WATCHES_BYTES) {
            // Servers before 3.6 know neither persistent watches nor the second form.
            let old = request.persistent.is_empty() && request.persistent_recursive.is_empty();
            let wrap = if old { Request::SetWatches } else { Request::SetWatches2 };
            self.write(now, xid::SET_WATCHES, &wrap(request));
        }
        self.send_cleanups(now);
        for queued in std::mem::take(&mut self.queued) {
            self.submit_request(now, queued);
        }
        self.advance_close(now);
    }

    fn send_credentials(&mut self, now: Instant, credentials: &Credentials) {
        let request = Request::Auth(AuthRequest {
            kind: 0,
            scheme: credentials.scheme.clone(),
            auth: credentials.secret.clone(),
        });
        self.write(now, xid::AUTH, &request);
    }

    // ----- messages of the server -------------------------------------------------------------

    fn handle_message(&mut self, now: Instant, frame: Bytes) -> Result<(), Disconnect> {
        let mut input = Decoder::new(frame);
        let header = ReplyHeader::decode(&mut input)?;
        self.last_zxid = self.last_zxid.max(header.zxid);
        match header.xid {
            xid::NOTIFICATION => self.handle_watch_event(&WatchEvent::decode(&mut input)?),
            xid::PING => {
                if let Some(sent) = self.pings.pop_front() {
                    self.lease.answered(sent, now);
                }
            }
            xid::AUTH if header.error != 0 => {
                self.finish(&RequestError::AuthFailed);
                return Err(Disconnect::AuthFailed);
            }
            xid::AUTH | xid::SET_WATCHES => {}
            _ => return self.handle_reply(now, header, input),
        }
        Ok(())
    }

    fn handle_watch_event(&mut self, event: &WatchEvent) {
        for id in self.watches.fire(event) {
            self.events.push_back(Event::Watch { id, event: event.clone() });
        }
    }

    fn handle_reply(
        &mut self,
        now: Instant,
        header: ReplyHeader,
        mut body: Decoder,
    ) -> Result<(), Disconnect> {
        let expected = self.in_flight.front().map(|sent| sent.xid);
        if expected != Some(header.xid) {
            return Err(Disconnect::OutOfOrder { got: header.xid, expected });
        }
        let Some(sent) = self.in_flight.pop_front() else {
            return Ok(());
        };
        let (result, fault) = match ErrorCode::from_code(header.error) {
            Some(ErrorCode::SessionExpired) => {
                (Err(RequestError::SessionExpired(Outcome::NotApplied)), None)
            }
            Some(code) => (Err(RequestError::Server(code)), None),
            None => match Response::decode(sent.op, &mut body) {
                Ok(response) => (Ok(response), None),
                Err(fault) => (Err(RequestError::BadAnswer(fault.clone())), Some(fault)),
            },
        };
        if sent.proves_commit(&result) {
            self.lease.committed(sent.at, now);
        } else if fault.is_none() {
            self.lease.answered(sent.at, now);
        }
        if let Some(id) = sent.watch {
            self.settle_watch(id, sent.op, &result);
        }
        let closed = matches!(sent.origin, Origin::Close);
        self.settle(now, sent.origin, result);
        self.advance_close(now);
        match fault {
            Some(fault) => Err(Disconnect::Message(fault)),
            None if closed => Err(Disconnect::Closed),
            None => Ok(()),
        }
    }

    fn settle_watch(&mut self, id: WatchId, op: OpCode, result: &Result<Response, RequestError>) {
        match result {
            Ok(_) => self.watches.arm(id, false),
            Err(RequestError::Server(ErrorCode::NoNode)) if op == OpCode::Exists => {
                self.watches.arm(id, true);
            }
            Err(_) => drop(self.watches.remove(id)),
        }
    }

    fn settle(&mut self, now: Instant, origin: Origin<T>, result: Result<Response, RequestError>) {
        match origin {
            Origin::Caller(token) => self.answer(Some(token), result),
            Origin::Heartbeat => self.settle_heartbeat(now, result),
            Origin::Cleanup(entry) => self.settle_cleanup(now, entry, result),
            Origin::Close => self.finish(&RequestError::Closed),
            Origin::Nobody => {}
        }
    }

    fn settle_heartbeat(&mut self, now: Instant, result: Result<Response, RequestError>) {
        match result {
            Ok(Response::Multi(results)) => {
                for id in self.heartbeat.answered(&results, now) {
                    self.events.push_back(Event::NodeGone { id });
                }
            }
            _ => self.heartbeat.failed(),
        }
    }

    fn settle_cleanup(
        &mut self,
        now: Instant,
        entry: Entry<T>,
        result: Result<Response, RequestError>,
    ) {
        self.cleanup.finish();
        match (&entry.target, result) {
            (_, Ok(Response::Empty) | Err(RequestError::Server(ErrorCode::NoNode))) => {
                self.answer(entry.notify, Ok(Response::Empty));
            }
            (Cleanup::Child { parent, prefix }, Ok(Response::Names(names))) => {
                let (parent, prefix) = (parent.clone(), prefix.clone());
                let ours = names.iter().filter(|name| name.starts_with(&prefix));
                let nodes: Vec<_> = ours.filter_map(|name| parent.child(name).ok()).collect();
                self.delete_found(now, nodes, entry.notify);
            }
            // The session's end is certain only when a handshake says so.
            (_, Err(RequestError::SessionExpired(_))) => self.cleanup.push(entry),
            (_, Err(error)) if error.is_retryable() => self.cleanup.push(entry),
            (target, result) => {
                let error = result.err().unwrap_or(RequestError::Closed);
                if let RequestError::Server(code) = error {
                    let path = target.path().to_string();
                    self.events.push_back(Event::CleanupRefused { path, code });
                }
                self.answer(entry.notify, Err(error));
            }
        }
    }

    /// Deletes the nodes that a listing showed; there is at most one, as each attempt has a
    /// prefix of its own.
    fn delete_found(&mut self, now: Instant, nodes: Vec<ZnodePath>, mut notify: Option<T>) {
        if nodes.is_empty() {
            return self.answer(notify, Ok(Response::Empty));
        }
        for node in nodes {
            self.cleanup.push(Entry { target: Cleanup::Node(node), notify: notify.take() });
        }
        self.send_cleanups(now);
    }

    // ----- sending ----------------------------------------------------------------------------

    fn submit_request(&mut self, now: Instant, queued: Queued<T>) {
        let refusal = match self.contact() {
            Contact::Closed => Some(RequestError::Closed),
            _ if self.closing => Some(RequestError::Closed),
            Contact::Unreachable => Some(RequestError::Unreachable),
            Contact::Disconnected => return self.queued.push_back(queued),
            Contact::Connected => None,
        };
        match refusal {
            Some(error) => self.refuse(queued, error),
            None => self.send_queued(now, queued),
        }
    }

    fn refuse(&mut self, queued: Queued<T>, error: RequestError) {
        if let Some(id) = queued.watch {
            self.watches.remove(id);
        }
        self.answer(Some(queued.token), Err(error));
    }

    fn send_queued(&mut self, now: Instant, queued: Queued<T>) {
        let Queued { mut request, token, watch } = queued;
        // A watcher that went away while its request waited wants no watch.
        let watch = watch.filter(|id| self.watches.contains(*id));
        set_watch_flag(&mut request, watch.is_some());
        self.send(now, request, Origin::Caller(token), watch);
    }

    fn send(&mut self, now: Instant, request: Request, origin: Origin<T>, watch: Option<WatchId>) {
        let xid = self.take_xid();
        let start = self.output.len();
        let len = self.write(now, xid, &request);
        if len > self.config.max_frame {
            self.output.truncate(start);
            if let Some(id) = watch {
                self.watches.remove(id);
            }
            let error = RequestError::TooLarge { len, max: self.config.max_frame };
            return self.settle(now, origin, Err(error));
        }
        self.in_flight.push_back(Sent { xid, op: request.op(), at: now, origin, watch });
    }

    fn write(&mut self, now: Instant, xid: i32, request: &Request) -> usize {
        self.last_sent = now;
        write_frame(&mut self.output, |out| request.encode(xid, out))
    }

    fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        xid
    }

    fn send_ping(&mut self, now: Instant) {
        self.pings.push_back(now);
        self.write(now, xid::PING, &Request::Ping);
    }

    fn send_heartbeat(&mut self, now: Instant) {
        let next = now + heartbeat_interval(self.identity.timeout);
        for request in self.heartbeat.beat(next) {
            self.send(now, request, Origin::Heartbeat, None);
        }
    }

    fn send_cleanups(&mut self, now: Instant) {
        while let Some(entry) = self.cleanup.start() {
            let mut requests = entry.target.requests();
            let last = requests.pop();
            for request in requests {
                self.send(now, request, Origin::Nobody, None);
            }
            if let Some(request) = last {
                self.send(now, request, Origin::Cleanup(entry), None);
            }
        }
    }

    // ----- ends -------------------------------------------------------------------------------

    fn check_contact(&mut self, now: Instant) {
        if self.unreachable || now.since(self.contact_lost) < self.identity.timeout {
            return;
        }
        self.unreachable = true;
        self.events.push_back(Event::Unreachable);
        self.fail_queued(&RequestError::Unreachable);
        self.advance_close(now);
    }

    fn expire(&mut self, now: Instant) {
        let session = self.identity.id;
        self.events.push_back(Event::Expired { session });
        self.fail_in_flight(RequestError::SessionExpired);
        let error = RequestError::SessionExpired(Outcome::NotApplied);
        self.fail_queued(&error);
        self.forget_session(&error);
        self.identity = Identity::none(self.config.session_timeout);
        self.lease.restart(SessionId::NONE);
        self.last_zxid = Zxid(0);
        self.contact_lost = now;
    }

    /// Drops what only this session could have done or seen.
    fn forget_session(&mut self, error: &RequestError) {
        let entries: Vec<_> = self.cleanup.drain().collect();
        for entry in entries {
            self.answer(entry.notify, Err(error.clone()));
        }
        self.watches.clear();
        self.heartbeat.expired();
    }

    fn finish(&mut self, error: &RequestError) {
        self.phase = Phase::Closed;
        self.fail_in_flight(|_| error.clone());
        self.fail_queued(error);
        self.forget_session(error);
        self.lease.restart(SessionId::NONE);
        self.events.push_back(Event::Closed);
    }

    /// Takes the next step towards the end that the caller asked for.
    fn advance_close(&mut self, now: Instant) {
        if !self.closing {
            return;
        }
        match self.phase {
            Phase::Connected if self.cleanup.is_done() => {
                let sent = |s: &Sent<T>| matches!(s.origin, Origin::Close);
                if !self.in_flight.iter().any(sent) {
                    self.send(now, Request::CloseSession, Origin::Close, None);
                }
            }
            // There is no session to end, or no server that could end it: it will expire.
            Phase::Idle if self.identity.id == SessionId::NONE || self.unreachable => {
                self.finish(&RequestError::Closed);
            }
            _ => {}
        }
    }

    fn fail_in_flight(&mut self, error: impl Fn(Outcome) -> RequestError) {
        for sent in std::mem::take(&mut self.in_flight) {
            if let Some(id) = sent.watch {
                self.watches.remove(id);
            }
            let outcome = sent.outcome();
            match sent.origin {
                Origin::Caller(token) => self.answer(Some(token), Err(error(outcome))),
                Origin::Cleanup(entry) => {
                    self.cleanup.finish();
                    self.cleanup.push(entry);
                }
                Origin::Heartbeat | Origin::Close | Origin::Nobody => {}
            }
        }
    }

    fn fail_queued(&mut self, error: &RequestError) {
        for queued in std::mem::take(&mut self.queued) {
            self.refuse(queued, error.clone());
        }
    }

    fn answer(&mut self, token: Option<T>, result: Result<Response, RequestError>) {
        if let Some(token) = token {
            self.events.push_back(Event::Reply { token, result });
        }
    }
}

impl Identity {
    fn none(timeout: Duration) -> Self {
        Self { id: SessionId::NONE, password: Bytes::from_static(&[0; PASSWORD_LEN]), timeout }
    }
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
