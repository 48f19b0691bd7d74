//! What is measured: a lock on a server, in one configuration.

use std::fmt;

use lockkeeper_engine::Durability;

use crate::locks::bare::SecondLook;

/// A lock on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Lockkeeper on its engine, which runs as a process of its own.
    Engine(Durability),
    /// Lockkeeper on Apache ZooKeeper.
    OnZooKeeper,
    /// What no lock can do without, as bare requests to the same ZooKeeper: a bound for locks.
    BareRequests(SecondLook),
    /// Apache Curator's `InterProcessMutex` on the same ZooKeeper.
    Curator,
    /// kazoo's `Lock` on the same ZooKeeper.
    Kazoo,
    /// The lock of the Rust crate `zookeeper-client` on the same ZooKeeper.
    ZookeeperClient,
    /// `SET NX PX` and a script that deletes.
    Redis(Fsync),
    /// etcd's lock service.
    Etcd,
    /// `pg_advisory_lock`.
    Postgres,
}

/// When Redis writes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// Before each reply.
    Always,
    /// Each second.
    Everysec,
    /// It writes nothing.
    Never,
}

impl System {
    /// Every lock, in the order of the tables.
    pub(crate) const ALL: [Self; 12] = [
        Self::Engine(Durability::Sync),
        Self::Engine(Durability::Os),
        Self::Engine(Durability::Memory),
        Self::OnZooKeeper,
        Self::Curator,
        Self::ZookeeperClient,
        Self::Kazoo,
        Self::Redis(Fsync::Always),
        Self::Redis(Fsync::Everysec),
        Self::Redis(Fsync::Never),
        Self::Etcd,
        Self::Postgres,
    ];

    /// Whose lock it is.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine(_) | Self::OnZooKeeper => "lockkeeper",
            Self::BareRequests(SecondLook::Never) => "bare requests",
            Self::BareRequests(SecondLook::IfMoreWereAhead) => "bare requests, second look",
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
            Self::ZookeeperClient => "zookeeper-client",
            Self::Redis(_) => "redis",
            Self::Etcd => "etcd",
            Self::Postgres => "postgresql",
        }
    }

    /// Whether it has to do with P5 to P7: Curator, what is held against it, and the bound of both.
    /// kazoo and zookeeper-client are in no target.
    pub(crate) fn is_held_against_curator(self) -> bool {
        matches!(self, Self::OnZooKeeper | Self::BareRequests(_) | Self::Curator)
    }

    /// On what server, in which configuration.
    pub(crate) fn config(self) -> &'static str {
        match self {
            Self::Engine(Durability::Sync) => "engine, sync",
            Self::Engine(Durability::Os) => "engine, os",
            Self::Engine(Durability::Memory) => "engine, memory",
            Self::OnZooKeeper
            | Self::BareRequests(_)
            | Self::Curator
            | Self::Kazoo
            | Self::ZookeeperClient => "zookeeper",
            Self::Redis(Fsync::Always) => "appendfsync always",
            Self::Redis(Fsync::Everysec) => "appendfsync everysec",
            Self::Redis(Fsync::Never) => "no persistence",
            Self::Etcd => "one server",
            Self::Postgres => "advisory lock",
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.config())
    }
}
