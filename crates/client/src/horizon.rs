//! Whether what a server shows is old, or all that there is.

use std::time::Duration;

use lockkeeper_wire::{SessionId, Zxid};

use crate::client::Client;

/// The pause before a server that is behind others is asked again.
pub const BEHIND_PAUSE: Duration = Duration::from_millis(50);

/// What servers had shown a client when it began to read.
///
/// If a server shows an older transaction than was seen before, there are two reasons. It may be behind the
/// server from before. Then it will catch up, and what it shows is no news. Or the servers were wiped, or
/// restored to an earlier state, and have begun another history. Then what it shows is all that there is,
/// and whoever follows it has to believe it. The numbers of the other history may be lower than those of
/// the one before, or higher: a restore of the engine raises them, and a wiped server may have been written
/// to since.
#[derive(Clone, Copy, Debug)]
pub struct Horizon {
    session: SessionId,
    /// The last transaction that a server had applied, by the answers of the session so far. Sessions do
    /// not go back, so what is read after it is no older. The number that comes with the read itself may be
    /// too new: ZooKeeper applies transactions between a read and the header of its answer.
    applied: Zxid,
}

impl Horizon {
    /// To be taken before a read is sent.
    pub fn of(client: &Client) -> Self {
        // In this order: with the number of a later session, the session is not the present one.
        let session = client.session_id();
        Self { session, applied: client.last_zxid() }
    }

    /// That of a read that is known to show the state after this transaction.
    pub fn at(client: &Client, applied: Zxid) -> Self {
        Self { session: client.session_id(), applied }
    }

    /// Whether a read that was sent since may have been answered by a server that is behind the state of
    /// this transaction. If it shows an older state nevertheless, the servers have another history. After
    /// the answer to a sync in the same session, only a server whose leader is behind, too, is behind.
    pub fn is_behind(self, client: &Client, seen: Zxid) -> bool {
        let is_elsewhere = client.session_id() != self.session;
        // What is newer than everything that was seen since servers were behind is from before that.
        is_elsewhere || self.applied < seen && seen <= client.newest_zxid()
    }
}
