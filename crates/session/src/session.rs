//! Session: one client's session with a service, across any number of connections.
//!
//! This file has the methods that the caller uses. The rest is in four modules: `handshake`, `messages` from
//! the server, `sending`, and `ends` of connections and of the session.

mod ends;
mod handshake;
mod messages;
mod sending;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, Outgoing, PASSWORD_LEN, Record, RemoveWatchesRequest, Request, SessionId,
    WatcherKind, ZnodePath, Zxid, split_frame, write_frame,
};

use crate::cleanup::{Cleanup, CleanupQueue, PendingCleanup};
use crate::config::{Config, Credentials, LeaseMode};
use crate::error::{Disconnect, RequestError};
use crate::event::Event;
use crate::heartbeat::{Binding, Heartbeat, HoldId, HoldProof, NameUse};
use crate::history::History;
use crate::lease::{Lease, LeaseState};
use crate::requests::{Origin, Queued, Sent, StagedDelete, watched_path};
use crate::time::Instant;
use crate::timing::Timing;
use crate::watches::{Removal, WatchId, WatchKind, Watches};

/// The state of the connection between a session and its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contact {
    /// A server has accepted the session.
    Connected,
    /// No server serves it at the moment; requests wait.
    Disconnected,
    /// No server has accepted it for a whole session timeout. All waiting requests have failed, and each new
    /// request waits for a session timeout of its own.
    Unreachable,
    /// The session is closed permanently.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no transport.
    Idle,
    /// The handshake has been sent.
    Handshaking { since: Instant, requested: RequestedSession },
    /// Requests can be sent.
    Connected,
    /// Final.
    Closed,
}

/// The session that a handshake asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedSession {
    /// The current one, or a new one if there is none.
    Current,
    /// A new one, even though servers may still have the current one.
    New,
}

#[derive(Clone)]
struct Identity {
    id: SessionId,
    password: Bytes,
    timeout: Duration,
}

// The password is left out: it gives control of the session.
lockkeeper_wire::impl_debug!(Identity, self => id: self.id, timeout: self.timeout);

/// A client's session.
///
/// `T` is a token that the caller passes with a request and gets back with the reply. Each request is
/// answered by exactly one [`Event::Reply`].
#[derive(Clone, Debug)]
pub struct Session<T> {
    config: Config,
    phase: Phase,
    /// When a server last had the session, or when the session was created.
    contact_lost: Instant,
    unreachable: bool,
    closing: bool,
    identity: Identity,
    /// What the next handshake asks for.
    requested: RequestedSession,
    last_zxid: Zxid,
    /// What a server must have applied before it may accept a new session, if the caller requires that.
    floor: Zxid,
    history: History,
    next_xid: i32,
    queued: VecDeque<Queued<T>>,
    /// The maximum age of an unanswered request while further requests of the caller are sent.
    busy_after: Duration,
    /// What remains of the lease when the next heartbeat is due.
    left_at_heartbeat: Duration,
    /// The number of requests that were ever queued.
    ever_queued: u64,
    in_flight: VecDeque<Sent<T>>,
    /// The number of bytes written for requests in flight.
    unanswered_bytes: usize,
    pings: VecDeque<Instant>,
    last_sent: Instant,
    last_received: Instant,
    lease: Lease,
    watches: Watches,
    /// Whether the server can remove a persistent watch by itself; until it refuses.
    knows_persistent: bool,
    heartbeat: Heartbeat,
    /// New requests are bound to these holds.
    bound: Vec<Binding>,
    cleanup: CleanupQueue<T>,
    output: BytesMut,
    /// The number of input bytes that belong to a reply that is too long.
    to_skip: usize,
    /// The delete that is written to `output` next, unless a create replaces its node first.
    staged: Option<StagedDelete<T>>,
    events: VecDeque<Event<T>>,
}

