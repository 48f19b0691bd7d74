//! Looking at a data directory, and copying one, without changing it.

use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Weak};

use super::dir::{DataDir, State};
use super::disk::Syncs;
use super::overlay::Overlay;
use super::{
    Batch, Disk, Durability, OpenDisk, Repairs, Storage, StorageError, Table, open_database,
};

/// How much is written to a copy in one commit, in bytes.
const PORTION: usize = 8 * 1024 * 1024;

/// Gives consistent views of a storage while it is being written. Does not keep it open.
#[derive(Clone)]
pub(crate) struct Snapshots(Weak<OpenDisk>);

impl Storage {
    /// Opens what is in `dir` and checks every page of it, but changes nothing: what opening
    /// repairs is repaired in memory only. `None` if there is no finished database.
    ///
    /// Nothing must be committed to it.
    pub(crate) fn inspect(dir: &Path) -> Result<Option<(Self, Repairs)>, StorageError> {
        if !dir.is_dir() {
            // Claiming it would make it.
            let missing = std::io::ErrorKind::NotFound.into();
            return Err(StorageError::io(dir, missing));
        }
        let (dir, state) = DataDir::claim(dir)?;
        if state == State::New {
            return Ok(None);
        }
        let file = dir.database();
        let opened = File::open(&file).and_then(Overlay::over);
        let overlay = opened.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => StorageError::damaged(&file, "the file is missing"),
            _ => StorageError::io(&file, e),
        })?;
        let (database, repairs) = open_database(&file, overlay)?;
        let open = Arc::new(OpenDisk { database, syncs: Syncs::default(), file, dir });
        Ok(Some((Storage { disk: Some(Disk { open, failed: false }) }, repairs)))
    }

    /// For backups while it is open; `None` if nothing is on a disk.
    pub(crate) fn snapshots(&self) -> Option<Snapshots> {
        self.disk.as_ref().map(|disk| Snapshots(Arc::downgrade(&disk.open)))
    }
}

impl Snapshots {
    /// Copies the state as of the last commit into `target`, a directory that does not exist yet
    /// and is there as a whole or not at all. `None` if the storage was closed.
    ///
    /// The copy is complete in itself: it has been synced, and needs no recovery.
    pub(crate) fn copy_to(&self, target: &Path) -> Option<Result<u64, StorageError>> {
        let open = self.0.upgrade()?;
        Some(copy(&open, target))
    }
}

fn copy(open: &OpenDisk, target: &Path) -> Result<u64, StorageError> {
    let failed = |e| StorageError::io(target, e);
    if target.try_exists().map_err(failed)? {
        return Err(StorageError::Exists { path: target.to_path_buf() });
    }
    let mut draft = target.as_os_str().to_owned();
    draft.push(".partial");
    let draft = Path::new(&draft);
    // Left by a backup that was cut short.
    match fs::remove_dir_all(draft) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let records = fill(open, draft);
    let moved = records.and_then(|records| {
        // A lock belongs to a process; this copy has none.
        let _ = fs::remove_file(draft.join("LOCK"));
        fs::rename(draft, target).and_then(|()| sync_parent(target)).map_err(failed)?;
        Ok(records)
    });
    if moved.is_err() {
        let _ = fs::remove_dir_all(draft);
    }
    moved
}

/// Writes all records into a new directory; their number.
fn fill(open: &OpenDisk, dir: &Path) -> Result<u64, StorageError> {
    let mut copy = Storage::open(Some(dir), Durability::Sync)?;
    let (mut batch, mut bytes, mut records) = (Batch::default(), 0, 0);
    open.load(|table: Table, key, value| {
        batch.put(table, key.to_vec(), value.to_vec());
        bytes += key.len() + value.len();
        records += 1;
        if bytes > PORTION {
            copy.commit(&batch)?;
            batch.clear();
            bytes = 0;
        }
        Ok::<(), StorageError>(())
    })?;
    copy.commit(&batch)?;
    Ok(records)
}

fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
