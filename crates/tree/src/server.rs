//! The server: the interface for the engine.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{SessionId, Zxid};

use crate::acl::Identity;
use crate::changes::{Changes, RestoreError, Table};
use crate::config::{Config, Entropy, Now};
use crate::connections::{Connection, Connections, RequestContext};
use crate::hash;
use crate::nodes::Tree;
use crate::notices::{Notice, Notices};
use crate::outbox::Outbox;
use crate::output::{CloseReason, ConnectionId, Output};
use crate::rearming::Rearming;
use crate::records::{self, STATE_KEY};
use crate::restore::Restoring;
use crate::room::{Growth, Resource, ResourceGrowth};
use crate::sessions::{Session, Sessions};
#[cfg(any(test, feature = "following"))]
use crate::txn::Record;
use crate::txn::TreeEvent;
use crate::watches::WatchTable;

/// A complete ZooKeeper server, without sockets, clock and disk.
pub struct Server {
    pub(crate) config: Config,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    pub(crate) last_zxid: Zxid,
    pub(crate) connections: Connections,
    /// The memory use of the identities of all connections.
    pub(crate) identity_bytes: usize,
    pub(crate) watches: WatchTable,
    pub(crate) outbox: Outbox,
    pub(crate) notices: Notices,
    /// Empty between requests; the allocation is reused.
    pub(crate) events: Vec<TreeEvent>,
    /// The same, for the frame of an event.
    pub(crate) event_frame: BytesMut,
    /// When to search for containers and TTL nodes next.
    pub(crate) reap_at: Option<Duration>,
    /// The last path that was examined, if the search is not complete.
    pub(crate) reaped: Option<Arc<str>>,
    /// When clients last closed sessions, and how many nodes those sessions had.
    pub(crate) closed: (Duration, usize),
    /// New sessions are refused before this time.
    pub(crate) quiet_until: Duration,
    /// The longest session timeout that was ever granted or restored.
    pub(crate) longest_timeout: Duration,
    /// What may grow, according to the free disk space and memory.
    pub(crate) growth: ResourceGrowth,
    /// The memory available for events, in bytes.
    pub(crate) event_room: usize,
    /// The last transaction that [`take_changes`](Self::take_changes) returned.
    taken_zxid: Option<Zxid>,
    restoring: Option<Box<Restoring>>,
    /// The transactions for followers, if there are any.
    #[cfg(any(test, feature = "following"))]
    pub(crate) record: Option<Record>,
}

/// The size of the server's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nodes, including `/` and those below `/zookeeper`.
    pub nodes: usize,
    /// Nodes that belong to a session.
    pub ephemerals: usize,
    /// Live sessions, connected or not.
    pub sessions: usize,
    /// Watches of all kinds.
    pub watches: usize,
    /// Connections, including those before their handshake.
    pub connections: usize,
    /// The last transaction.
    pub last_zxid: Zxid,
    /// The memory use of the watches, in bytes: their paths and the overhead.
    pub watch_bytes: usize,
    /// The memory use of the identities of all connections, in bytes.
    pub identity_bytes: usize,
    /// The total length of all paths and data, in bytes.
    pub data_bytes: usize,
    /// The approximate memory use of the nodes, in bytes: paths, data, access control lists and the overhead
    /// of each node.
    pub weight: usize,
}

/// A live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The id.
    pub id: SessionId,
    /// The negotiated timeout.
    pub timeout: Duration,
    /// When the session expires unless the client sends something, on the clock of [`Now::monotonic`].
    pub deadline: Duration,
    /// The connection, if the client is connected.
    pub connection: Option<ConnectionId>,
    /// The number of ephemeral nodes that it owns.
    pub ephemerals: usize,
}

impl Server {
    /// A server with only the nodes `/`, `/zookeeper`, `/zookeeper/quota` and `/zookeeper/config`.
    pub fn new(config: Config, entropy: Box<dyn Entropy>) -> Self {
        Self {
            tree: Tree::new(),
            sessions: Sessions::new(config.tick),
            config,
            entropy,
            last_zxid: Zxid(0),
            connections: Connections::default(),
            identity_bytes: 0,
            watches: WatchTable::default(),
            outbox: Outbox::default(),
            notices: Notices::default(),
            reap_at: None,
            reaped: None,
            closed: (Duration::ZERO, 0),
            quiet_until: Duration::ZERO,
            longest_timeout: Duration::ZERO,
            growth: ResourceGrowth::default(),
            event_room: usize::MAX,
            taken_zxid: None,
            events: Vec::new(),
            event_frame: BytesMut::new(),
            restoring: None,
            #[cfg(any(test, feature = "following"))]
            record: None,
        }
    }

    /// Restores one stored record. Records may be in any order, each key once.
    ///
    /// Must be called only on a new server, before any other method.
    ///
    /// # Errors
    /// If the record is damaged or of a newer format.
    pub fn restore(&mut self, table: Table, key: &[u8], value: Bytes) -> Result<(), RestoreError> {
        let tick = self.config.tick;
        let restoring = self.restoring.get_or_insert_with(|| Box::new(Restoring::new(tick)));
        restoring.take(table, key, value)
    }

