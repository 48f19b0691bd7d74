//! Why an attempt to connect to a server failed, and whether a retry may help.

/// Why there is no session with a server.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) why: String,
    pub(crate) kind: FaultKind,
}

/// Whether it helps to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// It may.
    Passing,
    /// Client and server do not trust each other.
    Distrust,
    /// What answers is no ZooKeeper server.
    Foreign,
}

impl Fault {
    pub(crate) fn passing(why: impl std::fmt::Display) -> Self {
        Self { why: why.to_string(), kind: FaultKind::Passing }
    }
}
