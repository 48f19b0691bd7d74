//! Messages from the server: replies, watch events, pings.

use bytes::{Buf as _, Bytes, BytesMut};
use lockkeeper_wire::{
    Decoder, DeleteRequest, ErrorCode, FrameError, OpCode, OpResult, Record, ReplyHeader, Request,
    Response, SessionId, Stat, WatchEvent as Notification, WatcherKind, ZnodePath, Zxid, xid,
};

use super::{Phase, Session};
use crate::cleanup::{Cleanup, PendingCleanup, Remainder};
use crate::config::MAX_SKIPPED_REPLY;
use crate::error::{Disconnect, Outcome, RequestError};
use crate::event::Event;
use crate::heartbeat::{Checked, EndedHold, HoldId, NodeReadOutcome};
use crate::requests::{Origin, Replacement, Sent};
use crate::time::Instant;
use crate::watch_event::WatchEvent;
use crate::watches::{Removal, WatchId};

/// The size of the length field of a frame, in bytes.
const PREFIX: usize = 4;

impl<T> Session<T> {
    pub(super) fn handle_message(&mut self, now: Instant, frame: Bytes) -> Result<(), Disconnect> {
        let mut input = Decoder::new(frame);
        let header = ReplyHeader::decode(&mut input)?;
        self.note_zxid(header.zxid);

        match header.xid {
            xid::NOTIFICATION => {
                let Notification { kind, path, .. } = Notification::decode(&mut input)?;
                let zxid = (header.zxid > Zxid(0)).then_some(header.zxid);
                self.handle_watch_event(now, &WatchEvent { kind, path, zxid });
            }
            xid::PING => {
                if let Some(sent) = self.pings.pop_front() {
                    self.note_life(now, |lease| lease.answered(sent, now));
                }
            }
            xid::AUTH if header.error != 0 => {
                // Servers answer credentials before the requests that are still in progress.
                self.fail_in_flight(RequestError::AuthFailed);
                self.finish(&RequestError::AuthFailed(Outcome::NotApplied));
                return Err(Disconnect::AuthFailed);
            }
            xid::AUTH => {}
            xid::SET_WATCHES => self.handle_rearmed(header.error)?,
            _ => return self.handle_reply(now, header, Ok(input)),
        }
        Ok(())
    }

    /// The server has rearmed watches, or refused to.
    fn handle_rearmed(&mut self, error: i32) -> Result<(), Disconnect> {
        let Some(code) = ErrorCode::from_code(error) else { return Ok(()) };

        // One-shot watches are tried again on another connection, as missed events are made up for. A
        // persistent watcher has to start again in any case, and may be able to handle the error.
        let ids = self.watches.take_persistent().into_iter();
        self.events.extend(ids.map(|id| Event::NotRearmed { id, code }));
        Err(Disconnect::Unwatched(code))
    }

    fn note_zxid(&mut self, zxid: Zxid) {
        self.last_zxid = self.last_zxid.max(zxid);
        let seen = self.history.rewound_by(zxid);
        self.note_rewind(seen, zxid);
    }

    fn note_rewind(&mut self, seen: Option<Zxid>, now: Zxid) {
        self.events.extend(seen.map(|seen| Event::Rewound { seen, now }));
    }

    /// A frame is too long. If it is the reply to a read of the caller or of a cleanup, that read fails, and
    /// the rest of the reply is discarded as it arrives. Closing the connection would put everything in doubt
    /// that depends on the session, and the reader would only repeat the read. Returns whether the frame has
    /// been handled; if not, more of it has to arrive first.
    ///
    /// # Errors
    /// If it is any other frame, or longer than [`MAX_SKIPPED_REPLY`]. A read fails in that case too: on the
    /// next connection its reply would be equally long.
    pub(super) fn handle_too_long(
        &mut self,
        now: Instant,
        fault: FrameError,
        input: &BytesMut,
    ) -> Result<bool, Disconnect> {
        let FrameError::TooLong { len, max } = fault else { return Err(fault.into()) };
        if self.phase != Phase::Connected {
            return Err(fault.into());
        }
        let Some(header) = input.get(PREFIX..PREFIX + ReplyHeader::LENGTH) else {
            return Ok(false);
        };

        let header = ReplyHeader::decode(&mut Decoder::new(Bytes::copy_from_slice(header)))?;
        let is_read = |sent: &Sent<T>| {
            sent.xid == header.xid
                && matches!(sent.origin, Origin::Caller(_) | Origin::Cleanup(_))
                && sent.outcome() == Outcome::NotApplied
        };
        if !self.in_flight.front().is_some_and(is_read) {
            return Err(fault.into());
        }

        (self.last_received, self.to_skip) = (now, PREFIX + len);
        self.note_zxid(header.zxid);
        self.handle_reply(now, header, Err(RequestError::AnswerTooLong { len, max }))?;
        if len > MAX_SKIPPED_REPLY {
            return Err(fault.into());
        }
        Ok(true)
    }