impl<T> Session<T> {
    /// Starts without a session on the servers.
    pub fn new(config: Config, now: Instant) -> Self {
        let identity = Identity::none(config.session_timeout);
        let timing = Timing::of(&config, config.session_timeout);

        Self {
            lease: Lease::new(config.lease, timing),
            config,
            phase: Phase::Idle,
            contact_lost: now,
            unreachable: false,
            closing: false,
            identity,
            requested: RequestedSession::Current,
            last_zxid: Zxid(0),
            floor: Zxid(0),
            history: History::default(),
            next_xid: 1,
            queued: VecDeque::new(),
            busy_after: timing.slowest_answer(),
            left_at_heartbeat: timing.left_at_grant(),
            ever_queued: 0,
            in_flight: VecDeque::new(),
            unanswered_bytes: 0,
            pings: VecDeque::new(),
            last_sent: now,
            last_received: now,
            watches: Watches::default(),
            knows_persistent: true,
            heartbeat: Heartbeat::default(),
            bound: Vec::new(),
            cleanup: CleanupQueue::default(),
            output: BytesMut::new(),
            to_skip: 0,
            staged: None,
            events: VecDeque::new(),
        }
    }

    /// Resumes a session that the servers know, from another process or an earlier client.
    pub fn resuming(config: Config, id: SessionId, password: Bytes, now: Instant) -> Self {
        let mut session = Self::new(config, now);
        (session.identity.id, session.identity.password) = (id, password);
        session.lease.restart(id);
        session
    }

    // ----- state ------------------------------------------------------------------------------

    /// The state of the connection to the servers.
    pub fn contact(&self) -> Contact {
        match self.phase {
            Phase::Connected => Contact::Connected,
            Phase::Closed => Contact::Closed,
            _ if self.unreachable => Contact::Unreachable,
            _ => Contact::Disconnected,
        }
    }

    /// Whether it is closing or closed. Every request is refused then.
    pub fn is_closing(&self) -> bool {
        self.closing || self.phase == Phase::Closed
    }

    /// The session id; [`SessionId::NONE`] before the first connection and after an expiry.
    pub fn id(&self) -> SessionId {
        self.identity.id
    }

    /// The last transaction that a server of this session is known to have applied; 0 before the first reply.
    pub fn last_zxid(&self) -> Zxid {
        self.last_zxid
    }

    /// The newest transaction that this session or an earlier one has seen, since servers were last [found to
    /// be behind](Event::Rewound).
    pub fn newest_zxid(&self) -> Zxid {
        self.last_zxid.max(self.history.seen())
    }

    /// The password that authorizes a client to resume the session. Secret.
    pub fn password(&self) -> &Bytes {
        &self.identity.password
    }

    /// When the current or the last server last sent something.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    /// The negotiated session timeout, or the requested one before the first connection.
    pub fn timeout(&self) -> Duration {
        self.identity.timeout
    }

    /// The lease: the time until which no server can have expired the session.
    pub fn lease(&self) -> LeaseState {
        self.lease.state()
    }

    /// The time from which a committed write shows that the session lives for `left` more, counted from when
    /// the write is sent. `None` if no reply so far could show that; another request must be answered first.
    pub fn proves_from(&self, left: Duration, now: Instant) -> Option<Instant> {
        self.lease.proves_from(left, now)
    }

    /// The division of the current session timeout.
    pub fn timing(&self) -> Timing {
        self.lease.timing()
    }

    /// The options of the session.
    pub fn config(&self) -> &Config {
        &self.config
    }

    // ----- requests ---------------------------------------------------------------------------

    /// Sends a request, or queues it until a server is reachable, for at most a session timeout. While no
    /// server is reachable, each attempt takes a session timeout, however often a program repeats it. A
    /// request also waits while many bytes are unanswered or one request has been unanswered for long, so
    /// that heartbeats and pings do not queue behind the whole workload of a program.
    pub fn submit(&mut self, now: Instant, request: Request, token: T) {
        let bound = self.bound.clone();
        self.submit_request(now, Queued { request, token, watch: None, bound, since: now });
    }

