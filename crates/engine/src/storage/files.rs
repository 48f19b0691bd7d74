//! The files of a data directory: their names, and how they are locked.
//!
//! | file | contents |
//! |---|---|
//! | `LOCK` | locked while an engine runs; the process number of the owner, as text |
//! | `FORMAT` | `lockkeeper-engine 3`, followed by ` creating` until the database is there, and by ` backup` in a backup |
//! | `lockkeeper.redb` | the database |
//! | `commits.a`, `commits.b` | commits that the database does not have yet, and older ones |
//! | `acknowledged` | the number of the last commit |
//! | `RESTORED` | after a restore, the quiet time that is due |
//! | `CONTROL` | while an engine runs, the socket on which another process asks for a backup |

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
/// The socket on which another process asks for a backup.
pub(crate) const CONTROL: &str = "CONTROL";

/// Whether a file of this name is needed at the next start, and is there for as long as an engine
/// runs.
pub(crate) fn is_data(name: &str) -> bool {
    [FORMAT, DATABASE, ACKNOWLEDGED].contains(&name) || LOGS.contains(&name)
}

/// The longest file that is read as text, in bytes: a line or two.
pub(super) const LONGEST_TEXT: u64 = 4096;

/// Whether an engine makes files of this name in its directory, or a file system has it when it is new.
pub(super) fn is_known(name: &str) -> bool {
    let drafted = name.strip_suffix(".new").unwrap_or(name);
    is_data(name) || [LOCK, FORMAT, RESTORED, CONTROL, "lost+found"].contains(&drafted)
}

/// Opens a directory that has to be there.
pub(crate) fn open_directory(path: &Path) -> Result<Directory, StorageError> {
    let missing = || StorageError::io(path, io::ErrorKind::NotFound.into());
    Directory::open(path).at(path)?.ok_or_else(missing)
}

/// Makes a directory, if need be, for this user alone. One that exists keeps its permissions (it may be
/// shared on purpose); the files in it are private either way, as they hold session passwords.
pub(crate) fn make_directory(path: &Path) -> Result<Directory, StorageError> {
    Directory::open_or_make(path).map_err(|e| StorageError::not_created(path, e))
}

/// Reads a file of a line or two; `None` if it is missing.
pub(super) fn read_text(dir: &Directory, name: &str) -> Result<Option<String>, StorageError> {
    let bytes = dir.read(name, LONGEST_TEXT).if_exists().at(&dir.path_of(name))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
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
pub(super) fn in_use(data_dir: &Path, lock: &File) -> StorageError {
    let mut text = String::new();
    let read = lock.take(LONGEST_TEXT).read_to_string(&mut text).ok();
    let pid = read.and_then(|_| text.trim().parse().ok());
    StorageError::InUse { path: data_dir.to_path_buf(), pid }
}
