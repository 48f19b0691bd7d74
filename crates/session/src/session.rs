//! Session: one client's session with a service, over as many connections as it takes.
//!
//! This file has the methods that the caller uses. The rest is in four parts: `handshake`,
//! `messages` from the server, `sending`, and `ends` of connections and of the session.

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

/// How a session stands with its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contact {
    /// A server has accepted the session.
    Connected,
    /// No server has it now; requests wait.
    Disconnected,
    /// None has had it for a whole session timeout. What waited has failed, and each further request waits
    /// for a session timeout of its own.
    Unreachable,
    /// It is closed for good.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No transport.
    Idle,
    /// The handshake is on its way.
    Handshaking { since: Instant, asks_for: AsksFor },
    /// Requests flow.
    Connected,
    /// Nothing will happen any more.
    Closed,
}

/// Which session a handshake asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AsksFor {
    /// The one that there is, or a new one if there is none.
    Own,
    /// A new one, although servers may have the one that there is.
    New,
}

#[derive(Clone)]
struct Identity {
    id: SessionId,
    password: Bytes,
    timeout: Duration,
}

// Without the password, which gives control of the session.
lockkeeper_wire::impl_debug!(Identity, self => id: self.id, timeout: self.timeout);

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
    /// What the next handshake asks for.
    asks_for: AsksFor,
    last_zxid: Zxid,
    /// What a server must have applied to be given a new session, if the caller wants that.
    floor: Zxid,
    history: History,
    next_xid: i32,
    queued: VecDeque<Queued<T>>,
    /// How long something may be without an answer when another request of the caller is sent.
    busy_after: Duration,
    /// What is left of the lease when the next heartbeat is due.
    left_at_heartbeat: Duration,
    /// How many requests have ever waited.
    ever_queued: u64,
    in_flight: VecDeque<Sent<T>>,
    /// How much of what is in flight was written, in bytes.
    unanswered_bytes: usize,
    pings: VecDeque<Instant>,
    last_sent: Instant,
    last_received: Instant,
    lease: Lease,
    watches: Watches,
    /// Whether the server can be asked to remove a persistent watch and no other; until it says no.
    knows_persistent: bool,
    heartbeat: Heartbeat,
    /// What is submitted is bound to these holds.
    bound: Vec<Binding>,
    cleanup: CleanupQueue<T>,
    output: BytesMut,
    /// How much of the input is the rest of an answer that is too long, in bytes.
    to_skip: usize,
    /// What comes next in `output`, unless a create replaces its node before.
    staged: Option<StagedDelete<T>>,
    events: VecDeque<Event<T>>,
}

impl<T> Session<T> {
    /// A session that no server knows yet.
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
            asks_for: AsksFor::Own,
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

    /// A session that servers know already, from another process or an earlier one.
    pub fn resuming(config: Config, id: SessionId, password: Bytes, now: Instant) -> Self {
        let mut session = Self::new(config, now);
        (session.identity.id, session.identity.password) = (id, password);
        session.lease.restart(id);
        session
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

    /// Whether its end was asked for, or it has ended for good: every request is refused.
    pub fn is_closing(&self) -> bool {
        self.closing || self.phase == Phase::Closed
    }

    /// The session's identity; [`SessionId::NONE`] before the first connection and after an
    /// expiry.
    pub fn id(&self) -> SessionId {
        self.identity.id
    }

    /// The last transaction that a server of this session is known to have applied; 0 before the
    /// first answer.
    pub fn last_zxid(&self) -> Zxid {
        self.last_zxid
    }

    /// The last transaction that this session or an earlier one has seen, since servers were
    /// [found to be behind](Event::Rewound) what was seen before.
    pub fn newest_zxid(&self) -> Zxid {
        self.last_zxid.max(self.history.seen())
    }

    /// What proves to a server that the session is one's own. It is secret.
    pub fn password(&self) -> &Bytes {
        &self.identity.password
    }

    /// When the present server was last heard of, or else the last one.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    /// The negotiated session timeout, or the wished one before the first connection.
    pub fn timeout(&self) -> Duration {
        self.identity.timeout
    }

    /// Until when no server can have expired the session.
    pub fn lease(&self) -> LeaseState {
        self.lease.state()
    }

    /// From when on a committed write shows that the session lives for `left` more at the time when it is
    /// sent. `None` if nothing that was heard so far could show that; then a request has to be answered
    /// first.
    pub fn proves_from(&self, left: Duration, now: Instant) -> Option<Instant> {
        self.lease.proves_from(left, now)
    }

    /// How the session timeout is divided, as it is now.
    pub fn timing(&self) -> Timing {
        self.lease.timing()
    }

    /// What the caller decided.
    pub fn config(&self) -> &Config {
        &self.config
    }

    // ----- what the caller wants --------------------------------------------------------------

    /// Sends a request, or queues it until a server can be reached; for a session timeout at most. So an
    /// attempt costs a session timeout while no server can be reached, however often a program repeats it.
    /// A request also waits while much is without an answer, or something is for long, so that
    /// heartbeats and pings never stand behind all that a program has to do.
    pub fn submit(&mut self, now: Instant, request: Request, token: T) {
        let bound = self.bound.clone();
        self.submit_request(now, Queued { request, token, watch: None, bound, since: now });
    }

    /// Submits a request as [`Session::submit`] does, and copies a borrowed one only if it has to
    /// wait.
    pub fn submit_borrowed(&mut self, now: Instant, request: impl Outgoing, token: T) {
        let is_free = self.bound.is_empty() && !self.closing;
        if self.phase == Phase::Connected && is_free && !self.must_wait(now) {
            return self.send(now, request, Origin::Caller(token), None);
        }
        self.submit(now, request.into_request(), token);
    }

    /// Submits a create that replaces a node beside the new one: the deletion of that node and the
    /// create are one transaction, for which a server syncs once.
    ///
    /// The node that is replaced is the one of the last cleanup, a [`Cleanup::Node`], if that has not
    /// been transmitted and nothing was submitted since. If there is none, the create is submitted
    /// alone. If the server refuses the transaction, the deletion is sent again by itself, and the
    /// create fails with its own error or with [`RequestError::Undone`].
    ///
    /// Returns whether the node that is replaced is the one at the path `old`.
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
        let bound = self.bound.clone();
        self.submit_request(now, Queued { request, token, watch: Some(id), bound, since: now });
        id
    }

