//! The data directory: one owner at a time, in a format that this release knows.
//!
//! | file | contents |
//! |---|---|
//! | `LOCK` | locked while an engine runs; the process number of the owner, as text |
//! | `FORMAT` | `lockkeeper-engine 3`, followed by ` creating` until the database is there |
//! | `lockkeeper.redb` | the database |
//! | `commits.a`, `commits.b` | commits that the database does not have yet, and older ones |
//! | `acknowledged` | the number of the last commit |
//! | `RESTORED` | after a restore, the quiet time that is due |

use std::cmp::Ordering;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::StorageError;

/// The format that this release reads and writes.
const FORMAT: u32 = 3;
const FORMAT_PREFIX: &str = "lockkeeper-engine ";
/// The file of the database.
pub(crate) const DATABASE: &str = "lockkeeper.redb";
/// Marks a directory whose database is still being made: nothing was ever acknowledged from it.
const CREATING: &str = " creating";

/// A data directory that belongs to this process until the value is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// The lock is the operating system's, so that it cannot outlive the process. `None` if the
    /// directory is only looked at and no engine has been on it: a backup.
    lock: Option<File>,
}

/// What a claimed directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No database yet, or one that was never finished.
    New,
    /// A database and logs that must be there.
    Existing,
}

/// A directory of which nothing is known but that no engine runs on it.
#[derive(Debug)]
pub(crate) struct OwnedDirectory {
    _dir: DataDir,
}

impl OwnedDirectory {
    /// Locks a directory that exists, whatever is in it.
    pub(crate) fn claim(path: &Path) -> Result<Self, StorageError> {
        Ok(Self { _dir: DataDir { path: path.to_path_buf(), lock: Some(lock(path)?) } })
    }
}

impl DataDir {
    /// Creates the directory if need be, locks it and checks its format.
    pub(super) fn claim(path: &Path) -> Result<(DataDir, State), StorageError> {
        create_private(path)?;
        let dir = DataDir { path: path.to_path_buf(), lock: Some(lock(path)?) };
        let state = dir.check_format()?;
        Ok((dir, state))
    }

    /// Keeps engines out of a directory that exists, and checks its format. Writes nothing, so that
    /// it works on a medium that cannot be written.
    pub(super) fn look_at(path: &Path) -> Result<(DataDir, State), StorageError> {
        let dir = DataDir { path: path.to_path_buf(), lock: lock_for_reading(path)? };
        let state = dir.check_format()?;
        Ok((dir, state))
    }

    /// Refuses what was read while an engine came to a directory that had no lock.
    pub(super) fn check_undisturbed(&self) -> Result<(), StorageError> {
        if self.lock.is_none()
            && let Some(mut file) = open_lock(&self.path)?
        {
            return Err(StorageError::InUse { path: self.path.clone(), pid: read_pid(&mut file) });
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the database is.
    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    fn format(&self) -> PathBuf {
        self.path.join("FORMAT")
    }

    /// Opens the database file, emptied first if it was never finished.
    pub(super) fn open_database(&self, state: State) -> Result<File, StorageError> {
        let path = self.database();
        let failed = |e| StorageError::io(&path, e);
        if state != State::New {
            return self.open_existing(&path);
        }
        self.write_format(CREATING)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.mode(0o600).open(&path).map_err(failed)
    }

    /// A missing or empty file is damage: the library below would fill it in silently.
    fn open_existing(&self, path: &Path) -> Result<File, StorageError> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StorageError::damaged(path, "the file is missing"));
            }
            Err(e) => return Err(StorageError::io(path, e)),
        };
        match file.metadata() {
            Ok(meta) if meta.len() == 0 => Err(StorageError::damaged(path, "the file is empty")),
            Ok(_) => Ok(file),
            Err(e) => Err(StorageError::io(path, e)),
        }
    }

    /// Declares the database and the logs complete: from here on they must be there.
    pub(super) fn finish_creation(&self) -> Result<(), StorageError> {
        self.write_format("")
    }

    /// Reads `FORMAT` before anything else is opened, so that a newer database is left alone.
    fn check_format(&self) -> Result<State, StorageError> {
        let path = self.format();
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.check_unused(&path),
            Err(e) => return Err(StorageError::io(&path, e)),
        };

        let (found, state) = parse_format(&text)
            .ok_or_else(|| StorageError::damaged(&path, "it does not name a format"))?;

        let (path, known) = (self.path.clone(), FORMAT);
        match found.cmp(&known) {
            Ordering::Greater => Err(StorageError::Newer { path, found, known }),
            Ordering::Less => Err(StorageError::Older { path, found, known }),
            Ordering::Equal => Ok(state),
        }
    }

    /// Without `FORMAT` there must be no database either.
    fn check_unused(&self, format: &Path) -> Result<State, StorageError> {
        match self.database().try_exists() {
            Ok(false) if self.path.join("version-2").exists() => {
                Err(StorageError::ZooKeeper { path: self.path.clone() })
            }
            Ok(false) => Ok(State::New),
            Ok(true) => Err(StorageError::damaged(format, "it is missing beside a database")),
            Err(e) => Err(StorageError::io(&self.path, e)),
        }
    }

    fn write_format(&self, suffix: &str) -> Result<(), StorageError> {
        replace(&self.path, "FORMAT", &format!("{FORMAT_PREFIX}{FORMAT}{suffix}\n"))
    }
}

