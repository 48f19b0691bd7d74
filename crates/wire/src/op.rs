//! Op codes, create modes and the reserved xids.

/// Reserved xids. The xids of ordinary requests count upwards from 1.
pub mod xid {
    /// A watch event, which is not a reply.
    pub const NOTIFICATION: i32 = -1;
    /// A ping and its reply.
    pub const PING: i32 = -2;
    /// An authentication request and its reply.
    pub const AUTH: i32 = -4;
    /// A request that rearms watches, and its reply.
    pub const SET_WATCHES: i32 = -8;
}

macro_rules! op_codes {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, )*) => {
        /// The operation of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each is the protocol's own name for the operation")]
        pub enum OpCode { $( $(#[$doc])* $name = $code, )* }

        impl OpCode {
            /// The operation with this number on the wire.
            pub fn from_code(code: i32) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$name), )*
                    _ => None,
                }
            }

            /// The number on the wire.
            pub fn code(self) -> i32 {
                self as i32
            }
        }
    };
}

op_codes! {
    Create = 1,
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetAcl = 6,
    SetAcl = 7,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    GetChildren2 = 12,
    Check = 13,
    Multi = 14,
    Create2 = 15,
    Reconfig = 16,
    CheckWatches = 17,
    RemoveWatches = 18,
    CreateContainer = 19,
    DeleteContainer = 20,
    CreateTtl = 21,
    MultiRead = 22,
    Auth = 100,
    SetWatches = 101,
    Sasl = 102,
    GetEphemerals = 103,
    GetAllChildrenNumber = 104,
    SetWatches2 = 105,
    AddWatch = 106,
    WhoAmI = 107,
    CreateSession = -10,
    CloseSession = -11,
    Error = -1,
}

impl OpCode {
    /// Whether the request is a transaction: it gets a zxid, and a quorum commits it.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Create2
                | Self::CreateContainer
                | Self::CreateTtl
                | Self::Delete
                | Self::SetData
                | Self::SetAcl
                | Self::Multi
                | Self::Reconfig
                | Self::CloseSession
        )
    }
}

/// The kind of node to create, with its number on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Exists until it is deleted.
    #[default]
    Persistent = 0,
    /// Exists until its session ends.
    Ephemeral = 1,
    /// Persistent; the parent's next sequence number is appended to the name.
    PersistentSequential = 2,
    /// Ephemeral; the parent's next sequence number is appended to the name.
    EphemeralSequential = 3,
    /// Deleted by the server some time after its last child is deleted.
    Container = 4,
    /// Persistent, but deleted after it has had neither children nor changes for its time to live.
    PersistentTtl = 5,
    /// Like [`PersistentTtl`](Self::PersistentTtl), with a sequential name.
    PersistentSequentialTtl = 6,
}

impl CreateMode {
    /// All modes in the order of their numbers, which start at 0.
    const ALL: [Self; 7] = [
        Self::Persistent,
        Self::Ephemeral,
        Self::PersistentSequential,
        Self::EphemeralSequential,
        Self::Container,
        Self::PersistentTtl,
        Self::PersistentSequentialTtl,
    ];

    /// The number on the wire.
    pub fn flags(self) -> i32 {
        self as i32
    }

    /// The mode with this number.
    pub fn from_flags(flags: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(flags).ok()?).copied()
    }

    /// Whether the server appends a sequence number to the name.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential | Self::EphemeralSequential | Self::PersistentSequentialTtl
        )
    }

    /// Whether the node belongs to the session that creates it.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// Whether the request carries a time to live.
    pub fn has_ttl(self) -> bool {
        matches!(self, Self::PersistentTtl | Self::PersistentSequentialTtl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_survive_both_ways() {
        for flags in 0..7 {
            assert_eq!(CreateMode::from_flags(flags).map(CreateMode::flags), Some(flags));
        }
        assert_eq!((CreateMode::from_flags(-1), CreateMode::from_flags(7)), (None, None));
    }
}
