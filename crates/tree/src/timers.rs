//! Effects of time: sessions expire, and containers and TTL nodes are deleted.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_wire::{OpCode, SessionId};

use crate::config::Now;
use crate::nodes::{Node, Owner};
use crate::output::{CloseReason, ConnectionId};
use crate::server::{Server, SessionInfo};
use crate::txn::Txn;

/// The maximum number of sessions that expire, or nodes that are reaped, in one call. The rest is handled by
/// the next call, so that requests of other clients are served in between.
const BATCH: usize = 256;
/// The maximum number of nodes of the sessions that expire in one call, or that clients close at one time. A
/// single session may have more.
const BATCH_NODES: usize = 1_024;
/// The maximum size of the events of the transactions of one call. A single transaction may have more.
const BATCH_EVENTS: usize = 4 * 1024 * 1024;

/// The maximum number of containers and TTL nodes that are examined in one call: a million of which none is
/// overdue would block all clients.
const MAX_EXAMINED: usize = 4_096;

impl Server {
    pub(crate) fn expire_due(&mut self, now: Now) -> Vec<SessionInfo> {
        let due = self.sessions.due(now.monotonic, BATCH);
        let mut expired: Vec<SessionInfo> = Vec::new();
        let (mut nodes, mut events) = (0, 0);

        for id in due {
            let Some(session) = self.session(id) else { continue };
            // A session ends as a whole, however many nodes it has.
            nodes += session.ephemerals;
            if (nodes > BATCH_NODES || events > BATCH_EVENTS) && !expired.is_empty() {
                break;
            }
            self.expire(now, id);
            events += self.outbox.weight();
            expired.push(session);
        }
        expired
    }

    /// Whether a frame closes a session that must end later, because too many nodes have been deleted at this
    /// time.
    pub(crate) fn is_for_later(&self, now: Now, connection: ConnectionId, frame: &[u8]) -> bool {
        let closes = frame.get(4..8) == Some(&OpCode::CloseSession.code().to_be_bytes());
        let (time, nodes) = self.closed;
        if !closes || time != now.monotonic || nodes == 0 {
            return false;
        }
        let own = self.session_of(connection).map_or(0, |session| self.tree.ephemerals_of(session));
        nodes + own > BATCH_NODES
    }

    /// Ends a session that its client closes.
    pub(crate) fn end_closed(&mut self, now: Now, session: SessionId) {
        let nodes = self.tree.ephemerals_of(session);
        let (time, before) = self.closed;
        let before = if time == now.monotonic { before } else { 0 };
        self.closed = (now.monotonic, before + nodes);
        self.end_session(now, session);
    }

    /// Ends a session whose client has been silent for too long.
    pub(crate) fn expire(&mut self, now: Now, id: SessionId) -> bool {
        let Some(session) = self.sessions.get(id) else {
            return false;
        };
        let connection = session.connection;
        self.end_session(now, id);
        if let Some(connection) = connection {
            self.close(connection, CloseReason::SessionExpired);
        }
        true
    }

    /// Removes a session and deletes all its ephemeral nodes in one transaction.
    pub(crate) fn end_session(&mut self, now: Now, session: SessionId) {
        let stamp = self.next_stamp(now);
        self.sessions.remove(session);
        let paths = self.tree.ephemerals(session).into_iter().cloned();
        let txns: Vec<Txn> = paths.map(|path| Txn::Delete { path }).collect();
        self.commit(stamp, txns, drop);
    }

    pub(crate) fn reap_if_due(&mut self, now: Now) {
        if self.reap_at.is_none_or(|at| now.monotonic < at) {
            return;
        }

        let mut overdue = self.next_overdue(now).into_iter();
        let mut events = 0;
        while let Some(path) = overdue.next() {
            let stamp = self.next_stamp(now);
            self.commit(stamp, [Txn::Delete { path: Arc::clone(&path) }], drop);
            events += self.outbox.weight();
            if events > BATCH_EVENTS && overdue.len() > 0 {
                // The next portion starts after this one.
                self.reaped = Some(path);
                break;
            }
        }

        // The rest of the portion is due at once.
        let wait = if self.reaped.is_none() { self.config.reap_interval } else { Duration::ZERO };
        self.reap_at = Some(now.monotonic.saturating_add(wait));
    }

    /// Sets the timer only if there are nodes that may have to be reaped: an idle server does not wake up.
    pub(crate) fn arm_reaper(&mut self, now: Now) {
        let any = self.tree.reapable(None).next().is_some();
        self.reap_at = match self.reap_at {
            _ if !any => None,
            None => Some(now.monotonic.saturating_add(self.config.reap_interval)),
            armed => armed,
        };
    }

    /// The overdue nodes of the next portion. [`Server::reaped`] is the end of that portion, or `None` after
    /// the last one.
    fn next_overdue(&mut self, now: Now) -> Vec<Arc<str>> {
        let mut overdue = Vec::new();
        let after = self.reaped.take();
        let mut candidates = self.tree.reapable(after.as_deref());
        let mut last = None;
        for path in candidates.by_ref().take(MAX_EXAMINED) {
            last = Some(path);
            if self.tree.get(path).is_some_and(|node| self.is_overdue(node, now)) {
                overdue.push(Arc::clone(path));
            }
            if overdue.len() == BATCH {
                break;
            }
        }

        let has_more = candidates.next().is_some();
        self.reaped = last.filter(|_| has_more).cloned();
        overdue
    }

    /// A container that never had a child is probably about to get its first one.
    fn is_overdue(&self, node: &Node, now: Now) -> bool {
        let idle_ms = now.unix_ms.saturating_sub(node.mtime);
        let unused_too_long = self
            .config
            .unused_container
            .is_some_and(|limit| idle_ms as i128 > limit.as_millis() as i128);
        match node.owner {
            _ if !node.children.is_empty() => false,
            Owner::Container => node.child_creates != 0 || unused_too_long,
            Owner::Ttl(ttl) => idle_ms > ttl,
            Owner::None | Owner::Session(_) => false,
        }
    }
}
