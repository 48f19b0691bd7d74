//! Outgoing messages: requests, pings, heartbeats, deletes.

use lockkeeper_wire::{CreateMode, Op, OpCode, Outgoing, Request, Zxid, write_frame, xid};

use super::{Contact, Phase, Session};
use crate::cleanup::{Cleanup, PendingCleanup, delete};
use crate::config::LeaseMode;
use crate::error::RequestError;
use crate::heartbeat::{Binding, Checked, HeartbeatRequest, HeartbeatScope};
use crate::lease::Lease;
use crate::requests::{
    Origin, Queued, Replacement, Sent, StagedDelete, keep_recursive, set_watch_flag,
};
use crate::time::Instant;
use crate::watches::{Ask, WatchId};

/// The limits of unanswered bytes and requests above which further requests of the caller wait.
const MAX_UNANSWERED_BYTES: usize = 1 << 20;
const MAX_UNANSWERED_REQUESTS: usize = 4096;

impl<T> Session<T> {
    pub(super) fn submit_request(&mut self, now: Instant, queued: Queued<T>) {
        let refusal = match self.contact() {
            Contact::Closed => Some(RequestError::Closed),
            _ if self.closing => Some(RequestError::Closed),
            // An immediate refusal would invite programs to retry as fast as they can. So the request waits,
            // and fails only if no server is reachable in time.
            Contact::Disconnected | Contact::Unreachable => return self.queue(queued),
            _ if !self.may_be_sent(now, &queued) => Some(RequestError::NotHeld),
            Contact::Connected if self.must_wait(now) => return self.queue(queued),
            Contact::Connected => None,
        };
        match refusal {
            Some(error) => self.refuse(queued, error),
            None => self.send_queued(now, queued),
        }
    }

    fn queue(&mut self, queued: Queued<T>) {
        self.ever_queued += 1;
        self.queued.push_back(queued);
    }

    /// Whether a request has to wait although the session is connected.
    pub(super) fn must_wait(&self, now: Instant) -> bool {
        !self.queued.is_empty() || self.is_busy(now)
    }

    /// Whether so much is unanswered that a heartbeat behind further requests could be late.
    fn is_busy(&self, now: Instant) -> bool {
        // The age limit covers small requests with large replies.
        let is_late = |oldest: &Sent<T>| now.since(oldest.at) >= self.busy_after;
        self.unanswered_bytes >= MAX_UNANSWERED_BYTES
            || self.in_flight.len() >= MAX_UNANSWERED_REQUESTS
            || self.in_flight.front().is_some_and(is_late)
    }

    /// Sends requests that have waited for a connection or for replies.
    pub(super) fn send_waiting(&mut self, now: Instant) {
        while self.phase == Phase::Connected
            && !self.is_busy(now)
            && let Some(queued) = self.queued.pop_front()
        {
            match self.may_be_sent(now, &queued) {
                true => self.send_queued(now, queued),
                false => self.refuse(queued, RequestError::NotHeld),
            }
            self.send_cleanups(now);
        }
    }

    /// Whether all holds that a request is bound to are proven and have the same holders.
    fn may_be_sent(&self, now: Instant, queued: &Queued<T>) -> bool {
        let is_current = |bound: &Binding| self.heartbeat.binding(bound.hold) == Some(*bound);
        queued.bound.iter().all(|bound| is_current(bound) && self.is_proven(now, bound.hold))
    }

    pub(super) fn refuse(&mut self, queued: Queued<T>, error: RequestError) {
        if let Some(id) = queued.watch {
            self.watches.give_up(id);
        }
        self.answer(Some(queued.token), Err(error));
    }

    pub(super) fn send_queued(&mut self, now: Instant, queued: Queued<T>) {
        let Queued { mut request, token, watch, .. } = queued;
        let ask = watch.map_or(Ask::Nothing, |id| self.watches.sending(id));
        set_watch_flag(&mut request, ask == Ask::Own);
        if ask == Ask::Served {
            keep_recursive(&mut request);
        }
        // The watcher was removed while its request waited, so the watch is not set.
        let watch = watch.filter(|_| ask != Ask::Nothing);
        self.send(now, request, Origin::Caller(token), watch);
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        request: impl Outgoing,
        origin: Origin<T>,
        watch: Option<WatchId>,
    ) {
        let xid = self.take_xid();
        match self.write_limited(now, xid, &request) {
            Ok(len) => {
                self.note_sent(Sent { xid, op: request.op(), len, at: now, origin, watch });
            }
            Err(error) => {
                if let Some(id) = watch {
                    self.watches.give_up(id);
                }
                self.settle(now, origin, Err(error), Zxid(0));
            }
        }
    }

    fn note_sent(&mut self, sent: Sent<T>) {
        self.unanswered_bytes += sent.len;
        self.in_flight.push_back(sent);
    }

    /// Writes a frame, unless it is longer than servers accept.
    fn write_limited(
        &mut self,
        now: Instant,
        xid: i32,
        request: &impl Outgoing,
    ) -> Result<usize, RequestError> {
        self.write_staged();
        let start = self.output.len();
        let len = self.append(now, xid, request);
        if len > self.config.max_frame {
            self.output.truncate(start);
            return Err(RequestError::TooLarge { len, max: self.config.max_frame });
        }
        Ok(len)
    }

    pub(super) fn write(&mut self, now: Instant, xid: i32, request: &impl Outgoing) -> usize {
        self.write_staged();
        self.append(now, xid, request)
    }

    fn append(&mut self, now: Instant, xid: i32, request: &impl Outgoing) -> usize {
        self.last_sent = now;
        write_frame(&mut self.output, |out| request.encode(xid, out))
    }

