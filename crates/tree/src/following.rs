//! A server that follows another one, like the followers of an ensemble. Requires the feature `following`.
//!
//! The leader is a complete [`Server`]. It returns what its transactions did to the tree
//! ([`Server::take_transactions`]), and a follower applies that to its own tree ([`Server::follow`]) with the
//! same `apply` and `notify`, so that its watches fire like the leader's. Reads and watches of the clients of
//! a follower need only its tree. Everything else, including sessions and their deadlines, belongs to the
//! leader: the caller forwards it and returns the replies.
//!
//! There is no election, no log and no agreement between servers here. It is for simulations in which
//! followers lag.

use bytes::Bytes;
use lockkeeper_wire::SessionId;

use crate::output::ConnectionId;
use crate::server::Server;
use crate::txn::{Record, Transactions, Txn};

impl Server {
    /// From now on, [`take_transactions`](Self::take_transactions) returns what is done to the tree. Earlier
    /// changes are in the records of [`take_changes`](Self::take_changes), from which a follower starts like
    /// any server.
    pub fn lead(&mut self) {
        self.record = Some(Record { txns: Vec::new(), taken: self.last_zxid });
    }

    /// What was done to the tree since the last call, if there was a transaction. Must be durable before a
    /// follower receives it.
    pub fn take_transactions(&mut self) -> Option<Transactions> {
        let last_zxid = self.last_zxid;
        let record = self.record.as_mut().filter(|record| record.taken != last_zxid)?;
        record.taken = last_zxid;
        Some(Transactions { txns: std::mem::take(&mut record.txns), last_zxid })
    }

    /// Applies a leader's transactions to the tree and sends watch events.
    pub fn follow(&mut self, transactions: &Transactions) {
        for (stamp, txn) in &transactions.txns {
            self.commit(*stamp, [with_own_list(txn)], drop);
        }
        self.last_zxid = transactions.last_zxid;
    }

    /// Whether to forward a handshake to the leader. Otherwise the connection is closed: the client has seen
    /// a state that this server does not have yet.
    pub fn admits(&mut self, connection: ConnectionId, handshake: Bytes) -> bool {
        self.read_handshake(connection, handshake).is_some()
    }

    /// The leader has assigned this session to the connection: its reads can be handled.
    pub fn attach(&mut self, connection: ConnectionId, session: SessionId) {
        if let Some(known) = self.connections.get_mut(&connection) {
            known.session = Some(session);
        }
    }
}

/// The same transaction with its own copy of the list: a list counts the nodes of one tree.
fn with_own_list(txn: &Txn) -> Txn {
    let mut txn = txn.clone();
    if let Txn::Create { acl, .. } | Txn::SetAcl { acl, .. } = &mut txn
        && !acl.is_open()
    {
        *acl = acl.to_vec().into();
    }
    txn
}