    /// Completes the restore: checks that the records are consistent, and gives every session its full
    /// timeout from `now`. If no record was restored, the server remains a new one.
    ///
    /// # Errors
    /// If the records contradict each other.
    pub fn finish_restore(&mut self, now: Now) -> Result<(), RestoreError> {
        if let Some(mut restoring) = self.restoring.take() {
            self.last_zxid = restoring.finish()?;
            self.taken_zxid = Some(self.last_zxid);
            self.tree = restoring.tree;
            self.sessions = restoring.sessions;
            self.sessions.hear_from_all(now.monotonic);
            self.longest_timeout = self.longest_live_timeout();
        }

        self.arm_reaper(now);
        Ok(())
    }

    /// A client has connected, from `peer` if that is an IP address.
    pub fn connected(&mut self, connection: ConnectionId, peer: Option<IpAddr>) {
        self.add_connection(connection, Connection::new(peer, None));
    }

    /// A client with a verified certificate has connected. The names of its subject, in the form of RFC 2253,
    /// are an identity of the scheme `x509`. Closes the connection if they are too long.
    pub fn connected_with_certificate(
        &mut self,
        connection: ConnectionId,
        peer: Option<IpAddr>,
        subject: String,
    ) {
        self.add_connection(connection, Connection::new(peer, Some(subject)));
    }

    fn add_connection(&mut self, id: ConnectionId, connection: Connection) {
        let checked = connection.check_identities();
        self.identity_bytes += connection.identity_bytes();
        self.connections.insert(id, connection);
        if let Err(reason) = checked {
            self.close(id, reason);
        }
    }

    /// The connection may only resume an existing session, not start a new one.
    pub fn only_resumes(&mut self, connection: ConnectionId) {
        if let Some(known) = self.connections.get_mut(&connection) {
            known.only_resumes = true;
        }
    }

    /// A frame has arrived, without its length prefix. The first frame of a connection is the handshake.
    ///
    /// Frames of unknown connections, and of those that the server has closed, are ignored.
    pub fn handle_frame(&mut self, now: Now, connection: ConnectionId, frame: Bytes) {
        let mut left = Some(frame);
        while let Some(frame) = left {
            left = self.handle_next(now, connection, frame);
        }
    }

    /// Like [`handle_frame`](Self::handle_frame), but handles only a part of a long frame that need not be
    /// handled at once. The frame is then returned, and must be passed again as the next frame of that
    /// connection; frames of other connections may be handled before.
    ///
    /// A frame that closes a session with many nodes is returned unhandled if other sessions with many nodes
    /// have ended at the same time `now`. It must be passed again at a later time.
    #[must_use = "the rest of the frame must be handled too"]
    pub fn handle_part(
        &mut self,
        now: Now,
        connection: ConnectionId,
        frame: Bytes,
    ) -> Option<Bytes> {
        if self.is_for_later(now, connection, &frame) {
            return Some(frame);
        }
        self.handle_next(now, connection, frame)
    }

    fn handle_next(&mut self, now: Now, connection: ConnectionId, frame: Bytes) -> Option<Bytes> {
        let known = self.connections.get_mut(&connection)?;
        let (len, max) = (frame.len(), self.config.max_frame);
        if len > max {
            self.close(connection, CloseReason::FrameTooLong { len, max });
            return None;
        }

        let Some(session) = known.session else {
            self.handshake(now, connection, frame);
            self.arm_reaper(now);
            return None;
        };

        let context = RequestContext { now, connection, session };
        let begun = known.rearming.take().or_else(|| Rearming::begin(&frame).map(Box::new));
        if let Some(rearming) = begun {
            return self.rearm(context, rearming).then_some(frame);
        }

        self.request(context, frame);
        self.arm_reaper(now);
        None
    }

    /// A client has sent something that is handled later. Its session stays alive until then.
    pub fn heard_of(&mut self, now: Now, connection: ConnectionId) {
        if let Some(session) = self.session_of(connection) {
            self.sessions.hear_from(now.monotonic, session);
        }
    }

    /// Sets what may grow from now on, according to the free amount of `resource`. Default: everything.
    pub fn set_growth(&mut self, resource: Resource, growth: Growth) {
        self.growth.set(resource, growth);
    }

    /// Sets the memory available for watch events, in bytes, until the next call. It limits the events of one
    /// transaction if it is less than [`Config::max_fan_out`]. Default: unlimited.
    pub fn set_event_room(&mut self, bytes: usize) {
        self.event_room = bytes;
    }

    /// Closes all connections, because the server is about to stop. Output written before is still sent;
    /// further input is ignored.
    pub fn close_connections(&mut self) {
        let open: Vec<_> = self.connections.keys().copied().collect();
        for connection in open {
            self.close(connection, CloseReason::Stopping);
        }
    }

    /// The connection is closed. Its watches are removed; its session stays alive until its timeout.
    pub fn disconnected(&mut self, connection: ConnectionId) {
        self.forget(connection);
        self.outbox.discard(connection);
    }

