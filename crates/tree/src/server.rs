//! The server: what the engine calls.

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

/// A whole ZooKeeper server, without its sockets, its clock and its disk.
pub struct Server {
    pub(crate) config: Config,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    pub(crate) last_zxid: Zxid,
    pub(crate) connections: Connections,
    /// What the identities of all connections weigh.
    pub(crate) identity_bytes: usize,
    pub(crate) watches: WatchTable,
    pub(crate) outbox: Outbox,
    pub(crate) notices: Notices,
    /// Empty; its memory is used again.
    pub(crate) events: Vec<TreeEvent>,
    /// The same, for the frame of an event.
    pub(crate) event_frame: BytesMut,
    /// When containers and TTL nodes are looked at next.
    pub(crate) reap_at: Option<Duration>,
    /// The last of those that were looked at, while there are more.
    pub(crate) reaped: Option<Arc<str>>,
    /// At what time sessions were closed by their clients last, and how many nodes they had.
    pub(crate) closed: (Duration, usize),
    /// No session begins before this time.
    pub(crate) quiet_until: Duration,
    /// The longest session timeout that was ever granted or found.
    pub(crate) longest_timeout: Duration,
    /// What the disk has room for.
    pub(crate) growth: ResourceGrowth,
    /// How many bytes of events there is memory for.
    pub(crate) event_room: usize,
    /// The last transaction that [`take_changes`](Self::take_changes) handed out.
    taken_zxid: Option<Zxid>,
    restoring: Option<Box<Restoring>>,
    /// What followers are to do as well, if there are any.
    #[cfg(any(test, feature = "following"))]
    pub(crate) record: Option<Record>,
}

/// What the server holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nodes, `/` and the nodes below `/zookeeper` included.
    pub nodes: usize,
    /// Nodes that belong to a session.
    pub ephemerals: usize,
    /// Live sessions, connected or not.
    pub sessions: usize,
    /// Watches of all kinds.
    pub watches: usize,
    /// Connections, those still before their handshake included.
    pub connections: usize,
    /// The last transaction.
    pub last_zxid: Zxid,
    /// What the watches weigh, in bytes: their paths and what the server keeps with each.
    pub watch_bytes: usize,
    /// What the identities of all connections weigh, in bytes.
    pub identity_bytes: usize,
    /// Lengths of all paths and data, in bytes.
    pub data_bytes: usize,
    /// What the nodes weigh, in bytes: paths, data, access control lists and what the server keeps with
    /// each node. About the memory that they take.
    pub weight: usize,
}

/// A live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// Its negotiated timeout.
    pub timeout: Duration,
    /// When it expires unless the client is heard of, on the clock of [`Now::monotonic`].
    pub deadline: Duration,
    /// Its connection, if it has one now.
    pub connection: Option<ConnectionId>,
    /// How many ephemeral nodes it owns.
    pub ephemerals: usize,
}

impl Server {
    /// A server with nothing but `/`, `/zookeeper`, `/zookeeper/quota` and `/zookeeper/config`.
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

    /// Takes one stored record back; records may come in any order, each key once.
    ///
    /// To be called only on a new server, before anything else.
    ///
    /// # Errors
    /// If the record is damaged or of a newer format.
    pub fn restore(&mut self, table: Table, key: &[u8], value: Bytes) -> Result<(), RestoreError> {
        let tick = self.config.tick;
        let restoring = self.restoring.get_or_insert_with(|| Box::new(Restoring::new(tick)));
        restoring.take(table, key, value)
    }

    /// Ends the restore: checks that the records fit together, and gives every session its full
    /// timeout from `now`. Without a record before it, the server stays a new one.
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

    /// A client has connected whose certificate was verified: the names of its subject, in the
    /// form of RFC 2253, are an identity of the scheme `x509`. Closes the connection if they are too
    /// long.
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

    /// The connection may only take up a session that exists, and not begin one.
    pub fn only_resumes(&mut self, connection: ConnectionId) {
        if let Some(known) = self.connections.get_mut(&connection) {
            known.only_resumes = true;
        }
    }

    /// A frame arrived, without its length prefix. The first one of a connection is the handshake.
    ///
    /// Frames of a connection that was never opened, or that the server has closed, are ignored.
    pub fn handle_frame(&mut self, now: Now, connection: ConnectionId, frame: Bytes) {
        let mut left = Some(frame);
        while let Some(frame) = left {
            left = self.handle_next(now, connection, frame);
        }
    }

    /// Handles a frame as [`handle_frame`](Self::handle_frame) does, or a part of it if it is long
    /// and need not be handled at once. The frame is then returned, to be handed in again as the next one
    /// of that connection; frames of others may go first.
    ///
    /// Nothing is done yet for a session with many nodes whose client closes it while others have ended
    /// with many nodes at the same time `now`: it is for a later time.
    #[must_use = "what is left of a frame is to be handled as well"]
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