    /// Like [`Session::submit`]. A borrowed request is copied only if it has to wait.
    pub fn submit_borrowed(&mut self, now: Instant, request: impl Outgoing, token: T) {
        let is_free = self.bound.is_empty() && !self.closing;
        if self.phase == Phase::Connected && is_free && !self.must_wait(now) {
            return self.send(now, request, Origin::Caller(token), None);
        }
        self.submit(now, request.into_request(), token);
    }

    /// Submits a create that replaces a sibling of the new node. The delete of the sibling and the create are
    /// one transaction, which a server syncs to disk once.
    ///
    /// The replaced node is that of the last cleanup, a [`Cleanup::Node`], if that has not been transmitted
    /// and no other request was submitted since. If there is no such cleanup, the create is submitted by
    /// itself. If the server refuses the transaction, the delete is sent again by itself, and the create
    /// fails with its own error or with [`RequestError::Undone`].
    ///
    /// Returns whether the replaced node has the path `old`.
    pub fn replace(
        &mut self,
        now: Instant,
        old: Option<&str>,
        create: impl Outgoing,
        token: T,
    ) -> bool {
        let is_free = self.bound.is_empty() && !self.closing && self.queued.is_empty();
        if self.staged.is_none() || !is_free {
            self.submit_borrowed(now, create, token);
            return false;
        }
        self.replace_staged(now, old, create.into_request(), token)
    }

    /// Submits a request that sets a watch. The watch exists once the request has been answered without an
    /// error. (A missing node does not count as an error if `kind` is [`WatchKind::Exists`].)
    pub fn submit_watching(
        &mut self,
        now: Instant,
        request: Request,
        kind: WatchKind,
        token: T,
    ) -> WatchId {
        let path = watched_path(&request).unwrap_or_default().to_owned();
        let id = self.watches.add(path, kind);
        let bound = self.bound.clone();
        self.submit_request(now, Queued { request, token, watch: Some(id), bound, since: now });
        id
    }

    /// Removes a watch. The server is asked to remove it too, if no other watch of this session shares it.
    pub fn unwatch(&mut self, now: Instant, id: WatchId) {
        let removals = self.watches.remove(id);
        self.remove_watches(now, removals);
    }

    fn remove_watches(&mut self, now: Instant, removals: Vec<Removal>) {
        if self.phase != Phase::Connected {
            return;
        }

        for removal in removals {
            let kind = self.kind_to_remove(removal.kind);
            let path = removal.path.clone();
            let request = RemoveWatchesRequest { path, kind: kind.code() };

            // Every server knows `Any`, so its reply does not show what the server supports.
            let origin = match kind {
                WatcherKind::Any => Origin::Nobody,
                _ => Origin::Unwatch(removal),
            };
            self.send(now, Request::RemoveWatches(request), origin, None);
        }
    }

    /// The kind to send to the server, which may not know the kinds of persistent watches.
    fn kind_to_remove(&self, kind: WatcherKind) -> WatcherKind {
        match kind {
            WatcherKind::Persistent | WatcherKind::PersistentRecursive
                if !self.knows_persistent =>
            {
                WatcherKind::Any
            }
            kind => kind,
        }
    }

    /// Starts to prove with committed writes that the node exists and the session is alive. The first proof
    /// is due when the lease needs one, and at the latest a renewal interval from now, since it may find the
    /// node missing. A node with a reused name is also read after each proof. Under [`LeaseMode::Direct`] no
    /// heartbeats are sent: pings prove the session.
    pub fn hold(&mut self, now: Instant, path: ZnodePath, name: NameUse) -> HoldId {
        let lease = self.lease.state();
        let needed = lease.deadline.map(|deadline| deadline.saturating_sub(self.left_at_heartbeat));
        let latest = now + self.timing().renewal_interval();
        let due = needed.map_or(now, |needed| needed.clamp(now, latest));
        let due = (self.config.lease == LeaseMode::Quorum).then_some(due);
        self.heartbeat.hold(path, name, lease.generation, due)
    }

