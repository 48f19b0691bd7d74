//! Op codes, create modes and the reserved xids.

/// Xids with a meaning of their own; requests count upwards from 1.
pub mod xid {
    /// A watch event, which answers no request.
    pub const NOTIFICATION: i32 = -1;
    /// A ping and its reply.
    pub const PING: i32 = -2;
    /// An authentication and its reply.
    pub const AUTH: i32 = -4;
    /// The re-arming of watches and its reply.
    pub const SET_WATCHES: i32 = -8;
}

macro_rules! op_codes {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, )*) => {
        /// What a request asks for.
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

/// What kind of node a create makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Lives until it is deleted.
    #[default]
    Persistent,
    /// Lives until its session ends.
    Ephemeral,
    /// Persistent, its name completed with the parent's next number.
    PersistentSequential,
    /// Ephemeral, its name completed with the parent's next number.
    EphemeralSequential,
    /// Deleted by the server some time after its last child has gone.
    Container,
    /// Persistent, but deleted when it is empty and untouched for a time.
    PersistentTtl,
    /// The same with a sequential name.
    PersistentSequentialTtl,
}

impl CreateMode {
    /// The number on the wire.
    pub fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::PersistentSequential => 2,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
            Self::PersistentTtl => 5,
            Self::PersistentSequentialTtl => 6,
        }
    }

    /// The mode with this number.
    pub fn from_flags(flags: i32) -> Option<Self> {
        Some(match flags {
            0 => Self::Persistent,
            1 => Self::Ephemeral,
            2 => Self::PersistentSequential,
            3 => Self::EphemeralSequential,
            4 => Self::Container,
            5 => Self::PersistentTtl,
            6 => Self::PersistentSequentialTtl,
            _ => return None,
        })
    }

    /// Whether the server completes the name with a number.
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