    /// Something arrived from a client, which is handled later: its session lives on meanwhile.
    pub fn heard_of(&mut self, now: Now, connection: ConnectionId) {
        if let Some(session) = self.session_of(connection) {
            self.sessions.hear_from(now.monotonic, session);
        }
    }

    /// Sets what may grow from now on, because of how much of `resource` is left. Everything at first.
    pub fn set_growth(&mut self, resource: Resource, growth: Growth) {
        self.growth.set(resource, growth);
    }

    /// Sets how many bytes of watch events there is memory for, until the next call: a transaction has no
    /// more of them than that, if [`Config::max_fan_out`] is more. No limit at first.
    pub fn set_event_room(&mut self, bytes: usize) {
        self.event_room = bytes;
    }

    /// Closes all connections, because the server is about to stop. What was written to them before
    /// still goes out; what they still send is ignored.
    pub fn close_connections(&mut self) {
        let open: Vec<_> = self.connections.keys().copied().collect();
        for connection in open {
            self.close(connection, CloseReason::Stopping);
        }
    }

    /// The connection is gone: its watches go with it, its session lives on until its timeout.
    pub fn disconnected(&mut self, connection: ConnectionId) {
        self.forget(connection);
        self.outbox.discard(connection);
    }

    /// Does what is due: ends sessions whose deadline has passed, reaps containers and TTL nodes, forgets
    /// what connections that are gone have watched.
    ///
    /// Only a part of it if there is much; [`next_timeout`](Self::next_timeout) is then in the
    /// past. Hand in the frames that have arrived first: a session whose client was heard of must
    /// not expire because the caller was busy.
    ///
    /// Returns the sessions that ended.
    pub fn handle_timeout(&mut self, now: Now) -> Vec<SessionInfo> {
        self.watches.sweep();
        let expired = self.expire_due(now);
        self.reap_if_due(now);
        self.arm_reaper(now);
        expired
    }

    /// Gives the memory back that large tables have for more nodes, watches and connections than
    /// there are now.
    ///
    /// To be called when there is nothing else to do: a table of which less than a quarter is used
    /// moves what it holds.
    pub fn shrink(&mut self) {
        self.tree.shrink();
        self.watches.shrink();
        hash::shrink(&mut self.connections);
        self.outbox.shrink();
        self.events.shrink_to_fit();
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next, on the clock of
    /// [`Now::monotonic`]; `None` if nothing is waiting for its time.
    pub fn next_timeout(&self) -> Option<Duration> {
        let sweep_at = self.watches.has_leftovers().then_some(Duration::ZERO);
        [self.sessions.next_deadline(), self.reap_at, sweep_at].into_iter().flatten().min()
    }

    /// What must become durable since the last call: at most one change per key.
    #[must_use = "changes that are not committed are lost, while clients will be told of them"]
    pub fn take_changes(&mut self) -> Changes {
        let nodes = self.tree.touched();
        // With the state of the server, which changes along with the nodes.
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

    /// What is to be sent since the last call. For each connection in order; between connections
    /// there is none. Only after the changes that were taken before are durable.
    #[must_use = "outputs that are not sent leave clients waiting"]
    pub fn take_outputs(&mut self) -> Vec<(ConnectionId, Output)> {
        self.outbox.take()
    }

    /// How many bytes [`take_outputs`](Self::take_outputs) would give, about.
    pub fn bytes_to_send(&self) -> usize {
        self.outbox.written()
    }

    /// What the operator should hear of since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    /// What the server holds, in numbers; cheap.
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

    /// The live sessions, by id.
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

    /// Expires a session now, as if its deadline had passed; `false` if there is none such.
    pub fn expire_session(&mut self, now: Now, session: SessionId) -> bool {
        let expired = self.expire(now, session);
        self.arm_reaper(now);
        expired
    }

    /// The identities that a connection has proven; none if it is gone.
    pub(crate) fn identities(&self, id: ConnectionId) -> &[Identity] {
        self.connections.get(&id).map_or(&[], |connection| &connection.identities)
    }

    /// Closes a connection; what was written to it before still goes out.
    pub(crate) fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.forget(connection);
        self.outbox.close(connection, reason);
    }

    fn forget(&mut self, id: ConnectionId) {
        self.watches.remove_connection(id);
        let connection = self.connections.remove(&id);
        self.identity_bytes -= connection.as_ref().map_or(0, Connection::identity_bytes);
        let session = connection.and_then(|connection| connection.session);
        // Another connection may have taken the session over since.
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session))
            && session.connection == Some(id)
        {
            session.connection = None;
        }
    }
}
