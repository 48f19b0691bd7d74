//! The metadata of a node.

use crate::codec::record;
use crate::ids::{SessionId, Zxid};

/// The metadata of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created the node.
    pub czxid: Zxid,
    /// The transaction that last changed the data.
    pub mzxid: Zxid,
    /// When it was created, in milliseconds since 1970 by the server's clock.
    pub ctime: i64,
    /// When the data last changed, in milliseconds since 1970 by the server's clock.
    pub mtime: i64,
    /// The data version: how often the data has changed.
    pub version: i32,
    /// How often a child has been created or deleted.
    pub cversion: i32,
    /// How often the access control list has changed.
    pub aversion: i32,
    /// The session that owns an ephemeral node; 0 for other nodes, including container and TTL nodes.
    pub ephemeral_owner: SessionId,
    /// The length of the data, in bytes.
    pub data_length: i32,
    /// The number of children.
    pub num_children: i32,
    /// The transaction that last created or deleted a child.
    pub pzxid: Zxid,
}

impl Stat {
    /// The encoded length, in bytes.
    pub const LENGTH: usize = 68;

    /// The stat of a new node as far as it is known without a read. The times and the data length are 0.
    pub fn of_new(created: Zxid, owner: SessionId) -> Self {
        Self {
            czxid: created,
            mzxid: created,
            pzxid: created,
            ephemeral_owner: owner,
            ..Self::default()
        }
    }
}

record!(Stat {
    czxid,
    mzxid,
    ctime,
    mtime,
    version,
    cversion,
    aversion,
    ephemeral_owner,
    data_length,
    num_children,
    pzxid,
});