    /// Discards the available part of a reply that is too long.
    pub(super) fn skip(&mut self, now: Instant, input: &mut BytesMut) {
        let skipped = self.to_skip.min(input.len());
        if skipped > 0 {
            input.advance(skipped);
            (self.last_received, self.to_skip) = (now, self.to_skip - skipped);
        }
    }

    pub(super) fn handle_watch_event(&mut self, now: Instant, event: &WatchEvent) {
        let fired = self.watches.fire(event);
        if fired.is_empty() {
            return;
        }
        let mut paths: Vec<_> = fired.iter().map(|(_, event)| event.path.clone()).collect();
        self.events.extend(fired.into_iter().map(|(id, event)| Event::Watch { id, event }));

        // The one-shot watchers that just ended may have been the only users of a persistent watch.
        paths.dedup();
        for path in paths {
            let removals = self.watches.sweep(&path);
            self.remove_watches(now, removals);
        }
    }

    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        header: ReplyHeader,
        body: Result<Decoder, RequestError>,
    ) -> Result<(), Disconnect> {
        let expected = self.in_flight.front().map(|sent| sent.xid);
        if expected != Some(header.xid) {
            return Err(Disconnect::OutOfOrder { got: header.xid, expected });
        }
        let Some(sent) = self.in_flight.pop_front() else {
            return Ok(());
        };
        self.unanswered_bytes -= sent.len;

        let (result, fault) = match (ErrorCode::from_code(header.error), body) {
            (Some(ErrorCode::SessionExpired), _) => {
                (Err(RequestError::SessionExpired(Outcome::NotApplied)), None)
            }
            (Some(code), _) => (Err(RequestError::Server(code)), None),
            (None, Err(error)) => (Err(error), None),
            (None, Ok(mut body)) => match Response::decode(sent.op, &mut body) {
                Ok(response) => (Ok(response), None),
                Err(fault) => (Err(RequestError::BadAnswer(fault.clone())), Some(fault)),
            },
        };

        // What a reply proves counts from the moment at which its request was sent.
        let (is_commit, is_life) =
            (sent.proves_commit(&result), fault.is_none() && !denies_session(&result));
        self.note_life(now, |lease| match (is_commit, is_life) {
            (true, _) => lease.committed(sent.at, now),
            (false, true) => lease.answered(sent.at, now),
            (false, false) => {}
        });

        if sent.op == OpCode::Sync && result.is_ok() {
            let seen = self.history.rewound_at_sync(header.zxid);
            self.note_rewind(seen, header.zxid);
        }
        if let Some(id) = sent.watch {
            self.settle_watch(now, id, sent.op, &result, header.zxid);
        }

        // The reply may have made room for waiting requests, or may have been the last one before the end.
        let closed = matches!(sent.origin, Origin::Close);
        self.settle(now, sent.origin, result, header.zxid);
        self.send_waiting(now);
        self.advance_close(now);

        match fault {
            Some(fault) => Err(Disconnect::Message(fault)),
            None if closed => Err(Disconnect::Closed),
            None => Ok(()),
        }
    }

    pub(super) fn settle_watch(
        &mut self,
        now: Instant,
        id: WatchId,
        op: OpCode,
        result: &Result<Response, RequestError>,
        zxid: Zxid,
    ) {
        let Some(path) = self.watches.path(id).map(str::to_owned) else { return };

        match result {
            Ok(_) => self.watches.arm(id, false, zxid),
            Err(RequestError::Server(ErrorCode::NoNode)) if op == OpCode::Exists => {
                self.watches.arm(id, true, zxid);
            }
            // The watcher may have been the only user of a watch whose own watcher is gone.
            Err(_) => {
                let removals = self.watches.give_up(id);
                self.remove_watches(now, removals);
            }
        }

        // A refused persistent watch no longer serves the other watches of its path.
        if let Some(request) = self.watches.arm_unserved(&path) {
            self.write(now, xid::SET_WATCHES, &Request::SetWatches(request));
        }
    }

    /// Servers before 3.9 do not know the kinds of persistent watches. They can remove one only together with
    /// all other watches of its path.
    fn settle_removal(
        &mut self,
        now: Instant,
        removal: Removal,
        result: &Result<Response, RequestError>,
    ) {
        let is_persistent =
            matches!(removal.kind, WatcherKind::Persistent | WatcherKind::PersistentRecursive);
        if !is_persistent || *result != Err(RequestError::Server(ErrorCode::MarshallingError)) {
            return;
        }
        self.knows_persistent = false;
        match self.watches.any_at(&removal.path) {
            true => self.watches.leave_behind(removal),
            false => self.remove_watches(now, vec![removal]),
        }
    }

    pub(super) fn settle(
        &mut self,
        now: Instant,
        origin: Origin<T>,
        result: Result<Response, RequestError>,
        zxid: Zxid,
    ) {
        match origin {
            Origin::Caller(token) => self.events.push_back(Event::Reply { token, result, zxid }),
            Origin::Heartbeat(checked) => self.settle_heartbeat(now, checked, result, zxid),
            Origin::NodeRead(id, checked) => self.settle_node_read(now, id, checked, result),
            Origin::Cleanup(entry) => self.settle_cleanup(now, entry, result),
            Origin::Replace(replaced) => self.settle_replacement(now, *replaced, result, zxid),
            Origin::Unwatch(removal) => self.settle_removal(now, removal, &result),
            Origin::Close => self.finish(&RequestError::Closed),
            Origin::Nobody => {}
        }
    }

    pub(super) fn settle_heartbeat(
        &mut self,
        now: Instant,
        checked: Checked,
        result: Result<Response, RequestError>,
        zxid: Zxid,
    ) {
        self.heartbeat.settled();
        // Other replies contain no information about nodes.
        let Ok(Response::Multi(results)) = result else { return };
        if results.iter().all(|result| *result == OpResult::Check) {
            self.note_commit(&checked, zxid);
        }
        for EndedHold { id, path, code } in self.heartbeat.answered(checked.holds, &results, now) {
            self.events.push_back(match code {
                ErrorCode::NoNode => Event::NodeGone { id },
                code => Event::CheckRefused { id, path, code },
            });
        }
    }

    /// A heartbeat was committed as this transaction. It must be newer than everything seen before. Servers
    /// that were restored from older data return lower numbers: they have the nodes of that time, regardless
    /// of who has held a lock since. So no hold survives that.
    fn note_commit(&mut self, checked: &Checked, zxid: Zxid) {
        if zxid > checked.after {
            return self.heartbeat.checked(&checked.holds, checked.sent);
        }
        if zxid < checked.after && self.heartbeat.end_all_at_deadline() {
            self.events.push_back(Event::Rewound { seen: checked.after, now: zxid });
        }
    }

    /// A read of the node of a hold, behind the check of a heartbeat, was answered. A hold in jeopardy
    /// continues if the read shows the same node and the check counts for the lease.
    fn settle_node_read(
        &mut self,
        now: Instant,
        id: HoldId,
        checked: Instant,
        result: Result<Response, RequestError>,
    ) {
        let found = match result {
            Ok(Response::Stat(stat)) => {
                (stat.ephemeral_owner == self.identity.id).then_some(stat.czxid)
            }
            Err(RequestError::Server(ErrorCode::NoNode)) => None,
            _ => return,
        };

        let lease = self.lease.state();
        let generation = lease.is_running(now).then_some(lease.generation);
        match self.heartbeat.node_read(id, checked, found, generation) {
            NodeReadOutcome::Gone => self.events.push_back(Event::NodeGone { id }),
            NodeReadOutcome::Proven if self.lease.is_proven_by(checked, now) => {
                self.heartbeat.proven(id, lease.generation);
                self.events.push_back(Event::HeldAgain { id });
            }
            NodeReadOutcome::Proven | NodeReadOutcome::Unproven => {}
        }
    }

    pub(super) fn settle_cleanup(
        &mut self,
        now: Instant,
        entry: PendingCleanup<T>,
        result: Result<Response, RequestError>,
    ) {
        self.cleanup.finish();

        match entry.target.remainder(&result, self.identity.id) {
            Remainder::Nothing => self.answer(entry.notify, Ok(Response::Empty)),
            Remainder::Delete { version } => self.delete_verified(now, entry, version),
            Remainder::Nodes(nodes) => self.delete_found(now, nodes, entry.notify),
            Remainder::Retry => {
                self.cleanup.push(entry);
                self.send_cleanups(now);
            }
            Remainder::Later => self.cleanup.push(entry),
            Remainder::Refused(error) => {
                if let RequestError::Server(code) = error {
                    let path = entry.target.path().to_string();
                    self.events.push_back(Event::CleanupRefused { path, code });
                }
                self.answer(entry.notify, Err(error));
            }
        }
    }

    /// Deletes a node that a read has found to be the expected one.
    ///
    /// If the reply is lost, the cleanup restarts with another read, because the name may belong to another
    /// client by then. It may already, if the node was changed and then taken by force; in that case its
    /// version differs.
    fn delete_verified(&mut self, now: Instant, entry: PendingCleanup<T>, version: i32) {
        let delete = DeleteRequest { path: entry.target.path().to_string(), version };
        self.cleanup.resume();
        self.send(now, Request::Delete(delete), Origin::Cleanup(entry), None);
    }

    pub(super) fn settle_replacement(
        &mut self,
        now: Instant,
        replaced: Replacement<T>,
        result: Result<Response, RequestError>,
        zxid: Zxid,
    ) {
        let (result, undone) = match result {
            Ok(Response::Multi(mut results)) => match results.pop() {
                Some(OpResult::Create2 { path, stat }) => {
                    (Ok(Response::Created { path, stat }), false)
                }
                Some(OpResult::Create { path }) => {
                    let stat = self.stat_of(&replaced, zxid);
                    (Ok(Response::Created { path, stat }), false)
                }
                // Only the create itself was refused.
                Some(OpResult::Error(Some(code))) if code != ErrorCode::RuntimeInconsistency => {
                    (Err(RequestError::Server(code)), true)
                }
                _ => (Err(RequestError::Undone), true),
            },
            // Whatever the server refused: the create fails with its own error when it is sent by itself.
            Err(RequestError::Server(code)) if !RequestError::Server(code).is_retryable() => {
                (Err(RequestError::Undone), true)
            }
            Err(error) => (Err(error), false),
            Ok(_) => (Err(RequestError::Undone), true),
        };

        if undone {
            // The create is not repeated: a search for its node may already be in flight, and must find
            // everything that the create will ever have made.
            self.send_cleanup(now, replaced.entry);
        } else {
            let deleted = result.as_ref().map(|_| Response::Empty).map_err(RequestError::clone);
            self.settle_cleanup(now, replaced.entry, deleted);
        }
        self.events.push_back(Event::Reply { token: replaced.token, result, zxid });
    }

    /// Apache ZooKeeper replies to a create in a transaction without the stat. Everything but the times is
    /// known.
    fn stat_of(&self, created: &Replacement<T>, zxid: Zxid) -> Stat {
        let owner = if created.ephemeral { self.identity.id } else { SessionId::NONE };
        let data_length = i32::try_from(created.data_length).unwrap_or(i32::MAX);
        Stat { data_length, ..Stat::of_new(zxid, owner) }
    }

    /// Deletes the nodes found by a listing; at most one, as each attempt has a unique prefix.
    pub(super) fn delete_found(
        &mut self,
        now: Instant,
        nodes: Vec<ZnodePath>,
        mut notify: Option<T>,
    ) {
        if nodes.is_empty() {
            return self.answer(notify, Ok(Response::Empty));
        }
        for node in nodes {
            let (target, notify) = (Cleanup::Node(node), notify.take());
            self.cleanup.push(PendingCleanup { target, notify, after: 0 });
        }
        self.send_cleanups(now);
    }
}

/// Whether the server reports that it does not serve the session: such a reply does not prove that the
/// session is alive.
fn denies_session(result: &Result<Response, RequestError>) -> bool {
    matches!(
        result,
        Err(RequestError::SessionExpired(_) | RequestError::Server(ErrorCode::SessionMoved))
    )
}
