//! The durable state of the engine.
//!
//! The tree lives in memory; this is its copy on disk: a `redb` database, and in front of it a log of the commits that
//! the database does not contain yet (see `docs/decisions/0001-storage.md` and
//! `docs/decisions/0006-log-before-database.md`). One call of [`Storage::commit`] is one group commit: after a crash,
//! all of a batch is there or none of it. After any failure, nothing more is written: after a failed sync the content
//! of the disk is unknown until it is read back.

mod activity;
mod batch;
mod checkpoint;
mod copies;
mod database;
mod dir;
mod disk;
mod durability;
mod error;
mod files;
mod journal;
mod log;
mod mark;
mod overlay;
mod panics;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use self::activity::{DiskActivity, SyncTime};
pub(crate) use self::batch::Batch;
pub(crate) use self::copies::Snapshots;
pub(crate) use self::database::Repairs;
pub(crate) use self::dir::OwnedDirectory;
pub use self::durability::{Durability, UnknownDurability};
pub(crate) use self::error::IoResultExt;
pub use self::error::StorageError;
pub(crate) use self::files::{
    CONTROL, DATABASE, FORMAT, LOCK, LockedFile, is_data, make_directory, open_directory,
};
pub(crate) use self::mark::{QuietTime, mark_restored, remove_mark, restored_mark};
pub(crate) use self::snapshot::Draft;
pub(crate) use self::store::Storage;
