//! What a server tells about a node.

use crate::codec::record;
use crate::ids::{SessionId, Zxid};

/// The facts about a node, beside its data.
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
    /// How often the data changed.
    pub version: i32,
    /// How often a child was created or deleted.
    pub cversion: i32,
    /// How often the access control list changed.
    pub aversion: i32,
    /// The session whose end deletes the node; 0 for other kinds of node, container and TTL nodes
    /// included.
    pub ephemeral_owner: SessionId,
    /// The length of the data, in bytes.
    pub data_length: i32,
    /// How many children there are.
    pub num_children: i32,
    /// The transaction that last created or deleted a child.
    pub pzxid: Zxid,
}

impl Stat {
    /// How many bytes it takes on the wire.
    pub const LENGTH: usize = 68;

    /// What is known of a new node without asking the server: all but the times and the length of
    /// its data.
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