    /// Writes the staged delete: another request comes next, so no create can replace its node any more.
    pub(super) fn write_staged(&mut self) {
        let Some(StagedDelete { xid, at, entry }) = self.staged.take() else { return };
        let request = Request::Delete(delete(entry.target.path()));
        let len = self.append(at, xid, &request);
        let (op, origin) = (OpCode::Delete, Origin::Cleanup(entry));
        self.note_sent(Sent { xid, op, len, at, origin, watch: None });
    }

    /// Informs the lease of a reply. While writes sent now would prove nothing, the next heartbeat is due as
    /// soon as one can prove something. It is due at once if the lease continues after its deadline and a
    /// hold must be proven.
    pub(super) fn note_life(&mut self, now: Instant, note: impl FnOnce(&mut Lease)) {
        let before = self.lease.state().generation;
        note(&mut self.lease);

        let lease = self.lease.state();
        if lease.generation != before {
            self.heartbeat.prove_again(now.max(lease.sure_from), lease.generation);
        }
        self.hasten_heartbeat(now);
    }

    /// Moves the next heartbeat forward to the time from which writes count, if writes sent now do not.
    fn hasten_heartbeat(&mut self, now: Instant) {
        let counts_from = self.lease.counts_from();
        if counts_from > now {
            self.heartbeat.hasten(counts_from);
        }
    }

    pub(super) fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        xid
    }

    pub(super) fn send_ping(&mut self, now: Instant) {
        self.pings.push_back(now);
        self.write(now, xid::PING, &Request::Ping);
    }

    pub(super) fn send_heartbeat(&mut self, now: Instant) {
        let interval = self.timing().renewal_interval();
        let next = now + interval.mul_f64(1.0 - self.jitter() / 8.0);
        let need = match self.config.lease {
            LeaseMode::Quorum => HeartbeatScope::Lease,
            LeaseMode::Direct => HeartbeatScope::Jeopardy,
        };
        let lease = self.lease.state();
        let generation = lease.is_running(now).then_some(lease.generation);

        for HeartbeatRequest { request, checked, reads } in
            self.heartbeat.beat(next, need, generation)
        {
            let checked = Checked { holds: checked, sent: now, after: self.last_zxid };
            self.send(now, request, Origin::Heartbeat(checked), None);
            for (id, read) in reads {
                self.send(now, read, Origin::NodeRead(id, now), None);
            }
        }
        self.hasten_heartbeat(now);
    }

    /// A number from 0 to 1, so that sessions which began at the same moment do not send heartbeats together.
    /// It is derived from the session's state, because this crate does not use randomness.
    fn jitter(&self) -> f64 {
        let bits = self.identity.id.0.unsigned_abs() ^ u64::from(self.next_xid.unsigned_abs());
        f64::from((bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32) / f64::from(u32::MAX)
    }

    pub(super) fn send_cleanups(&mut self, now: Instant) {
        let waiting = u64::try_from(self.queued.len()).unwrap_or(u64::MAX);
        let gone = self.ever_queued.saturating_sub(waiting);
        while let Some(entry) = self.cleanup.start(gone) {
            self.send_cleanup(now, entry);
        }
    }

    pub(super) fn send_cleanup(&mut self, now: Instant, entry: PendingCleanup<T>) {
        if let Cleanup::Node(node) = &entry.target
            && node.as_str().len() <= self.config.max_frame / 2
        {
            // Written first, to keep the order of the calls.
            self.write_staged();
            let xid = self.take_xid();
            self.last_sent = now;
            self.staged = Some(StagedDelete { xid, at: now, entry });
            return;
        }

        let (before, request) = entry.target.requests();
        if let Some(request) = before {
            self.send(now, request, Origin::Nobody, None);
        }
        self.send(now, request, Origin::Cleanup(entry), None);
    }

    /// Sends a create, in one transaction with the staged delete if that is of a sibling. Returns whether it
    /// is, and the sibling is `old`.
    pub(super) fn replace_staged(
        &mut self,
        now: Instant,
        old: Option<&str>,
        create: Request,
        token: T,
    ) -> bool {
        let Request::Create2(create) = create else {
            self.submit(now, create, token);
            return false;
        };
        let Some(staged) = self.staged.take_if(|staged| staged.is_beside(&create.path)) else {
            self.submit(now, Request::Create2(create), token);
            return false;
        };

        let xid = self.take_xid();
        let node = staged.entry.target.path();
        let both = vec![Op::Delete(delete(node)), Op::Create2(create.clone())];
        let Ok(len) = self.write_limited(now, xid, &Request::Multi(both)) else {
            // Each request by itself is within the limit.
            self.staged = Some(staged);
            self.send(now, Request::Create2(create), Origin::Caller(token), None);
            return false;
        };

        let is_old = old == Some(node.as_str());
        let mode = CreateMode::from_flags(create.flags);
        let ephemeral = mode.is_some_and(CreateMode::is_ephemeral);
        let data_length = create.data.len();
        let replacement = Replacement { entry: staged.entry, token, ephemeral, data_length };
        let (op, origin) = (OpCode::Multi, Origin::Replace(Box::new(replacement)));
        self.note_sent(Sent { xid, op, len, at: now, origin, watch: None });
        is_old
    }
}

impl<T> StagedDelete<T> {
    fn is_beside(&self, path: &str) -> bool {
        let parent = |path: &str| path.rfind('/');
        let node = self.entry.target.path().as_str();
        parent(node) == parent(path) && parent(node).is_some_and(|at| node[..at] == path[..at])
    }
}
