//! What must become durable, and the way back from it.

use bytes::Bytes;

/// A key space of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The key is a node's path in UTF-8.
    Nodes,
    /// The key is a session's id, 8 bytes big-endian.
    Sessions,
    /// A few single values, such as the last zxid.
    Meta,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 3] = [Self::Nodes, Self::Sessions, Self::Meta];
}

/// The new state of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub table: Table,
    /// Which key.
    pub key: Bytes,
    /// The new value; `None`: the key is to be removed (it may be absent already).
    pub value: Option<Bytes>,
}

/// New states, at most one per key, to be committed as one atomic step.
pub type Changes = Vec<Change>;

/// What a restore found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// How many nodes, `/` and the nodes below `/zookeeper` included.
    pub nodes: usize,
    /// How many of them are ephemeral.
    pub ephemerals: usize,
    /// How many sessions, each of which got its full timeout anew.
    pub sessions: usize,
    /// The last transaction.
    pub last_zxid: lockkeeper_wire::Zxid,
}

/// Why stored records do not make up a server's state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A record whose bytes cannot be read.
    #[error("the stored {record} is damaged: {problem}")]
    Damaged {
        /// Which record.
        record: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A record in a format that this version does not know.
    #[error(
        "the stored {record} has format {format}, which a newer version wrote: use that version"
    )]
    Newer {
        /// Which record.
        record: String,
        /// Its format.
        format: u8,
    },
    /// Records that contradict each other, or miss another one.
    #[error("the stored state is inconsistent: {0}")]
    Inconsistent(String),
}
