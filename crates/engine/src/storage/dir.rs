//! The data directory: it has one owner at a time, and a format that this release knows.

use std::cmp::Ordering;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::{IoResultExt, StorageError};
use super::files::{
    self, DATABASE, LOCK, LockedFile, in_use, is_known, make_directory, open_directory, read_text,
};
use crate::files::{Access, Directory};

/// The format that this release reads and writes.
const FORMAT: u32 = 3;
const FORMAT_PREFIX: &str = "lockkeeper-engine ";
/// Marks a directory whose database is still being created: nothing was ever acknowledged from it.
const CREATING: &str = " creating";
/// Marks a backup: an engine that ran on it would issue tokens again that its original has issued since.
const BACKUP: &str = " backup";

/// A data directory that this process owns until the value is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    files: Directory,
    /// `None` if the directory is only read and no engine has used it: a backup.
    lock: Option<LockedFile>,
}

/// The content of a claimed directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No database yet, or one whose creation was not finished.
    New,
    /// A database and logs, which must exist.
    Existing,
    /// Like [`State::Existing`], but only to be restored, not to be served.
    Backup,
}

/// A directory that no engine uses; its content is unknown.
#[derive(Debug)]
pub(crate) struct OwnedDirectory {
    _dir: DataDir,
}

impl OwnedDirectory {
    /// Locks an existing directory, whatever it contains.
    pub(crate) fn claim(path: &Path) -> Result<Self, StorageError> {
        Ok(Self { _dir: DataDir::lock(open_directory(path)?)? })
    }
}

impl DataDir {
    /// Creates the directory if necessary, locks it and checks its format.
    pub(super) fn claim(path: &Path) -> Result<(DataDir, State), StorageError> {
        let files = make_directory(path)?;
        // Before a file is created in it.
        check_unused(&files)?;
        let dir = Self::lock(files)?;
        let state = dir.check_format()?;
        Ok((dir, state))
    }

    /// Keeps engines out of an existing directory, and checks its format. Writes nothing, so that it works on a
    /// read-only medium.
    pub(super) fn look_at(path: &Path) -> Result<(DataDir, State), StorageError> {
        let files = open_directory(path)?;
        let dir = DataDir { lock: lock_for_reading(&files)?, files };
        let state = dir.check_format()?;
        Ok((dir, state))
    }

    /// Takes the exclusive lock and records this process's id for the errors of other processes.
    fn lock(files: Directory) -> Result<Self, StorageError> {
        let path = files.path_of(LOCK);
        let file = files.open_file(LOCK, Access::Create).at(&path)?;
        let lock = LockedFile::lock(file, &path, files.path(), File::try_lock)?;
        lock.set_len(0).and_then(|()| writeln!(&*lock, "{}", std::process::id())).at(&path)?;
        Ok(DataDir { files, lock: Some(lock) })
    }

