//! What can go wrong between the engine and its disk, in words that name the way out.

use std::io;
use std::path::{Path, PathBuf};

use super::durability::Durability;
use crate::files::Distrust;

/// Why the engine could not open its data directory or write to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Nothing was given to write to, but the durability promises that something is written.
    #[error(
        "durability `{durability}` needs a data directory: give one, or choose durability `memory`"
    )]
    NoDirectory {
        /// What was asked for.
        durability: Durability,
    },

    /// The path leads to something other than a directory.
    #[error("{} is not a directory: give the path of a directory, or one that does not exist yet", .path.display())]
    NotADirectory {
        /// The path as it was given.
        path: PathBuf,
    },

    /// The path leads to where no directory can be.
    #[error("the directory {} cannot be made ({source}): choose another one", .path.display())]
    NotCreated {
        /// The path as it was given.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// The directory is that of another kind of server.
    #[error(
        "{} holds the data of an Apache ZooKeeper server (version-2), which the engine cannot read; \
         choose an empty directory",
        path.display()
    )]
    ZooKeeper {
        /// The directory.
        path: PathBuf,
    },

    /// The directory has other files, and is no engine's.
    #[error(
        "{} is not empty ({}, for instance), and is no data directory of an engine: choose an empty \
         directory, or one that does not exist yet",
        path.display(),
        entry.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        entry: PathBuf,
    },

    /// The directory is a backup. An engine on it would give fencing tokens again that its original has
    /// given since.
    #[error(
        "{} is a backup: make a data directory of it by `lockkeeper engine restore`, which keeps \
         fencing tokens growing",
        .path.display()
    )]
    Backup {
        /// The directory.
        path: PathBuf,
    },

    /// A file system is mounted there, whose directory cannot get another name.
    #[error("{} is a mount point, which cannot be replaced: choose a directory below it", .path.display())]
    MountPoint {
        /// The path as it was given.
        path: PathBuf,
    },

    /// Another user may have put the file or the directory there: it belongs to one, or is a link or something
    /// else where a file belongs.
    #[error(
        "{} is not used ({source}): run as its owner, remove it, or choose another directory",
        .path.display()
    )]
    Untrusted {
        /// The file or directory concerned.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },

    /// There is nothing of an engine in the directory, or nothing that was ever finished.
    #[error("{} has no data of an engine: give the data directory of one", .path.display())]
    NoData {
        /// The directory.
        path: PathBuf,
    },

    /// A backup is put into a directory that exists.
    #[error("the directory in which {} is to be made does not exist: make it first", .path.display())]
    NoParent {
        /// The path as it was given.
        path: PathBuf,
    },

    /// A backup within its original would be lost with it.
    #[error(
        "{} is within {}, which is to be copied: choose a place outside of it",
        .path.display(),
        .original.display()
    )]
    Within {
        /// The path as it was given.
        path: PathBuf,
        /// The data directory.
        original: PathBuf,
    },

    /// A backup is never written over something.
    #[error("{} exists already: give a path that does not, or move that away", .path.display())]
    Exists {
        /// The path as it was given.
        path: PathBuf,
    },

    /// The file permissions or a read-only mount keep the engine out.
    #[error("{} is not writable: give the engine's user access to it, or choose another directory", .path.display())]
    NotWritable {
        /// The file or directory that was refused.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// Another live engine holds the directory.
    #[error("{} is in use by another engine{}: stop that one, or choose another directory", .path.display(), process(.pid))]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process that holds it, if it left its number.
        pid: Option<u32>,
    },

    /// A later release wrote the directory; this one would misread it.
    #[error("{} was written by a newer version (format {found}, this version knows {known}): upgrade lockkeeper, or choose another directory", .path.display())]
    Newer {
        /// The data directory.
        path: PathBuf,
        /// The format found there.
        found: u32,
        /// The newest format that this release reads.
        known: u32,
    },

    /// An earlier release wrote the directory, before the first one that others were to use.
    #[error("{} was written by an older version (format {found}, this version knows {known}): export it with that version, and import it here into an empty directory", .path.display())]
    Older {
        /// The data directory.
        path: PathBuf,
        /// The format found there.
        found: u32,
        /// The only format that this release reads.
        known: u32,
    },

    /// The contents are not what was written. The engine never starts empty by itself: that
    /// would hand out locks that somebody already holds.
    #[error("{} is damaged ({detail}): restore the directory from a backup, or move it away and start empty", .file.display())]
    Damaged {
        /// The file that failed its check.
        file: PathBuf,
        /// What the check found.
        detail: String,
    },

    /// No room is left.
    #[error(
        "no space is left for {} ({source}): free some on that disk, or raise the limit of file sizes, \
         and restart the engine",
        .path.display()
    )]
    Full {
        /// The file or directory that could not grow.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// The operating system reported some other error.
    #[error("{} cannot be read or written ({source}): check the disk and the system log, then restart the engine", .path.display())]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// The engine has given up the data directory.
    #[error("the engine has ended, and takes no more writes")]
    GivenUp,

    /// An earlier commit failed. What reached the disk is unknown until it is read back, so
    /// nothing more is written (a sync that is tried again may succeed without having synced).
    #[error("{} takes no more writes after an earlier error: restart the engine, which recovers all that was acknowledged", .path.display())]
    Stopped {
        /// The data directory.
        path: PathBuf,
    },
}

