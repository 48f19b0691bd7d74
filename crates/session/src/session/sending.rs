//! What goes out: requests, pings, heartbeats, deletes.

use lockkeeper_wire::{
    CreateMode, CreateRequest, Op, OpCode, Outgoing, Request, Zxid, write_frame, xid,
};

use super::{Contact, Session};
use crate::cleanup::{Entry, delete};
use crate::config::{heartbeat_interval, longest_silence};
use crate::heartbeat::Beat;
use crate::requests::{Fused, Origin, Queued, Sent, set_watch_flag};
use crate::{Cleanup, Instant, RequestError, WatchId};

impl<T> Session<T> {
    pub(super) fn submit_request(&mut self, now: Instant, queued: Queued<T>) {
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
        self.in_flight.push_back(Sent { xid, op: request.op(), at: now, origin, watch });
    }

    pub(super) fn write(&mut self, now: Instant, xid: i32, request: &impl Outgoing) -> usize {
        if now.since(self.last_sent) > longest_silence(self.identity.timeout) {
            self.doubt_lease(now);
        }
        self.last_sent = now;
        self.last_delete = None;
        write_frame(&mut self.output, |out| request.encode(xid, out))
    }

    /// What is sent now proves nothing, so the next heartbeat is due when one can.
    pub(super) fn doubt_lease(&mut self, now: Instant) {
        self.lease.doubt(now);
        self.heartbeat.hasten(self.lease.state().sure_from.max(now));
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
        let next = now + heartbeat_interval(self.identity.timeout);
        for Beat { request, checked } in self.heartbeat.beat(next) {
            self.send(now, request, Origin::Heartbeat(checked), None);
        }
    }

    pub(super) fn send_cleanups(&mut self, now: Instant) {
        while let Some(entry) = self.cleanup.start() {
            self.send_cleanup(now, entry);
        }
    }

    /// Sends those that know what they delete. The others look for it, and must come after
    /// whatever may make it.
    pub(super) fn send_known_cleanups(&mut self, now: Instant) {
        while let Some(entry) = self.cleanup.start_known() {
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
        if self.write(now, xid, &Request::Multi(both)) > self.config.max_frame {
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
        self.in_flight.push_back(Sent { xid, op, at: now, origin, watch: None });
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
        match self.in_flight.pop_back()?.origin {
            Origin::Cleanup(entry) => Some((start, entry)),
            _ => None,
        }
    }
}