    /// Rejects the data that was read if an engine has started on a directory that had no lock file.
    pub(super) fn check_undisturbed(&self) -> Result<(), StorageError> {
        if self.lock.is_none()
            && let Some(lock) = open_lock(&self.files)?
        {
            return Err(in_use(self.path(), &lock));
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        self.files.path()
    }

    pub(super) fn files(&self) -> &Directory {
        &self.files
    }

    /// The path of the database.
    pub(super) fn database(&self) -> PathBuf {
        self.files.path_of(DATABASE)
    }

    /// Opens the database file; if its creation was not finished, it is emptied first.
    pub(super) fn open_database(&self, state: State) -> Result<File, StorageError> {
        let path = self.database();
        if state != State::New {
            let file = self.files.open_file(DATABASE, Access::Write).must_exist(&path)?;
            return not_empty(file, &path);
        }
        self.write_format(CREATING)?;
        let file = self.files.open_file(DATABASE, Access::Create);
        file.and_then(|file| file.set_len(0).map(|()| file)).at(&path)
    }

    /// Opens the database file for reading.
    pub(super) fn read_database(&self) -> Result<File, StorageError> {
        self.files.open_file(DATABASE, Access::Read).must_exist(&self.database())
    }

    /// Records that the database and the logs are complete: from now on they must exist.
    pub(super) fn finish_creation(&self) -> Result<(), StorageError> {
        self.write_format("")
    }

    /// Marks it as a backup.
    pub(super) fn mark_backup(&self) -> Result<(), StorageError> {
        self.write_format(BACKUP)
    }

    /// Reads `FORMAT` before any other file is opened, so that a newer database is left unchanged.
    fn check_format(&self) -> Result<State, StorageError> {
        let path = self.files.path_of(files::FORMAT);
        let Some(text) = read_text(&self.files, files::FORMAT)? else {
            // Without it there must be no database either.
            return match self.files.has(DATABASE).at(self.path())? {
                true => {
                    Err(StorageError::damaged(&path, "it is missing although a database exists"))
                }
                false => Ok(State::New),
            };
        };

        let (found, state) = parse_format(&text)
            .ok_or_else(|| StorageError::damaged(&path, "it does not name a format"))?;

        let (path, known) = (self.path().to_owned(), FORMAT);
        match found.cmp(&known) {
            Ordering::Greater => Err(StorageError::Newer { path, found, known }),
            Ordering::Less => Err(StorageError::Older { path, found, known }),
            Ordering::Equal => Ok(state),
        }
    }

    fn write_format(&self, suffix: &str) -> Result<(), StorageError> {
        let text = format!("{FORMAT_PREFIX}{FORMAT}{suffix}\n");
        self.files.replace(files::FORMAT, text.as_bytes()).at(&self.files.path_of(files::FORMAT))
    }
}

/// Refuses a directory that contains other files and no engine's data: it was given by mistake.
fn check_unused(files: &Directory) -> Result<(), StorageError> {
    let path = files.path();
    if files.has(files::FORMAT).at(path)? {
        return Ok(());
    }
    if files.has("version-2").at(path)? {
        return Err(StorageError::ZooKeeper { path: path.to_owned() });
    }
    let names = files.names().at(path)?;
    match names.into_iter().find(|name| !name.to_str().is_some_and(is_known)) {
        Some(entry) => Err(StorageError::Foreign { path: path.to_owned(), entry: entry.into() }),
        None => Ok(()),
    }
}

/// An empty file is damage: the library would silently initialize it.
fn not_empty(file: File, path: &Path) -> Result<File, StorageError> {
    match file.metadata().at(path)?.len() {
        0 => Err(StorageError::damaged(path, "the file is empty")),
        _ => Ok(file),
    }
}

/// Parses "lockkeeper-engine 3" as (3, Existing).
fn parse_format(text: &str) -> Option<(u32, State)> {
    let version = text.strip_prefix(FORMAT_PREFIX)?.trim_end();
    // A newer release may add text to the line; its number alone decides.
    let (version, state) = match (version.strip_suffix(CREATING), version.strip_suffix(BACKUP)) {
        (Some(version), _) => (version, State::New),
        (_, Some(version)) => (version, State::Backup),
        _ => (version.split(' ').next()?, State::Existing),
    };
    Some((version.parse().ok()?, state))
}

/// Shares the lock with other readers; `None` if no engine has ever used the directory.
fn lock_for_reading(files: &Directory) -> Result<Option<LockedFile>, StorageError> {
    let file = open_lock(files)?;
    let lock =
        |file| LockedFile::lock(file, &files.path_of(LOCK), files.path(), File::try_lock_shared);
    file.map(lock).transpose()
}

/// Opens the lock file for reading only.
fn open_lock(files: &Directory) -> Result<Option<File>, StorageError> {
    files.open_file(LOCK, Access::Read).if_exists().at(&files.path_of(LOCK))
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

    /// Symptom: `serve --data-dir /etc` created six files among those of the system.
    #[test]
    fn a_directory_with_other_files_is_not_taken() {
        let dir = tempfile::TempDir::new().unwrap();
        std::fs::write(dir.path().join("passwd"), "").unwrap();
        let refused = DataDir::claim(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("(passwd, for instance)"), "{refused}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no file was created in it");

        std::fs::remove_file(dir.path().join("passwd")).unwrap();
        std::fs::create_dir(dir.path().join("lost+found")).unwrap();
        drop(DataDir::claim(dir.path()).unwrap());
        let (_, state) = DataDir::claim(dir.path()).unwrap();
        assert_eq!(state, State::New, "the files of an engine that was killed early are accepted");
    }
}