impl StorageError {
    /// Sorts an operating system error into the variant that tells its way out.
    pub(crate) fn io(path: &Path, source: io::Error) -> StorageError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StorageError::NotWritable { path, source }
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                StorageError::NotADirectory { path }
            }
            _ if is_full(&source) => StorageError::Full { path, source },
            _ if source.get_ref().is_some_and(|source| source.is::<Distrust>()) => {
                StorageError::Untrusted { path, source }
            }
            _ => StorageError::Io { path, source },
        }
    }

    /// The error for a directory that the operating system does not make.
    pub(super) fn not_created(path: &Path, source: io::Error) -> StorageError {
        match Self::io(path, source) {
            StorageError::Io { path, source } => StorageError::NotCreated { path, source },
            known => known,
        }
    }

    /// The error for a file whose contents failed a check.
    pub(crate) fn damaged(file: &Path, detail: impl ToString) -> StorageError {
        StorageError::Damaged { file: file.to_path_buf(), detail: detail.to_string() }
    }

    /// Sorts an error of the database library.
    pub(super) fn database(file: &Path, error: impl Into<redb::Error>) -> StorageError {
        match error.into() {
            redb::Error::Io(source) if !is_about_contents(&source) => {
                StorageError::io(file, source)
            }
            redb::Error::PreviousIo => StorageError::Stopped { path: file.to_path_buf() },
            other => StorageError::damaged(file, other),
        }
    }
}

/// Results of the operating system, for callers that know which path they are about.
pub(crate) trait IoResultExt<T>: Sized {
    /// `None` for something that is not there.
    fn if_exists(self) -> io::Result<Option<T>>;

    /// Sorts an error as [`StorageError::io`] does.
    fn at(self, path: &Path) -> Result<T, StorageError>;

    /// The same for a file that must be there: a missing one is damage.
    fn must_exist(self, path: &Path) -> Result<T, StorageError> {
        let found = self.if_exists().at(path)?;
        found.ok_or_else(|| StorageError::damaged(path, "the file is missing"))
    }
}

impl<T> IoResultExt<T> for io::Result<T> {
    fn if_exists(self) -> io::Result<Option<T>> {
        match self {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    fn at(self, path: &Path) -> Result<T, StorageError> {
        self.map_err(|e| StorageError::io(path, e))
    }
}

/// Whether the disk, or what this user may have of it, has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Whether the library found nonsense, rather than the operating system trouble.
fn is_about_contents(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// " (process 17)", or nothing.
fn process(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
