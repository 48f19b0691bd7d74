//! The data directory as a whole: its owner, free space, backup, check, restore, and the state that each engine needs
//! of the previous one.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod control;
pub(crate) mod disk_room;
mod floor;
pub(crate) mod restore;
pub(crate) mod succession;
