//! The limits on the growth of the tree: memory, the disk, and room that is kept for locks.

use lockkeeper_wire::ErrorCode;

use crate::notices::{Notice, Notices};
use crate::output::ConnectionId;

/// How long the data of an ephemeral node may be to get what is kept for locks, in bytes.
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
    pub(crate) fn check(
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

        let ResourceGrowth { disk, memory } = self.growth;
        if !disk.allows(is_lock) {
            return notices.refuse(Notice::DiskShort { connection }, ErrorCode::QuotaExceeded);
        }
        if !memory.allows(is_lock) {
            return notices.refuse(Notice::MemoryShort { connection }, ErrorCode::QuotaExceeded);
        }
        Ok(())
    }
}

/// Whether an ephemeral node or a container with so much data is taken for a lock's.
pub(crate) fn is_lock(data: usize) -> bool {
    data <= LOCK_BYTES
}