    /// Makes a hold outlast the lease's deadline. It is then in jeopardy, and continues when its node is
    /// proven to be the one that the transaction `czxid` created, for this session. See [`HoldProof`].
    /// Returns `false` if a deadline has already passed or the node is gone. Costs nothing until a deadline
    /// passes; then each heartbeat, also under [`LeaseMode::Direct`], is followed by a read of the node until
    /// the node is proven.
    pub fn ride_out(&mut self, now: Instant, id: HoldId, czxid: Zxid) -> bool {
        let may = self.is_proven(now, id);
        if may {
            self.heartbeat.ride_out(id, Some(czxid));
        }
        may
    }

    /// Makes a hold end at the next deadline, or now if it is in jeopardy.
    pub fn end_at_deadline(&mut self, id: HoldId) {
        self.heartbeat.ride_out(id, None);
    }

    /// The state of a hold; `None` if it has ended or its node is missing.
    pub fn proof(&self, id: HoldId) -> Option<HoldProof> {
        self.heartbeat.proof(id)
    }

    /// Whether the node of a hold is known to exist: it was proven in the current generation of the lease,
    /// and the deadline has not passed.
    pub fn is_proven(&self, now: Instant, id: HoldId) -> bool {
        let proof = self.heartbeat.proof(id);
        proof.is_some_and(|proof| self.lease.state().covers(proof, now))
    }

    /// The binding to a hold and its present holder; `None` if the hold has ended.
    pub fn binding(&self, id: HoldId) -> Option<Binding> {
        self.heartbeat.binding(id)
    }

    /// Transfers the node of a hold to another holder. The hold stays proven, and requests bound to the
    /// previous holder are no longer sent.
    pub fn hand_over(&mut self, id: HoldId) -> Option<Binding> {
        self.heartbeat.hand_over(id);
        self.binding(id)
    }

    /// Binds requests submitted from now on to holds. A bound request is sent only while all of these holds
    /// [are proven](Session::is_proven) and have the same holders; otherwise it fails with
    /// [`RequestError::NotHeld`](crate::RequestError::NotHeld), also after it has waited for a connection.
    pub fn bind(&mut self, holds: Vec<Binding>) {
        self.bound = holds;
    }

    /// Ends a hold because the reply to a request other than a heartbeat showed that its node is missing.
    pub fn found_missing(&mut self, id: HoldId) {
        if self.heartbeat.proof(id).is_some() {
            self.heartbeat.release(id);
            self.events.push_back(Event::NodeGone { id });
        }
    }

    /// Ends a hold.
    pub fn unhold(&mut self, id: HoldId) {
        self.heartbeat.release(id);
    }

    /// Deletes a node before the session ends, over any number of connections. The `notify` token is answered
    /// when the delete is certain, or when no server is reachable; in the latter case the cleanup continues.
    pub fn clean_up(&mut self, now: Instant, target: Cleanup, notify: Option<T>) {
        let mut entry = PendingCleanup { target, notify, after: self.ever_queued };
        if self.phase == Phase::Closed {
            return self.answer(entry.notify, Err(RequestError::Closed));
        }
        if self.unreachable {
            self.answer(entry.notify.take(), Err(RequestError::Unreachable));
        }
        self.cleanup.push(entry);
        if self.phase == Phase::Connected {
            self.send_cleanups(now);
        }
    }

    /// Sends credentials to this and every later server, once each.
    pub fn authenticate(&mut self, now: Instant, credentials: Credentials) {
        if self.config.credentials.contains(&credentials) {
            return;
        }
        if self.phase == Phase::Connected {
            self.send_credentials(now, &credentials);
        }
        self.config.credentials.push(credentials);
    }