    /// Forgets a watch, and has the server forget it if nobody else on this session needs it.
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

            // Every server knows `Any`, so nothing follows from its answer.
            let origin = match kind {
                WatcherKind::Any => Origin::Nobody,
                _ => Origin::Unwatch(removal),
            };
            self.send(now, Request::RemoveWatches(request), origin, None);
        }
    }

    /// The kind to name to the server, which may not know those of persistent watches.
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

    /// Begins to prove that the node exists and the session lives, with committed writes. The
    /// first one is due when the lease needs it, however long ago it was proven last, and a renewal
    /// interval from now at the latest, since it may find the node gone. A node whose name is used again
    /// is looked at behind each of them. Under [`LeaseMode::Direct`] nothing is sent: pings prove the
    /// session.
    pub fn hold(&mut self, now: Instant, path: ZnodePath, name: NameUse) -> HoldId {
        let lease = self.lease.state();
        let needed = lease.deadline.map(|deadline| deadline.saturating_sub(self.left_at_heartbeat));
        let latest = now + self.timing().renewal_interval();
        let due = needed.map_or(now, |needed| needed.clamp(now, latest));
        let due = (self.config.lease == LeaseMode::Quorum).then_some(due);
        self.heartbeat.hold(path, name, lease.generation, due)
    }

    /// Makes a hold outlast the lease's deadline: it is in jeopardy then, and goes on when its node is
    /// proven to be the one that the transaction `czxid` created, for this session. See
    /// [`HoldProof`]. Returns whether the hold may: not if a deadline has passed already, or the node
    /// is gone. Costs nothing until a deadline passes; then each heartbeat, also under
    /// [`LeaseMode::Direct`], is followed by a look at the node until it is proven.
    pub fn ride_out(&mut self, now: Instant, id: HoldId, czxid: Zxid) -> bool {
        let may = self.is_believed(now, id);
        if may {
            self.heartbeat.ride_out(id, Some(czxid));
        }
        may
    }

    /// Makes a hold end at the next deadline, or now if it is in jeopardy.
    pub fn end_at_deadline(&mut self, id: HoldId) {
        self.heartbeat.ride_out(id, None);
    }

    /// How a hold stands with the lease; `None` if it is over, or its node was found missing.
    pub fn proof(&self, id: HoldId) -> Option<HoldProof> {
        self.heartbeat.proof(id)
    }

    /// Whether the node of a hold is known to be there: it was proven in the lease as it is, whose
    /// deadline has not passed.
    pub fn is_believed(&self, now: Instant, id: HoldId) -> bool {
        let proof = self.heartbeat.proof(id);
        proof.is_some_and(|proof| self.lease.state().covers(proof, now))
    }

    /// What binds requests to a hold and its present holder; `None` if the hold is over.
    pub fn binding(&self, id: HoldId) -> Option<Binding> {
        self.heartbeat.binding(id)
    }

    /// Hands the node of a hold on to another holder. The hold stays proven, and what is bound to the
    /// holder before is not sent any more.
    pub fn hand_on(&mut self, id: HoldId) -> Option<Binding> {
        self.heartbeat.hand_on(id);
        self.binding(id)
    }

    /// Binds what is submitted from now on to some holds: a request that is bound is sent only while
    /// all of them [are believed in](Session::is_believed) and have the same holders, and else refused
    /// with [`RequestError::NotHeld`](crate::RequestError::NotHeld), also if it had to wait for a
    /// connection.
    pub fn bind(&mut self, holds: Vec<Binding>) {
        self.bound = holds;
    }

    /// Ends a hold whose node a server has told this client to be missing, in an answer to another request
    /// than a heartbeat.
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

    /// Deletes something before the session ends, over as many connections as it takes. The
    /// `notify` token is answered when it is certain, or when no server can be reached; then it goes on.
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

    /// Shows credentials to this and every later server, once each.
    pub fn authenticate(&mut self, now: Instant, credentials: Credentials) {
        if self.config.credentials.contains(&credentials) {
            return;
        }
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

        let asks_for = std::mem::replace(&mut self.asks_for, AsksFor::Own);
        let new = Identity::none(self.config.session_timeout);
        let (identity, last_zxid_seen) = match asks_for {
            AsksFor::Own => (&self.identity, self.last_zxid.max(self.floor)),
            AsksFor::New => (&new, Zxid(0)),
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
        self.phase = Phase::Handshaking { since: now, asks_for };
        (self.last_sent, self.last_received) = (now, now);
    }

    /// Bytes came from the server. Whole frames are taken from the front of `input`; the rest must
    /// be there again, with what follows, at the next call. A new transport begins with an empty
    /// buffer.
    ///
    /// # Errors
    /// Why the caller must close the transport and call [`Session::handle_disconnected`].
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
                Phase::Handshaking { since, asks_for } => {
                    self.handle_handshake(now, (since, asks_for), frame)?;
                }
                Phase::Connected => self.handle_message(now, frame)?,
                Phase::Idle | Phase::Closed => {}
            }
        }
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

    /// The caller moves the session on no more. What has no answer fails, and so does whatever is
    /// submitted from now on. Servers that know the session end it when they have not heard of it for its
    /// timeout.
    pub fn abandon(&mut self, now: Instant) {
        self.handle_disconnected(now);
        if self.phase != Phase::Closed {
            self.finish(&RequestError::Closed);
        }
    }

    /// The transport is gone: the server closed it in the place of an answer to the handshake. A server
    /// that is behind the session does so. It will never take the session, and while none does, the
    /// session ends at the others. A server without a quorum does so, too, with every session; when it
    /// has one again, its leader gives each session its whole timeout.
    ///
    /// So when servers have refused the session for longer than it can last, some of the next handshakes
    /// ask for a new one. A server that is behind gives that, and the session is over. Should it live
    /// on after all, then only until the servers expire it: nobody is told of it again, and no lease
    /// of it goes on. One without a quorum refuses that as well, and nothing ends.
    pub fn handle_refused(&mut self, now: Instant) {
        // Read first: the disconnect changes the phase.
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
            true if refused.asks_anew => self.asks_for = AsksFor::New,
            true => {}
            // All servers are behind, so there is none that a caller could wait for.
            false => self.floor = Zxid(0),
        }
    }

    /// The time that [`Session::poll_timeout`] named has come.
    ///
    /// # Errors
    /// Why the caller must close the transport and call [`Session::handle_disconnected`].
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

    // ----- what came of it --------------------------------------------------------------------

    /// Takes the bytes to transmit, if there are any.
    pub fn poll_transmit(&mut self) -> Option<BytesMut> {
        self.write_staged();
        (!self.output.is_empty()).then(|| self.output.split())
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event<T>> {
        self.events.pop_front()
    }

    /// When [`Session::handle_timeout`] is to be called, if nothing happens before.
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

    /// Makes the caller leave a server over which what is held cannot be proven before the lease ends.
    ///
    /// # Errors
    /// If it is to be left.
    fn leave_if_out_of_reach(&self, now: Instant) -> Result<(), Disconnect> {
        let is_needed = self.phase == Phase::Connected && self.heartbeat.due().is_some();
        match is_needed && self.lease.is_out_of_reach(now) {
            true => Err(Disconnect::TooLate),
            false => Ok(()),
        }
    }

    /// Since when the server has been silent although it has something to answer.
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
