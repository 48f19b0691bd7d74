//! The data directory: one owner at a time, in a format that this release knows.

use std::cmp::Ordering;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::{IoResultExt, StorageError};
use super::files::{self, DATABASE, LOCK, LockedFile, create_private, in_use, open_or_create};

/// The format that this release reads and writes.
const FORMAT: u32 = 3;
const FORMAT_PREFIX: &str = "lockkeeper-engine ";
/// Marks a directory whose database is still being made: nothing was ever acknowledged from it.
const CREATING: &str = " creating";

/// A data directory that belongs to this process until the value is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// `None` if the directory is only looked at and no engine has been on it: a backup.
    lock: Option<LockedFile>,
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
            && let Some(lock) = open_lock(&self.path)?
        {
            return Err(in_use(&self.path, &lock));
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
        self.path.join(files::FORMAT)
    }

    /// Opens the database file, emptied first if it was never finished.
    pub(super) fn open_database(&self, state: State) -> Result<File, StorageError> {
        let path = self.database();
        match state {
            State::Existing => open_existing(&path),
            State::New => {
                self.write_format(CREATING)?;
                let file = open_or_create(&path);
                file.and_then(|file| file.set_len(0).map(|()| file)).at(&path)
            }
        }
    }

    /// Declares the database and the logs complete: from here on they must be there.
    pub(super) fn finish_creation(&self) -> Result<(), StorageError> {
        self.write_format("")
    }

    /// Reads `FORMAT` before anything else is opened, so that a newer database is left alone.
    fn check_format(&self) -> Result<State, StorageError> {
        let path = self.format();
        let Some(bytes) = std::fs::read(&path).if_exists().at(&path)? else {
            return self.check_unused(&path);
        };

        let (found, state) = parse_format(&String::from_utf8_lossy(&bytes))
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
        if self.database().try_exists().at(&self.path)? {
            return Err(StorageError::damaged(format, "it is missing beside a database"));
        }
        match self.path.join("version-2").exists() {
            true => Err(StorageError::ZooKeeper { path: self.path.clone() }),
            false => Ok(State::New),
        }
    }

    fn write_format(&self, suffix: &str) -> Result<(), StorageError> {
        files::replace(&self.path, files::FORMAT, &format!("{FORMAT_PREFIX}{FORMAT}{suffix}\n"))
    }
}

/// A missing or empty file is damage: the library below would fill it in silently.
fn open_existing(path: &Path) -> Result<File, StorageError> {
    let file = OpenOptions::new().read(true).write(true).open(path).must_exist(path)?;
    match file.metadata().at(path)?.len() {
        0 => Err(StorageError::damaged(path, "the file is empty")),
        _ => Ok(file),
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

/// Takes the exclusive lock and leaves this process's number for whoever is refused.
fn lock(dir: &Path) -> Result<LockedFile, StorageError> {
    let path = dir.join(LOCK);
    let file = open_or_create(&path).at(&path)?;
    let lock = LockedFile::lock(file, &path, dir, File::try_lock)?;
    lock.set_len(0).and_then(|()| writeln!(&*lock, "{}", std::process::id())).at(&path)?;
    Ok(lock)
}

/// Shares the lock with others who only read; `None` if no engine has ever been here.
fn lock_for_reading(dir: &Path) -> Result<Option<LockedFile>, StorageError> {
    let file = open_lock(dir)?;
    file.map(|file| LockedFile::lock(file, &dir.join(LOCK), dir, File::try_lock_shared)).transpose()
}

/// The lock file as it is, to be read only.
fn open_lock(dir: &Path) -> Result<Option<File>, StorageError> {
    let path = dir.join(LOCK);
    File::open(&path).if_exists().at(&path)
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