    /// Ends the session: completes submitted requests and cleanups, then ends the session on the server, then
    /// emits [`Event::Closed`].
    pub fn close(&mut self, now: Instant) {
        self.closing = true;
        self.advance_close(now);
    }

    // ----- input ------------------------------------------------------------------------------

    /// A transport to a server is connected. The handshake is the first thing to transmit.
    pub fn handle_connected(&mut self, now: Instant) {
        if self.phase == Phase::Closed {
            return;
        }

        let requested = std::mem::replace(&mut self.requested, RequestedSession::Current);
        let new = Identity::none(self.config.session_timeout);
        let (identity, last_zxid_seen) = match requested {
            RequestedSession::Current => (&self.identity, self.last_zxid.max(self.floor)),
            RequestedSession::New => (&new, Zxid(0)),
        };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms: millis(self.config.session_timeout),
            session_id: identity.id,
            password: identity.password.clone(),
            read_only: Some(false),
        };

        self.output.clear();
        self.to_skip = 0;
        write_frame(&mut self.output, |out| request.encode(out));
        self.phase = Phase::Handshaking { since: now, requested };
        (self.last_sent, self.last_received) = (now, now);
    }

    /// Bytes arrived from the server. Whole frames are taken from the front of `input`. The next call must
    /// pass the rest again, followed by new bytes. A new transport starts with an empty buffer.
    ///
    /// # Errors
    /// The reason for which the caller must close the transport and call [`Session::handle_disconnected`].
    pub fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Disconnect> {
        loop {
            self.skip(now, input);
            let frame = match split_frame(input, self.config.max_frame) {
                Ok(None) => return self.leave_if_out_of_reach(now),
                Ok(Some(frame)) => frame,
                Err(fault) => match self.handle_too_long(now, fault, input)? {
                    true => continue,
                    false => return Ok(()),
                },
            };

            self.last_received = now;
            match self.phase {
                Phase::Handshaking { since, requested } => {
                    self.handle_handshake(now, (since, requested), frame)?;
                }
                Phase::Connected => self.handle_message(now, frame)?,
                Phase::Idle | Phase::Closed => {}
            }
        }
    }

    /// The transport is closed.
    pub fn handle_disconnected(&mut self, now: Instant) {
        let was_connected = self.phase == Phase::Connected;
        if self.phase == Phase::Closed {
            return;
        }

        self.phase = Phase::Idle;
        self.output.clear();
        self.pings.clear();
        self.lease.disconnected();
        self.heartbeat.disconnected(now);
        self.watches.disconnected();
        self.knows_persistent = true;
        self.fail_in_flight(RequestError::ConnectionLost);

        if was_connected {
            self.contact_lost = now;
            self.events.push_back(Event::Disconnected);
        }
        self.history.disconnected();
        self.advance_close(now);
    }

    /// The caller stops driving the session. Requests in flight and all later requests fail. Servers that
    /// know the session expire it after its timeout.
    pub fn abandon(&mut self, now: Instant) {
        self.handle_disconnected(now);
        if self.phase != Phase::Closed {
            self.finish(&RequestError::Closed);
        }
    }

    /// The server closed the transport instead of answering the handshake. A server that is behind the
    /// session does so. It will never accept the session, and while no server does, the session expires on
    /// the others. A server without a quorum also does so, for every session; when the ensemble has a quorum
    /// again, the leader gives each session its whole timeout.
    ///
    /// So when servers have refused the session for longer than it can last, some of the next handshakes ask
    /// for a new session. A server that is behind grants one, and the old session has ended. If the old
    /// session is still alive somewhere, the servers expire it: it is never resumed, and its lease does not
    /// continue. A server without a quorum refuses the new session too, and nothing changes.
    pub fn handle_refused(&mut self, now: Instant) {
        // Evaluated first: the disconnect changes the phase.
        let is_refused = matches!(self.phase, Phase::Handshaking { .. });
        self.handle_disconnected(now);

        let has_begun = self.identity.id != SessionId::NONE;
        if !is_refused || self.phase == Phase::Closed || !has_begun && self.floor == Zxid(0) {
            return;
        }

        let limit = self.timing().certainly_over();
        let refused = self.history.refused(now, limit);
        if refused.lasts < limit {
            return;
        }

        match has_begun {
            true if self.closing => {
                self.expire(now);
                self.advance_close(now);
            }
            true if refused.asks_anew => self.requested = RequestedSession::New,
            true => {}
            // All servers are behind, so waiting for one that is not is useless.
            false => self.floor = Zxid(0),
        }
    }

    /// The time returned by [`Session::poll_timeout`] has come.
    ///
    /// # Errors
    /// The reason for which the caller must close the transport and call [`Session::handle_disconnected`].
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Disconnect> {
        let timing = self.timing();
        match self.phase {
            Phase::Closed => {}
            Phase::Idle => self.check_contact(now),
            Phase::Handshaking { since, .. } => {
                self.check_contact(now);
                if now.since(since) >= self.handshake_limit() {
                    return Err(Disconnect::Silent);
                }
            }
            Phase::Connected => {
                let silent = |since| now.since(since) >= timing.silence_limit();
                if self.unanswered_since().is_some_and(silent) {
                    return Err(Disconnect::Silent);
                }

                if self.heartbeat.due().is_some_and(|due| due <= now) {
                    self.send_heartbeat(now);
                }
                self.send_cleanups(now);
                if now.since(self.last_sent) >= timing.ping_interval() {
                    self.send_ping(now);
                }
            }
        }
        Ok(())
    }

    fn handshake_limit(&self) -> Duration {
        match self.identity.id {
            SessionId::NONE => self.timing().new_session_limit(),
            _ => self.timing().silence_limit(),
        }
    }

    // ----- output -----------------------------------------------------------------------------

    /// Takes the bytes to transmit, if any.
    pub fn poll_transmit(&mut self) -> Option<BytesMut> {
        self.write_staged();
        (!self.output.is_empty()).then(|| self.output.split())
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event<T>> {
        self.events.pop_front()
    }

    /// When to call [`Session::handle_timeout`], unless another event comes first.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timing = self.timing();
        let contact = self.next_failure();

        match self.phase {
            Phase::Closed => None,
            Phase::Idle => contact,
            Phase::Handshaking { since, .. } => {
                earliest([contact, Some(since + self.handshake_limit())])
            }
            Phase::Connected => {
                let ping = self.last_sent + timing.ping_interval();
                let silence = self.unanswered_since().map(|since| since + timing.silence_limit());
                earliest([self.heartbeat.due(), silence, Some(ping)])
            }
        }
    }

    /// Makes the caller leave a server over which the holds cannot be proven before the lease ends.
    ///
    /// # Errors
    /// If the server must be left.
    fn leave_if_out_of_reach(&self, now: Instant) -> Result<(), Disconnect> {
        let is_needed = self.phase == Phase::Connected && self.heartbeat.due().is_some();
        match is_needed && self.lease.is_out_of_reach(now) {
            true => Err(Disconnect::TooLate),
            false => Ok(()),
        }
    }

    /// Since when the server has been silent although a request is unanswered.
    fn unanswered_since(&self) -> Option<Instant> {
        let request = self.in_flight.front().map(|sent| sent.at);
        let oldest = earliest([request, self.pings.front().copied()])?;
        Some(oldest.max(self.last_received))
    }
}

impl Identity {
    fn none(timeout: Duration) -> Self {
        Self { id: SessionId::NONE, password: Bytes::from_static(&[0; PASSWORD_LEN]), timeout }
    }
}

fn earliest<const N: usize>(times: [Option<Instant>; N]) -> Option<Instant> {
    times.into_iter().flatten().min()
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
