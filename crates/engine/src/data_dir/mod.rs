//! A data directory seen from outside the storage: its owner, its room, backup, check, restore, and
//! what each engine must know of the one before it.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod control;
pub(crate) mod disk_room;
mod floor;
pub(crate) mod restore;
pub(crate) mod succession;