    /// Handles everything that is due: ends sessions whose deadline has passed, deletes containers and TTL
    /// nodes, and removes the watches of closed connections.
    ///
    /// If there is much to do, only a part is done; [`next_timeout`](Self::next_timeout) is then in the past.
    /// Pass the frames that have arrived first: a session whose client has sent something must not expire
    /// because the caller was busy.
    ///
    /// Returns the sessions that ended.
    pub fn handle_timeout(&mut self, now: Now) -> Vec<SessionInfo> {
        self.watches.sweep();
        let expired = self.expire_due(now);
        self.reap_if_due(now);
        self.arm_reaper(now);
        expired
    }

    /// Frees memory that large tables no longer need for nodes, watches and connections.
    ///
    /// Call it when the server is idle: a table that is less than a quarter full moves its content.
    pub fn shrink(&mut self) {
        self.tree.shrink();
        self.watches.shrink();
        hash::shrink(&mut self.connections);
        self.outbox.shrink();
        self.events.shrink_to_fit();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next, on the clock of [`Now::monotonic`]; `None`
    /// if nothing is pending.
    pub fn next_timeout(&self) -> Option<Duration> {
        let sweep_at = self.watches.has_leftovers().then_some(Duration::ZERO);
        [self.sessions.next_deadline(), self.reap_at, sweep_at].into_iter().flatten().min()
    }

    /// The changes since the last call that must become durable: at most one per key.
    #[must_use = "changes that are not committed are lost, although clients will see them"]
    pub fn take_changes(&mut self) -> Changes {
        let nodes = self.tree.touched();
        // Includes the state of the server, which changes along with the nodes.
        let mut changes = Changes::with_room(if nodes == 0 { 0 } else { nodes + 1 });
        self.tree.take_touched(|path, is_new, node| {
            let value = node.map(|node| |out: &mut Vec<u8>| records::put_node(node, out));
            changes.add((Table::Nodes, is_new), path.as_bytes(), value);
        });

        for id in self.sessions.take_touched() {
            let session = self.sessions.get(id);
            let value =
                session.map(|session| |out: &mut Vec<u8>| records::put_session(session, out));
            changes.add((Table::Sessions, false), &id.0.to_be_bytes(), value);
        }

        if self.taken_zxid != Some(self.last_zxid) {
            self.taken_zxid = Some(self.last_zxid);
            let state = |out: &mut Vec<u8>| records::put_state(self.last_zxid, out);
            changes.add((Table::Meta, false), STATE_KEY, Some(state));
        }
        changes
    }

    /// The outputs since the last call, in order for each connection, without an order between connections.
    /// Send them only after the changes taken before are durable.
    #[must_use = "outputs that are not sent leave clients waiting"]
    pub fn take_outputs(&mut self) -> Vec<(ConnectionId, Output)> {
        self.outbox.take()
    }

    /// The approximate number of bytes that [`take_outputs`](Self::take_outputs) would return.
    pub fn bytes_to_send(&self) -> usize {
        self.outbox.written()
    }

    /// The notices for the operator since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    /// The size of the server's state. Cheap.
    pub fn stats(&self) -> Stats {
        Stats {
            nodes: self.tree.len(),
            ephemerals: self.tree.ephemeral_count(),
            sessions: self.sessions.len(),
            watches: self.watches.len(),
            connections: self.connections.len(),
            last_zxid: self.last_zxid,
            watch_bytes: self.watches.bytes(),
            identity_bytes: self.identity_bytes,
            data_bytes: self.tree.bytes(),
            weight: self.tree.weight(),
        }
    }

    /// The live sessions, sorted by id.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sessions.iter().map(|(id, session)| self.session_info(id, session)).collect()
    }

    fn session_info(&self, id: SessionId, session: &Session) -> SessionInfo {
        SessionInfo {
            id,
            timeout: session.timeout,
            deadline: session.deadline,
            connection: session.connection,
            ephemerals: self.tree.ephemerals_of(id),
        }
    }

    /// A live session.
    pub fn session(&self, id: SessionId) -> Option<SessionInfo> {
        self.sessions.get(id).map(|session| self.session_info(id, session))
    }

    /// Expires a session now, as if its deadline had passed. Returns `false` if the session does not exist.
    pub fn expire_session(&mut self, now: Now, session: SessionId) -> bool {
        let expired = self.expire(now, session);
        self.arm_reaper(now);
        expired
    }

    /// The identities of a connection; empty if it is closed.
    pub(crate) fn identities(&self, id: ConnectionId) -> &[Identity] {
        self.connections.get(&id).map_or(&[], |connection| &connection.identities)
    }

    /// Closes a connection. Output written before is still sent.
    pub(crate) fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.forget(connection);
        self.outbox.close(connection, reason);
    }

    fn forget(&mut self, id: ConnectionId) {
        self.watches.remove_connection(id);
        let connection = self.connections.remove(&id);
        self.identity_bytes -= connection.as_ref().map_or(0, Connection::identity_bytes);
        let session = connection.and_then(|connection| connection.session);
        // Another connection may have resumed the session since.
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session))
            && session.connection == Some(id)
        {
            session.connection = None;
        }
    }
}
