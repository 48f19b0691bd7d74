//! Whether what a server shows is outdated, or the current state.

use std::time::Duration;

use lockkeeper_wire::{SessionId, Zxid};

use crate::client::Client;

/// The pause before a server that lags behind is asked again.
pub const BEHIND_PAUSE: Duration = Duration::from_millis(50);

/// What servers had shown a client before a read was sent.
///
/// There are two reasons why a server shows an older transaction than was seen before. It may lag behind the
/// previous server. Then it will catch up, and what it shows is outdated. Or the servers were wiped, or
/// restored to an earlier state, and have started another history. Then what it shows is the current state,
/// and followers have to accept it. The numbers of the new history may be lower than those of the old one, or
/// higher: a restore of the engine raises them, and a wiped server may have been written to since.
#[derive(Clone, Copy, Debug)]
pub struct Horizon {
    session: SessionId,
    /// The last transaction that a server had applied, according to the replies of the session so far. A
    /// session never goes back, so later reads are at least as new. The number that comes with the read
    /// itself may be too new: ZooKeeper applies transactions between a read and the header of its reply.
    applied: Zxid,
}

impl Horizon {
    /// Must be taken before the read is sent.
    pub fn of(client: &Client) -> Self {
        // In this order: the number of a later session would not match the current session.
        let session = client.session_id();
        Self { session, applied: client.last_zxid() }
    }

    /// The horizon of a read that is known to show the state after this transaction.
    pub fn at(client: &Client, applied: Zxid) -> Self {
        Self { session: client.session_id(), applied }
    }

    /// Whether a read sent afterwards may have been answered by a server that lags behind the state of this
    /// transaction. If it is not behind but shows an older state, the servers have another history. After the
    /// reply to a `sync` in the same session, a server lags behind only if its leader does too.
    pub fn is_behind(self, client: &Client, seen: Zxid) -> bool {
        let is_elsewhere = client.session_id() != self.session;
        // A number above everything seen since the last rewind is from before the rewind.
        is_elsewhere || self.applied < seen && seen <= client.newest_zxid()
    }
}
