//! The files of a data directory: their names, and how they are locked.
//!
//! | file | contents |
//! |---|---|
//! | `LOCK` | locked while an engine runs; the process id of the owner, as text |
//! | `FORMAT` | `lockkeeper-engine 3`, followed by ` creating` until the database is complete, and by ` backup` in a
//! backup |
//! | `lockkeeper.redb` | the database |
//! | `commits.a`, `commits.b` | commits that are not in the database yet, and older ones |
//! | `acknowledged` | the number of the last commit |
//! | `RESTORED` | after a restore, the quiet time that is due |
//! | `CONTROL` | while an engine runs, the socket on which other processes request backups |

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::error::{IoResultExt, StorageError};
use crate::files::Directory;

pub(crate) const LOCK: &str = "LOCK";
pub(crate) const FORMAT: &str = "FORMAT";
pub(crate) const DATABASE: &str = "lockkeeper.redb";
/// The logs: of even generations, and of odd ones.
pub(super) const LOGS: [&str; 2] = ["commits.a", "commits.b"];
pub(super) const ACKNOWLEDGED: &str = "acknowledged";
pub(super) const RESTORED: &str = "RESTORED";
/// The socket on which other processes request backups.
pub(crate) const CONTROL: &str = "CONTROL";

/// Whether a file of this name is needed at the next start and exists while an engine runs.
pub(crate) fn is_data(name: &str) -> bool {
    [FORMAT, DATABASE, ACKNOWLEDGED].contains(&name) || LOGS.contains(&name)
}

/// The longest file that is read as text, in bytes: one or two lines.
pub(super) const LONGEST_TEXT: u64 = 4096;

/// Whether engines create files of this name in their directories, or new file systems contain it.
pub(super) fn is_known(name: &str) -> bool {
    let drafted = name.strip_suffix(".new").unwrap_or(name);
    is_data(name) || [LOCK, FORMAT, RESTORED, CONTROL, "lost+found"].contains(&drafted)
}

/// Opens a directory that must exist.
pub(crate) fn open_directory(path: &Path) -> Result<Directory, StorageError> {
    let missing = || StorageError::io(path, io::ErrorKind::NotFound.into());
    Directory::open(path).at(path)?.ok_or_else(missing)
}

/// Creates a directory if necessary, for this user only. An existing one keeps its permissions (it may be shared on
/// purpose); the files in it are private in any case, because they contain session passwords.
pub(crate) fn make_directory(path: &Path) -> Result<Directory, StorageError> {
    Directory::open_or_make(path).map_err(|e| StorageError::not_created(path, e))
}

/// Reads a file of one or two lines; `None` if it is missing.
pub(super) fn read_text(dir: &Directory, name: &str) -> Result<Option<String>, StorageError> {
    let bytes = dir.read(name, LONGEST_TEXT).if_exists().at(&dir.path_of(name))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// A file that this process has locked until the value is dropped. The lock belongs to the operating system, so it
/// cannot outlive the process.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    path: PathBuf,
}

impl LockedFile {
    /// Locks a file with [`File::try_lock`] or [`File::try_lock_shared`]; if another process holds the lock, the data
    /// directory is in use.
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
    /// Unlocks explicitly. Closing the file is not enough: a child process that another thread is starting shares the
    /// open file, and with it the lock, until it executes its program.
    fn drop(&mut self) {
        if let Err(e) = self.file.unlock() {
            let file = self.path.display();
            tracing::warn!("{file} stays locked until this process ends: {e}");
        }
    }
}

/// The error for a data directory whose lock file another process holds.
pub(super) fn in_use(data_dir: &Path, lock: &File) -> StorageError {
    let mut text = String::new();
    let read = lock.take(LONGEST_TEXT).read_to_string(&mut text).ok();
    let pid = read.and_then(|_| text.trim().parse().ok());
    StorageError::InUse { path: data_dir.to_path_buf(), pid }
}
