//! The limits on the growth of the tree: memory, the disk, and room that is kept for locks.

use std::ops::{Add, Neg};

use lockkeeper_wire::ErrorCode;

use crate::acl::AclRef;
use crate::notices::{Notice, Notices};
use crate::output::ConnectionId;

/// How long the data of an ephemeral node, and its access control list, may each be to get what is kept
/// for locks, in bytes.
const LOCK_BYTES: usize = 1024;

/// Which nodes may be made or grow, as far as one [`Resource`] is concerned. Whatever does not grow goes
/// on: reads, sessions, deletes, data that gets no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// All.
    #[default]
    All,
    /// Ephemeral nodes with little data, as locks are made of.
    Locks,
    /// None.
    Nothing,
}

/// What a change adds, in bytes; negative if it takes away.
///
/// The two differ in access control lists: in memory, nodes share equal ones, and an entry takes more
/// than its texts; on the disk, each node has its own copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// What the nodes weigh more.
    pub(crate) memory: i64,
    /// What their records are longer.
    pub(crate) disk: i64,
}

impl Size {
    /// The same in both places.
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

/// What the server may run short of, as whoever runs it measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The disk that keeps the data.
    Disk,
    /// The memory of the process, however much of it the nodes weigh.
    Memory,
}

/// The limits of growth.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) max_weight: usize,
    pub(crate) growth: ResourceGrowth,
}

/// What each resource lets grow. The scarcest decides.
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
    /// Refuses what makes the nodes weigh `weight` bytes, if there is no room for that. The last eighth
    /// is kept for locks: who fills the tree should not keep others from taking one.
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

    /// Refuses what takes more of the disk, if that has too little room.
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

/// Whether an ephemeral node or a container with so much data, and such a list, is taken for a lock's.
pub(crate) fn is_lock(data: usize, acl: &AclRef) -> bool {
    data <= LOCK_BYTES && acl.record_len() <= LOCK_BYTES
}
