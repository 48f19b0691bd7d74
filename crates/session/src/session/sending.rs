//! What goes out: requests, pings, heartbeats, deletes.

use lockkeeper_wire::{
    CreateMode, CreateRequest, Op, OpCode, Outgoing, Request, Zxid, write_frame, xid,
};

use super::{Contact, Phase, Session};
use crate::cleanup::Cleanup;
use crate::cleanup::{Entry, delete};
use crate::error::RequestError;
use crate::heartbeat::Beat;
use crate::requests::{Fused, Origin, Queued, Sent, set_watch_flag};
use crate::time::Instant;
use crate::watches::WatchId;

/// How much may be without an answer when another request of the caller is sent: in bytes, and in
/// requests.
const MOST_UNANSWERED_BYTES: usize = 1 << 20;
const MOST_UNANSWERED_REQUESTS: usize = 4096;

impl<T> Session<T> {
    pub(super) fn submit_request(&mut self, now: Instant, queued: Queued<T>) {
        let refusal = match self.contact() {
            Contact::Closed => Some(RequestError::Closed),
            _ if self.closing => Some(RequestError::Closed),
            Contact::Unreachable => Some(RequestError::Unreachable),
            Contact::Disconnected => return self.queue(queued),
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

    /// Whether a request has to wait although there is a connection.
    pub(super) fn must_wait(&self, now: Instant) -> bool {
        !self.queued.is_empty() || self.is_busy(now)
    }

    /// Whether so much is without an answer that a heartbeat behind more of it could be late.
    fn is_busy(&self, now: Instant) -> bool {
        // The last one is for what is asked in few bytes and answered in many.
        let is_late = |oldest: &Sent<T>| now.since(oldest.at) >= self.busy_after;
        self.unanswered_bytes >= MOST_UNANSWERED_BYTES
            || self.in_flight.len() >= MOST_UNANSWERED_REQUESTS
            || self.in_flight.front().is_some_and(is_late)
    }

    /// Sends what has waited for a connection, or for answers.
    pub(super) fn send_waiting(&mut self, now: Instant) {
        while self.phase == Phase::Connected
            && !self.is_busy(now)
            && let Some(queued) = self.queued.pop_front()
        {
            self.send_queued(now, queued);
            self.send_cleanups(now);
        }
    }

    pub(super) fn refuse(&mut self, queued: Queued<T>, error: RequestError) {
        if let Some(id) = queued.watch {
            self.watches.remove(id);
        }
        self.answer(Some(queued.token), Err(error));
    }

    pub(super) fn send_queued(&mut self, now: Instant, queued: Queued<T>) {
        let Queued { mut request, token, watch } = queued;
        // A watcher that went away while its request waited wants no watch.
        let watch = watch.filter(|id| self.watches.contains(*id));
        set_watch_flag(&mut request, watch.is_some());
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
        let start = self.output.len();
        let len = self.write(now, xid, &request);
        if len > self.config.max_frame {
            self.output.truncate(start);
            if let Some(id) = watch {
                self.watches.remove(id);
            }
            let error = RequestError::TooLarge { len, max: self.config.max_frame };
            return self.settle(now, origin, Err(error), Zxid(0));
        }
        self.note_sent(Sent { xid, op: request.op(), len, at: now, origin, watch });
    }

    fn note_sent(&mut self, sent: Sent<T>) {
        self.unanswered_bytes += sent.len;
        self.in_flight.push_back(sent);
    }

    pub(super) fn write(&mut self, now: Instant, xid: i32, request: &impl Outgoing) -> usize {
        self.last_sent = now;
        self.last_delete = None;
        write_frame(&mut self.output, |out| request.encode(xid, out))
    }

    /// While what is sent proves nothing, the next heartbeat is due when one can.
    pub(super) fn hasten_heartbeat(&mut self, now: Instant) {
        let sure_from = self.lease.state().sure_from;
        if sure_from > now {
            self.heartbeat.hasten(sure_from);
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
        for Beat { request, checked } in self.heartbeat.beat(next) {
            self.send(now, request, Origin::Heartbeat(checked), None);
        }
    }

    /// A number from 0 to 1, so that sessions which began at the same moment do not beat together.
    /// It follows from what the session is and does, as nothing here may draw.
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

    pub(super) fn send_cleanup(&mut self, now: Instant, entry: Entry<T>) {
        let (before, request) = entry.target.requests();
        if let Some(request) = before {
            self.send(now, request, Origin::Nobody, None);
        }
        let start = self.output.len();
        let is_delete = matches!(request, Request::Delete(_));
        self.send(now, request, Origin::Cleanup(entry), None);
        self.last_delete = (is_delete && self.output.len() > start).then_some(start);
    }

    /// Sends a create, in one transaction with the delete that is the last thing in the output if
    /// that is of a node beside it. Gives whether it is, and the delete is that of the `known` node.
    pub(super) fn fuse(
        &mut self,
        now: Instant,
        create: Request,
        token: T,
        known: Option<&str>,
    ) -> bool {
        let Request::Create2(create) = create else {
            self.submit(now, create, token);
            return false;
        };
        let Some((start, entry)) = self.take_back_delete(&create) else {
            self.submit(now, Request::Create2(create), token);
            return false;
        };

        self.output.truncate(start);
        let xid = self.take_xid();
        let both = vec![Op::Delete(delete(entry.target.path())), Op::Create2(create.clone())];
        let len = self.write(now, xid, &Request::Multi(both));
        // Each alone is within the limit.
        if len > self.config.max_frame {
            self.output.truncate(start);
            self.send_cleanup(now, entry);
            self.send(now, Request::Create2(create), Origin::Caller(token), None);
            return false;
        }

        let is_known = known == Some(entry.target.path().as_str());
        let mode = CreateMode::from_flags(create.flags);
        let ephemeral = mode.is_some_and(CreateMode::is_ephemeral);
        let fused = Fused { entry, token, ephemeral, data_length: create.data.len() };
        let (op, origin) = (OpCode::Multi, Origin::Fused(Box::new(fused)));
        self.note_sent(Sent { xid, op, len, at: now, origin, watch: None });
        is_known
    }

    /// Takes back the delete that is the last thing in the output, if it is of a node beside the
    /// one to be created: where in the output it begins, and whose it is.
    fn take_back_delete(&mut self, create: &CreateRequest) -> Option<(usize, Entry<T>)> {
        let start = self.last_delete.take()?;
        let Origin::Cleanup(entry) = &self.in_flight.back()?.origin else { return None };
        let Cleanup::Node(node) = &entry.target else { return None };
        if node.as_str().rsplit_once('/')?.0 != create.path.rsplit_once('/')?.0 {
            return None;
        }
        let sent = self.in_flight.pop_back()?;
        self.unanswered_bytes -= sent.len;
        match sent.origin {
            Origin::Cleanup(entry) => Some((start, entry)),
            _ => None,
        }
    }
}
