//! The files of a data directory: their names, and how they are opened, locked and replaced.
//!
//! | file | contents |
//! |---|---|
//! | `LOCK` | locked while an engine runs; the process number of the owner, as text |
//! | `FORMAT` | `lockkeeper-engine 3`, followed by ` creating` until the database is there |
//! | `lockkeeper.redb` | the database |
//! | `commits.a`, `commits.b` | commits that the database does not have yet, and older ones |
//! | `acknowledged` | the number of the last commit |
//! | `RESTORED` | after a restore, the quiet time that is due |

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::{IoResultExt, StorageError};

pub(crate) const LOCK: &str = "LOCK";
pub(crate) const FORMAT: &str = "FORMAT";
pub(crate) const DATABASE: &str = "lockkeeper.redb";
/// The logs: of even generations, and of odd ones.
pub(super) const LOGS: [&str; 2] = ["commits.a", "commits.b"];
pub(super) const ACKNOWLEDGED: &str = "acknowledged";
pub(super) const RESTORED: &str = "RESTORED";

/// Whether a file of this name is needed at the next start, and is there for as long as an engine
/// runs.
pub(crate) fn is_data(name: &str) -> bool {
    [FORMAT, DATABASE, ACKNOWLEDGED].contains(&name) || LOGS.contains(&name)
}

/// Opens a file for reading and writing. If it is missing it is made, for this user alone.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// A file that this process has locked until the value is dropped. The lock is the operating system's,
/// so that it cannot outlive the process.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    path: PathBuf,
}

impl LockedFile {
    /// Locks a file by [`File::try_lock`] or [`File::try_lock_shared`]; if another process holds it, the
    /// data directory is in use.
    pub(crate) fn lock(
        file: File,
        path: &Path,
        data_dir: &Path,
        lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Self, StorageError> {
        match lock(&file) {
            Ok(()) => Ok(Self { file, path: path.to_path_buf() }),
            Err(TryLockError::WouldBlock) => Err(in_use(data_dir, &file)),
            Err(TryLockError::Error(e)) => Err(StorageError::io(path, e)),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    /// Unlocks explicitly. Closing the file is not enough: a child process that another thread is just
    /// starting shares the open file, and with it the lock, until it has become the other program.
    fn drop(&mut self) {
        if let Err(e) = self.file.unlock() {
            let file = self.path.display();
            tracing::warn!("{file} stays locked until this process ends: {e}");
        }
    }
}

/// The error for a data directory whose lock file another process holds.
pub(super) fn in_use(data_dir: &Path, mut lock: &File) -> StorageError {
    let mut text = String::new();
    let read = lock.read_to_string(&mut text).ok();
    let pid = read.and_then(|_| text.trim().parse().ok());
    StorageError::InUse { path: data_dir.to_path_buf(), pid }
}

/// Replaces a file in a directory durably: after a crash there is the old one or the new one.
pub(super) fn replace(dir: &Path, name: &str, contents: &str) -> Result<(), StorageError> {
    let (path, draft) = (dir.join(name), dir.join(format!("{name}.new")));
    let write = || {
        let mut file = open_or_create(&draft)?;
        file.set_len(0)?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)?;
        File::open(dir)?.sync_all()
    };
    write().at(&path)
}

/// Makes the directory for this user alone. One that exists keeps its permissions (it may be
/// shared on purpose); the files in it are private either way, as they hold session passwords.
pub(crate) fn create_private(path: &Path) -> Result<(), StorageError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(|e| StorageError::not_created(path, e))?;
    sync_parent(path).at(path)
}

/// Makes the directory's own name durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
