//! The server: what the engine calls.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_wire::{SessionId, Zxid};

use crate::{
    Changes, Config, ConnectionId, Entropy, Now, Output, RestoreError, Restored, Table,
};

/// A whole ZooKeeper server, without its sockets, its clock and its disk.
pub struct Server {
    _config: Config,
    _entropy: Box<dyn Entropy>,
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
    /// Lengths of all paths and data, in bytes.
    pub data_bytes: usize,
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
            _config: config,
            _entropy: entropy,
        }
    }

    /// Takes one stored record back; records may come in any order, each key once.
    ///
    /// To be called only on a new server, before anything else.
    ///
    /// # Errors
    /// If the record is damaged or of a newer format.
    pub fn restore(
        &mut self,
        _table: Table,
        _key: &[u8],
        _value: Bytes,
    ) -> Result<(), RestoreError> {
        Ok(())
    }

    /// Ends the restore: checks that the records fit together, and gives every session its full
    /// timeout from `now`. To be called also if there were no records.
    ///
    /// # Errors
    /// If the records contradict each other.
    pub fn finish_restore(&mut self, _now: Now) -> Result<Restored, RestoreError> {
        Ok(Restored::default())
    }

    /// A client has connected, from `peer` if that is an IP address.
    pub fn connected(&mut self, _connection: ConnectionId, _peer: Option<IpAddr>) {}

    /// A frame arrived, without its length prefix. The first one of a connection is the handshake.
    pub fn handle_frame(&mut self, _now: Now, _connection: ConnectionId, _frame: Bytes) {}

    /// The connection is gone: its watches go with it, its session lives on until its timeout.
    pub fn disconnected(&mut self, _connection: ConnectionId) {}

    /// Does what is due: ends sessions whose deadline has passed, reaps containers and TTL nodes.
    pub fn handle_timeout(&mut self, _now: Now) {}

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next, on the clock of
    /// [`Now::monotonic`].
    pub fn next_timeout(&self) -> Option<Duration> {
        None
    }

    /// What must become durable since the last call.
    #[must_use = "changes that are not committed are lost, while clients will be told of them"]
    pub fn take_changes(&mut self) -> Changes {
        Vec::new()
    }

    /// What is to be sent since the last call, in order. Only after the changes that were taken
    /// before are durable.
    #[must_use = "outputs that are not sent leave clients waiting"]
    pub fn take_outputs(&mut self) -> Vec<(ConnectionId, Output)> {
        Vec::new()
    }

    /// What the server holds, in numbers; cheap.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// The live sessions, by id.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        Vec::new()
    }

    /// Expires a session now, as if its deadline had passed; `false` if there is none such.
    pub fn expire_session(&mut self, _now: Now, _session: SessionId) -> bool {
        false
    }
}
