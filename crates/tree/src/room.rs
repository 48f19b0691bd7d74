//! Limits on the growth of the tree: memory, disk space, and a reserve for locks.

use std::ops::{Add, Neg};

use lockkeeper_wire::ErrorCode;

use crate::acl::AclRef;
use crate::notices::{Notice, Notices};
use crate::output::ConnectionId;

/// The maximum length of an ephemeral node's data, and of its access control list, for the reserve for locks,
/// in bytes.
const LOCK_BYTES: usize = 1024;

/// Which nodes may be created or grow, according to one [`Resource`]. Everything else continues to work:
/// reads, sessions, deletes, and data that does not become longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// All nodes.
    #[default]
    All,
    /// Ephemeral nodes with little data, as locks use.
    Locks,
    /// No nodes.
    Nothing,
}

/// The size that a change adds, in bytes; negative if it frees space.
///
/// Memory and disk differ in access control lists. In memory, nodes share equal lists, and an entry takes
/// more than its texts; on disk, each node has its own copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// The additional memory.
    pub(crate) memory: i64,
    /// The additional length of the records.
    pub(crate) disk: i64,
}

impl Size {
    /// The same size in memory and on disk.
    pub(crate) fn of(bytes: i64) -> Self {
        Self { memory: bytes, disk: bytes }
    }
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { memory: self.memory + other.memory, disk: self.disk + other.disk }
    }
}

impl Neg for Size {
    type Output = Self;

    fn neg(self) -> Self {
        Self { memory: -self.memory, disk: -self.disk }
    }
}

impl Growth {
    fn allows(self, is_lock: bool) -> bool {
        match self {
            Self::All => true,
            Self::Locks => is_lock,
            Self::Nothing => false,
        }
    }
}

/// A resource that can run short, as measured by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The disk that stores the data.
    Disk,
    /// The memory of the process, including everything besides the nodes.
    Memory,
}

/// The limits of growth.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) max_weight: usize,
    pub(crate) growth: ResourceGrowth,
}

/// What each resource allows. The most restrictive one decides.
#[derive(Clone, Copy, Default)]
pub(crate) struct ResourceGrowth {
    disk: Growth,
    memory: Growth,
}

impl ResourceGrowth {
    pub(crate) fn set(&mut self, resource: Resource, growth: Growth) {
        match resource {
            Resource::Disk => self.disk = growth,
            Resource::Memory => self.memory = growth,
        }
    }
}

impl Room {
    /// Fails if there is no room for nodes with the total memory use `weight`. The last eighth is reserved
    /// for locks: a client that fills the tree must not prevent others from acquiring a lock.
    pub(crate) fn check_memory(
        self,
        weight: usize,
        is_lock: bool,
        (notices, connection): (&Notices, ConnectionId),
    ) -> Result<(), ErrorCode> {
        let max = match is_lock {
            true => self.max_weight,
            false => self.max_weight - self.max_weight / 8,
        };
        if weight > max {
            let notice = Notice::NoRoom { connection, weight, max };
            return notices.refuse(notice, ErrorCode::QuotaExceeded);
        }
        if !self.growth.memory.allows(is_lock) {
            return notices.refuse(Notice::MemoryShort { connection }, ErrorCode::QuotaExceeded);
        }
        Ok(())
    }

    /// Fails if a change needs more disk space than is available.
    pub(crate) fn check_disk(
        self,
        is_lock: bool,
        (notices, connection): (&Notices, ConnectionId),
    ) -> Result<(), ErrorCode> {
        if !self.growth.disk.allows(is_lock) {
            return notices.refuse(Notice::DiskShort { connection }, ErrorCode::QuotaExceeded);
        }
        Ok(())
    }
}

/// Whether an ephemeral node or a container with this much data and such a list counts as a lock's node.
pub(crate) fn is_lock(data: usize, acl: &AclRef) -> bool {
    data <= LOCK_BYTES && acl.record_len() <= LOCK_BYTES
}
