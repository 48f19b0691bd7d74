//! The errors between the engine and its disk, with messages that name a remedy.

use std::io;
use std::path::{Path, PathBuf};

use super::durability::Durability;
use crate::files::Distrust;

/// Why the engine could not open its data directory or write to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// No directory was given, but the durability requires one.
    #[error(
        "durability `{durability}` needs a data directory: give one, or choose durability `memory`"
    )]
    NoDirectory {
        /// The requested durability.
        durability: Durability,
    },

    /// The path is not a directory.
    #[error("{} is not a directory: give the path of a directory, or one that does not exist yet", .path.display())]
    NotADirectory {
        /// The path as it was given.
        path: PathBuf,
    },

    /// The directory cannot be created.
    #[error("the directory {} cannot be created ({source}): choose another one", .path.display())]
    NotCreated {
        /// The path as it was given.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// The directory contains the data of another kind of server.
    #[error(
        "{} contains the data of an Apache ZooKeeper server (version-2), which the engine cannot read: \
         choose an empty directory",
        path.display()
    )]
    ZooKeeper {
        /// The directory.
        path: PathBuf,
    },

    /// The directory contains other files, and no data of an engine.
    #[error(
        "{} contains other files ({}, for instance) and is not a data directory of an engine: choose an empty \
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

    /// The directory is a backup. An engine on it would issue fencing tokens again that its original has issued since.
    #[error(
        "{} is a backup: create a data directory from it with `lockkeeper engine restore`, which keeps \
         fencing tokens growing",
        .path.display()
    )]
    Backup {
        /// The directory.
        path: PathBuf,
    },

    /// A file system is mounted at the directory, which therefore cannot be renamed.
    #[error("{} is a mount point, which cannot be replaced: choose a directory below it", .path.display())]
    MountPoint {
        /// The path as it was given.
        path: PathBuf,
    },

    /// Another user may have placed the file or directory there: it belongs to another user, or is a link or another
    /// kind of file.
    #[error(
        "{} is refused ({source}): run as its owner, or choose another directory",
        .path.display()
    )]
    Untrusted {
        /// The file or directory concerned.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },

    /// The directory contains no data of an engine, or only data whose creation was not finished.
    #[error("{} contains no data of an engine: give the data directory of an engine", .path.display())]
    NoData {
        /// The directory.
        path: PathBuf,
    },

    /// The parent directory of a backup does not exist.
    #[error("the parent directory of {} does not exist: create it first", .path.display())]
    NoParent {
        /// The path as it was given.
        path: PathBuf,
    },

    /// A backup inside its original would be lost with it.
    #[error(
        "{} is inside {}, which is to be copied: choose a path outside of it",
        .path.display(),
        .original.display()
    )]
    Within {
        /// The path as it was given.
        path: PathBuf,
        /// The data directory.
        original: PathBuf,
    },

    /// A backup never overwrites anything.
    #[error("{} exists already: choose another path, or move it away", .path.display())]
    Exists {
        /// The path as it was given.
        path: PathBuf,
    },

    /// The file permissions or a read-only mount prevent the engine from writing.
    #[error(
        "{} is not writable ({source}): give the engine's user access to it, or choose another directory",
        .path.display()
    )]
    NotWritable {
        /// The file or directory that was refused.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// Another running engine uses the directory.
    #[error("{} is in use by another engine{}: stop that engine, or choose another directory", .path.display(), process(.pid))]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process that uses it, if it recorded its id.
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

    /// A release before the first public one wrote the directory.
    #[error("{} was written by an older version (format {found}, this version knows {known}): export it with that version, and import it here into an empty directory", .path.display())]
    Older {
        /// The data directory.
        path: PathBuf,
        /// The format found there.
        found: u32,
        /// The only format that this release reads.
        known: u32,
    },

    /// The contents are not what was written. The engine never starts empty by itself: that would grant locks that are
    /// already held.
    #[error("{} is damaged ({detail}): restore the directory from a backup, or move it away and start empty", .file.display())]
    Damaged {
        /// The file that failed its check.
        file: PathBuf,
        /// What the check found.
        detail: String,
    },

    /// The disk is full.
    #[error(
        "no space is left for {} ({source}): free some on that disk, or raise the limit of file sizes, \
         and restart the engine",
        .path.display()
    )]
    Full {
        /// The file or directory that could not grow.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// The operating system reported another error.
    #[error("{} cannot be read or written ({source}): check the disk and the system log, then restart the engine", .path.display())]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// The engine has released the data directory.
    #[error("the engine has ended and accepts no more writes")]
    GivenUp,

    /// An earlier commit failed. The content of the disk is unknown until it is read back, so nothing more is written
    /// (a repeated sync may succeed without having synced).
    #[error("{} accepts no more writes after an earlier error: restart the engine, which recovers every acknowledged write", .path.display())]
    Stopped {
        /// The data directory.
        path: PathBuf,
    },
}

impl StorageError {
    /// Maps an operating system error to the variant that names its remedy.
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

    /// The error for a directory that the operating system does not create.
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

    /// Maps an error of the database library.
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

/// Extends results of the operating system, for callers that know the path concerned.
pub(crate) trait IoResultExt<T>: Sized {
    /// `None` for a missing file.
    fn if_exists(self) -> io::Result<Option<T>>;

    /// Maps an error as [`StorageError::io`] does.
    fn at(self, path: &Path) -> Result<T, StorageError>;

    /// Like [`IoResultExt::at`], for a file that must exist: a missing one is damage.
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

/// Whether the disk, or this user's quota on it, is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Whether the library found invalid contents, rather than an error of the operating system.
fn is_about_contents(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// " (process 17)", or an empty text.
fn process(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
