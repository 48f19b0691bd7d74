//! A data directory and those who come to it one after the other, from outside the storage.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod control;
pub(crate) mod disk_room;
mod floor;
pub(crate) mod restore;
pub(crate) mod succession;