impl Drop for DataDir {
    /// Unlocks in so many words. Closing the file is not enough: a child process that another
    /// thread is just starting shares the open file, and with it the lock, until it has become
    /// the other program.
    fn drop(&mut self) {
        let Some(lock) = &self.lock else { return };
        if let Err(e) = lock.unlock() {
            tracing::warn!(dir = %self.path.display(), "the data directory stays locked until this process ends: {e}");
        }
    }
}

/// "lockkeeper-engine 3" to (3, Existing).
fn parse_format(text: &str) -> Option<(u32, State)> {
    let version = text.strip_prefix(FORMAT_PREFIX)?.trim_end();
    match version.strip_suffix(CREATING) {
        Some(version) => Some((version.parse().ok()?, State::New)),
        // A newer release may say more on the line; its number alone decides.
        None => Some((version.split(' ').next()?.parse().ok()?, State::Existing)),
    }
}

/// Whether a file of this name is needed at the next start, and is there for as long as an engine
/// runs.
pub(crate) fn is_data(name: &str) -> bool {
    matches!(name, "FORMAT" | DATABASE | "acknowledged") || name.starts_with("commits.")
}

/// Replaces a file in a directory durably: after a crash there is the old one or the new one.
pub(super) fn replace(dir: &Path, name: &str, contents: &str) -> Result<(), StorageError> {
    let (path, draft) = (dir.join(name), dir.join(format!("{name}.new")));
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&draft)?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|e| StorageError::io(&path, e))
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
    sync_parent(path).map_err(|e| StorageError::io(path, e))
}

/// Makes the directory's own name durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Takes the exclusive lock and leaves this process's number for whoever is refused.
fn lock(dir: &Path) -> Result<File, StorageError> {
    let path = dir.join("LOCK");
    let failed = |e| StorageError::io(&path, e);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.mode(0o600).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StorageError::InUse { path: dir.to_path_buf(), pid: read_pid(&mut file) });
        }
        Err(TryLockError::Error(e)) => return Err(failed(e)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

/// Shares the lock with others who only read; `None` if no engine has ever been here.
fn lock_for_reading(dir: &Path) -> Result<Option<File>, StorageError> {
    let Some(mut file) = open_lock(dir)? else {
        return Ok(None);
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            Err(StorageError::InUse { path: dir.to_path_buf(), pid: read_pid(&mut file) })
        }
        Err(TryLockError::Error(e)) => Err(StorageError::io(&dir.join("LOCK"), e)),
    }
}

/// The lock file as it is, to be read only.
fn open_lock(dir: &Path) -> Result<Option<File>, StorageError> {
    let path = dir.join("LOCK");
    match File::open(&path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(StorageError::io(&path, e)),
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_descriptor_does_not_keep_the_directory_locked() {
        let path = tempfile::TempDir::new().unwrap();
        let (dir, _) = DataDir::claim(path.path()).unwrap();
        let inherited_by_a_child = dir.lock.as_ref().unwrap().try_clone().unwrap();
        drop(dir);
        DataDir::claim(path.path()).unwrap();
        drop(inherited_by_a_child);
    }
}
