//! Inspects and copies a data directory without changing it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_tree::Table;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::batch::Batch;
use super::copies::Snapshots;
use super::database::{OpenDisk, Repairs};
use super::dir::{DataDir, State};
use super::disk::plain;
use super::durability::Durability;
use super::error::{IoResultExt, StorageError};
use super::files::{LOCK, open_directory};
use super::log::LogDir;
use super::overlay::Overlay;
use super::store::{Disk, Storage};
use crate::files::{Directory, parent};

/// How much is written to a copy in one commit, in bytes.
const PORTION: usize = 8 * 1024 * 1024;

/// How an inspected directory is claimed.
type Open = fn(&Path) -> Result<(DataDir, State), StorageError>;

impl Storage {
    /// Opens the data in `dir` and checks every page of it, but changes nothing: repairs are made in memory only.
    /// `None` if the directory contains no complete database.
    ///
    /// No commits must be made to it.
    pub(crate) fn inspect(dir: &Path) -> Result<Option<(Self, Repairs)>, StorageError> {
        Self::inspect_by(dir, DataDir::look_at)
    }

    /// Like [`Storage::inspect`], for a directory that is to be replaced: no other process may use it until then.
    pub(crate) fn inspect_owned(dir: &Path) -> Result<Option<(Self, Repairs)>, StorageError> {
        Self::inspect_by(dir, DataDir::claim)
    }

    fn inspect_by(dir: &Path, open: Open) -> Result<Option<(Self, Repairs)>, StorageError> {
        if !dir.is_dir() {
            // Claiming it would create it.
            let missing = io::ErrorKind::NotFound.into();
            return Err(StorageError::io(dir, missing));
        }

        let (dir, state) = open(dir)?;
        if state == State::New {
            return Ok(None);
        }

        let logs = LogDir::new(dir.files().clone(), plain());
        let overlay = Overlay::over(dir.read_database()?).at(&dir.database())?;

        let (open, mut repairs) = OpenDisk::open(dir, Box::new(overlay))?;
        let applied = open.applied()?;
        let tail = open.read_logs(&logs, state)?;
        if tail.sequence > applied.sequence {
            repairs.after_crash = true;
            open.apply(&tail.outcome, applied)?;
        }

        let disk = Disk::new(None, Arc::new(open));
        Ok(Some((Storage { disk: Some(disk) }, repairs)))
    }

    /// Opens a directory that is being created, to become a backup or a data directory.
    pub(crate) fn open_draft(draft: &Draft) -> Result<Self, StorageError> {
        let disk = Disk::open(draft.path(), Durability::Sync, plain())?;
        Ok(Storage { disk: Some(disk) })
    }

    /// Copies all records into a new directory, which is then complete but not yet in its place.
    pub(crate) fn fill(&self, draft: &Draft) -> Result<u64, StorageError> {
        match &self.disk {
            Some(disk) => fill(&disk.open, draft, &AtomicBool::new(false)),
            None => Err(StorageError::GivenUp),
        }
    }

    /// For backups of an open storage; `None` if it keeps no data on a disk.
    pub(crate) fn snapshots(&self) -> Option<Snapshots> {
        self.disk.as_ref().map(|disk| disk.snapshots.clone())
    }
}

impl Snapshots {
    /// Copies the state as of the last commit into `target`, a directory that does not exist yet. It is created
    /// completely or not at all. `None` if the storage was closed, before or during the copy.
    ///
    /// The copy is complete: it has been synced, and needs no recovery.
    pub(crate) fn copy_to(&self, target: &Path) -> Option<Result<u64, StorageError>> {
        match self.while_open(|open, is_over| copy(open, target, is_over))? {
            Err(StorageError::GivenUp) => None,
            copied => Some(copied),
        }
    }
}

fn copy(open: &OpenDisk, target: &Path, is_over: &AtomicBool) -> Result<u64, StorageError> {
    check_place(open.dir.path(), target)?;
    let draft = Draft::beside(target)?;
    let records = fill(open, &draft, is_over)?;
    DataDir::claim(draft.path())?.0.mark_backup()?;
    draft.put_in_place(target)?;
    Ok(records)
}

