//! Why a connection attempt failed, and whether a retry may help.

/// Why a connection attempt to a server failed.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) why: String,
    pub(crate) kind: FaultKind,
}

/// Whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A retry may help.
    Transient,
    /// Client and server do not trust each other.
    Untrusted,
    /// The peer is not a ZooKeeper server.
    NotZooKeeper,
}

impl Fault {
    pub(crate) fn transient(why: impl std::fmt::Display) -> Self {
        Self { why: why.to_string(), kind: FaultKind::Transient }
    }
}
