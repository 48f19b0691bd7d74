//! A server that follows another one, as the followers of an ensemble do. Only with the feature `following`.
//!
//! The leader is a whole [`Server`]. It hands out what its transactions did to the tree
//! ([`Server::take_transactions`]), and a follower applies that to its own tree ([`Server::follow`]) with the
//! same `apply` and `notify`, so that its watches fire as the leader's do. Reads and watches of the clients
//! that are connected to a follower need nothing but its tree. Everything else is the leader's, sessions and
//! their deadlines included: the caller passes it on, and brings the answers back.
//!
//! There is no election, no log and no agreement of several servers here. It is for simulations, in which
//! followers lag.

use bytes::Bytes;
use lockkeeper_wire::SessionId;

use crate::output::ConnectionId;
use crate::server::Server;
use crate::txn::{Record, Transactions, Txn};

impl Server {
    /// From now on, [`take_transactions`](Self::take_transactions) has what is done to the tree. What has
    /// been done before is in the records of [`take_changes`](Self::take_changes), from which a follower
    /// starts as any server does.
    pub fn lead(&mut self) {
        self.record = Some(Record { txns: Vec::new(), taken: self.last_zxid });
    }

    /// What was done to the tree since the last call, if there was a transaction. To be shown to no follower
    /// before it is durable.
    pub fn take_transactions(&mut self) -> Option<Transactions> {
        let last_zxid = self.last_zxid;
        let record = self.record.as_mut().filter(|record| record.taken != last_zxid)?;
        record.taken = last_zxid;
        Some(Transactions { txns: std::mem::take(&mut record.txns), last_zxid })
    }

    /// Does to the tree what a leader has done to its own, and tells those who watch.
    pub fn follow(&mut self, transactions: &Transactions) {
        for (stamp, txn) in &transactions.txns {
            self.commit(*stamp, [with_own_list(txn)], drop);
        }
        self.last_zxid = transactions.last_zxid;
    }

    /// Whether a handshake may go on to the leader. If not, the connection is closed: the client has seen
    /// what this server does not have yet.
    pub fn admits(&mut self, connection: ConnectionId, handshake: Bytes) -> bool {
        self.read_handshake(connection, handshake).is_some()
    }

    /// The leader has given the connection this session: its reads can be handled.
    pub fn attach(&mut self, connection: ConnectionId, session: SessionId) {
        if let Some(known) = self.connections.get_mut(&connection) {
            known.session = Some(session);
        }
    }
}

/// The same transaction with a copy of its list: a list knows how many nodes of one tree have it.
fn with_own_list(txn: &Txn) -> Txn {
    let mut txn = txn.clone();
    if let Txn::Create { acl, .. } | Txn::SetAcl { acl, .. } = &mut txn
        && !acl.is_open()
    {
        *acl = acl.to_vec().into();
    }
    txn
}
