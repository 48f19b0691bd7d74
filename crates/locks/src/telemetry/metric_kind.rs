//! The names of lock kinds in spans and metrics.

use crate::profile::Kind;

/// The names of lock kinds in spans and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Exclusive,
    Read,
    Upgradeable,
    Write,
    Permits,
    Leader,
    /// A single znode without a queue.
    Node,
    /// Several locks at once.
    Several,
}

impl MetricKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Upgradeable => "upgradeable",
            Self::Write => "write",
            Self::Permits => "permits",
            Self::Leader => "leader",
            Self::Node => "node",
            Self::Several => "several",
        }
    }
}

impl From<Kind> for MetricKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Exclusive => Self::Exclusive,
            Kind::Read => Self::Read,
            Kind::Upgradeable => Self::Upgradeable,
            Kind::Write => Self::Write,
            Kind::Permits(_) | Kind::Lease => Self::Permits,
            Kind::Latch => Self::Leader,
        }
    }
}