/// Refuses a target that exists, has no parent, or is inside the original: restoring or replacing an engine would
/// remove its backups too.
fn check_place(original: &Path, target: &Path) -> Result<(), StorageError> {
    if target.try_exists().at(target)? {
        return Err(StorageError::Exists { path: target.to_path_buf() });
    }

    let parent = parent(target).canonicalize().if_exists().at(target)?;
    let parent = parent.ok_or_else(|| StorageError::NoParent { path: target.to_path_buf() })?;

    let original = original.canonicalize().at(original)?;
    match parent.starts_with(&original) {
        true => Err(StorageError::Within { path: target.to_path_buf(), original }),
        false => Ok(()),
    }
}

/// A directory that is being created next to its target; removed on drop, unless it was moved into place.
#[derive(Debug)]
pub(crate) struct Draft(Option<PathBuf>);

impl Draft {
    /// The remains of an earlier, interrupted draft are removed.
    pub(crate) fn beside(target: &Path) -> Result<Self, StorageError> {
        // Before anything in it is removed: it must not belong to another user.
        open_directory(parent(target))?;
        let path = target.with_added_extension("partial");
        fs::remove_dir_all(&path).if_exists().at(target)?;
        Ok(Self(Some(path)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    /// The directory itself, once it is filled.
    pub(crate) fn open(&self) -> Result<Directory, StorageError> {
        open_directory(self.path())
    }

    /// Renames it to the target, which must not exist or be empty.
    pub(crate) fn put_in_place(self, target: &Path) -> Result<(), StorageError> {
        self.move_to(target, |from| fs::rename(from, target))
    }

    /// Exchanges it with the target, which gets another name: at every moment one of the two is there.
    pub(crate) fn swap_with(self, target: &Path, aside: &Path) -> Result<(), StorageError> {
        let exchange = |from: &Path| renameat_with(CWD, from, CWD, target, RenameFlags::EXCHANGE);
        self.move_to(target, |from| {
            // The draft first gets the target's later name, under which it is never removed.
            fs::rename(from, aside)?;
            exchange(aside).map_err(io::Error::from).inspect_err(|_| {
                let _ = fs::rename(aside, from);
            })
        })
    }

    fn move_to(
        mut self,
        target: &Path,
        rename: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), StorageError> {
        // The lock file contains a process id, so it is not moved.
        let _ = self.open()?.remove(LOCK);
        let above = open_directory(parent(target))?;
        rename(self.path()).and_then(|()| above.sync()).map_err(|e| match e.kind() {
            io::ErrorKind::ResourceBusy => StorageError::MountPoint { path: target.to_owned() },
            _ => StorageError::io(target, e),
        })?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Writes all records into a new directory; returns their number.
///
/// # Errors
/// [`StorageError::GivenUp`] when the storage is closed.
fn fill(open: &OpenDisk, draft: &Draft, is_over: &AtomicBool) -> Result<u64, StorageError> {
    let mut copy = Storage::open_draft(draft)?;
    copy.keep_no_logs();
    let (transaction, mut newer) = open.snapshot()?;

    let (mut batch, mut bytes, mut records) = (Batch::default(), 0, 0);
    open.load_from(&transaction, |table: Table, key, value| {
        if is_over.load(Ordering::Relaxed) {
            return Err(StorageError::GivenUp);
        }
        let value = newer.take(table, key).unwrap_or_else(|| Some(value.to_vec()));
        let Some(value) = value else {
            return Ok(());
        };
        bytes += key.len() + value.len();
        records += 1;
        batch.put(table, key, value);
        if bytes > PORTION {
            copy.commit(&mut batch)?;
            batch.clear();
            bytes = 0;
        }
        Ok::<(), StorageError>(())
    })?;

    copy.commit(&mut batch)?;
    let (mut added, count) = newer.into_puts();
    records += count;
    copy.commit(&mut added)?;
    copy.close()?;
    Ok(records)
}
