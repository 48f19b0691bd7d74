//! Replaces a data directory with a backup.

use std::fs;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_tree::{Config, LAST_EPOCH, Server};
use lockkeeper_wire::Zxid;

use crate::clock;
use crate::data_dir::check;
use crate::data_dir::floor::{Floor, FloorRecord, real_path};
use crate::data_dir::succession::start_above;
use crate::error::StartError;
use crate::storage::{
    Batch, DATABASE, Draft, FORMAT, IoResultExt, OwnedDirectory, QuietTime, Repairs, Storage,
    StorageError, mark_restored, open_directory,
};

/// How a restore treats an existing data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The restore is refused. An empty directory does not count as existing.
    #[default]
    Keep,
    /// It is renamed to `<directory>.replaced-N`, and the restored one takes its name, in one step.
    Replace,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restoration {
    /// The data directory, without links.
    pub path: PathBuf,
    /// The last transaction; all later ones, and so all later tokens, are above it.
    pub last_zxid: Zxid,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of sessions in the backup, which have ended.
    pub sessions_ended: usize,
    /// The number of their ephemeral nodes, which were deleted.
    pub ephemerals_deleted: usize,
    /// The new path of the directory that was replaced.
    pub replaced: Option<PathBuf>,
    /// Whether the replaced directory could be read. If not, what it had granted is known only from the file next to it
    /// and from the clock.
    pub replaced_was_readable: bool,
}

/// Why a restore failed; nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreFailure {
    /// The backup contains no data.
    #[error("{} contains no data to restore", .path.display())]
    Empty {
        /// The backup.
        path: PathBuf,
    },
    /// The backup is the directory itself, or contains it.
    #[error(
        "{} is inside the backup {}: first move the backup elsewhere", .path.display(),
        .backup.display()
    )]
    Within {
        /// The directory.
        path: PathBuf,
        /// The backup.
        backup: PathBuf,
    },
    /// The directory is not empty and is not a data directory.
    #[error("{} is neither empty nor a data directory: choose another one", .path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// All epochs are used up.
    #[error("all transaction numbers are used up (epoch {epoch})")]
    UsedUp {
        /// The last epoch.
        epoch: u32,
    },
    /// The backup or the directory is in use, damaged, or cannot be read or written.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<StorageError> for RestoreFailure {
    fn from(error: StorageError) -> Self {
        Self::Start(error.into())
    }
}

/// Creates a data directory from a backup, or from another directory that no engine uses. The source is not changed.
///
/// New fencing tokens are above all tokens of the directory's engines and of the backup, and above the time: the epoch,
/// which is the upper half of a token, becomes larger than that of the backup, of the directory that is replaced, and
/// of the file `<directory>.floor` next to it. The sessions of the backup end. The next engine on this directory
/// refuses new sessions for `quiet_time`; without one, for the longest session timeout that it grants or that was
/// found. Zero disables this: use it only if it is certain that no client holds a lock.
///
/// The restore happens completely or not at all, even if the machine fails in between. Blocks until it is on the disk.
///
/// # Errors
/// The backup is damaged or in use, an engine runs on the directory, or the directory exists and must not be replaced.
pub fn restore(
    backup: impl AsRef<Path>,
    directory: impl AsRef<Path>,
    existing: Existing,
    quiet_time: Option<Duration>,
) -> Result<Restoration, RestoreFailure> {
    let (backup, target) = (backup.as_ref(), real_path(directory.as_ref())?);
    if target.starts_with(real_path(backup)?) {
        return Err(RestoreFailure::Within { path: target, backup: backup.to_path_buf() });
    }
    // Before anything is changed: a backup that cannot be read replaces nothing.
    let (source, mut server) = read(backup, Storage::inspect)?;
    let old = TargetContent::claim(&target, existing)?;
    // One restore at a time.
    let mut floor = Floor::claim(&target)?;

    let (of_old, of_floor) = (old.record(), floor.record().unwrap_or_default());
    let found = server.stats();
    let base = base_above(found.last_zxid.max(of_old.zxid).max(of_floor.zxid))?;
    let longest_timeout =
        server.longest_timeout().max(of_old.longest_timeout).max(of_floor.longest_timeout);
    server.begin_after(base);
    let sessions_ended = server.end_sessions(clock::now());

    let draft = Draft::beside(&target)?;
    source.fill(&draft)?;
    write_changes(&mut server, &draft)?;
    let quiet = match quiet_time {
        Some(time) => QuietTime::Exactly(time),
        None => QuietTime::AtLeast(longest_timeout),
    };
    mark_restored(&draft.open()?, quiet)?;
    let replaced = old.give_way(draft, &target)?;

    let last_zxid = server.stats().last_zxid;
    let longest_timeout = quiet.of(Duration::ZERO);
    // The engine that starts here does the same, so the restore is valid without it.
    if let Err(e) = floor.rest(FloorRecord { zxid: last_zxid, longest_timeout }) {
        tracing::warn!("{e}");
    }
    Ok(Restoration {
        path: target,
        last_zxid,
        nodes: server.stats().nodes,
        sessions_ended,
        ephemerals_deleted: found.ephemerals,
        replaced_was_readable: old.is_readable(),
        replaced,
    })
}

/// Makes sure that the tokens of a data directory continue above those of other servers from which data is moved to it:
/// raises the file `<directory>.floor` and returns its path. The directory need not exist. If its own numbers are in an
/// earlier epoch, the next engine there acts as after a restore: it ends all sessions of the directory, and refuses new
/// ones during a quiet time.
///
/// Blocks until the file is on the disk.
///
/// # Errors
/// An engine runs on the directory, no higher numbers are available, or the file cannot be written.
pub fn raise_floor(directory: impl AsRef<Path>, above: Zxid) -> Result<PathBuf, RestoreFailure> {
    let target = real_path(directory.as_ref())?;
    base_above(above)?;
    // A running engine would ignore the file, and the next one would end its sessions.
    let _claim = match is_free(&target)? {
        true => None,
        false if !is_data(&target) => return Err(RestoreFailure::Foreign { path: target }),
        false => Some(OwnedDirectory::claim(&target)?),
    };
    let mut floor = Floor::claim(&target)?;
    let known = floor.record().unwrap_or_default();
    floor.rest(FloorRecord { zxid: known.zxid.max(above), ..known })?;
    Ok(floor.path().to_owned())
}

type Inspect = fn(&Path) -> Result<Option<(Storage, Repairs)>, StorageError>;

/// Reads a directory that no engine uses; returns the server whose state it holds.
fn read(dir: &Path, inspect: Inspect) -> Result<(Storage, Server), RestoreFailure> {
    let (storage, _) =
        inspect(dir)?.ok_or_else(|| RestoreFailure::Empty { path: dir.to_path_buf() })?;
    let server = check::restore(Config::default(), Some(dir), &storage)?;
    Ok((storage, server))
}

/// The number above which a server begins that follows this one.
fn base_above(known: Zxid) -> Result<Zxid, RestoreFailure> {
    let epoch = known.epoch();
    if epoch.saturating_add(1) >= LAST_EPOCH {
        return Err(RestoreFailure::UsedUp { epoch });
    }
    Ok(start_above(epoch))
}

fn write_changes(server: &mut Server, draft: &Draft) -> Result<(), StorageError> {
    let mut storage = Storage::open_draft(draft)?;
    let mut batch = Batch::default();
    batch.add_all(&server.take_changes());
    storage.commit(&mut batch)?;
    storage.close()
}

/// The existing content at the target of a restore. No engine starts on it while this value exists.
enum TargetContent {
    /// Nothing, or an empty directory.
    None,
    Readable {
        _storage: Box<Storage>,
        server: Box<Server>,
    },
    /// Damaged, or written by a newer version.
    Unreadable {
        _claim: OwnedDirectory,
    },
}

impl TargetContent {
    fn claim(target: &Path, existing: Existing) -> Result<Self, RestoreFailure> {
        if is_free(target)? {
            // An empty directory of another user would become this user's.
            if target.try_exists().at(target)? {
                open_directory(target)?;
            }
            return Ok(Self::None);
        }
        if existing == Existing::Keep {
            return Err(StorageError::Exists { path: target.to_path_buf() }.into());
        }
        if !is_data(target) {
            return Err(RestoreFailure::Foreign { path: target.to_path_buf() });
        }

        match read(target, Storage::inspect_owned) {
            Ok((storage, server)) => {
                let (_storage, server) = (Box::new(storage), Box::new(server));
                Ok(Self::Readable { _storage, server })
            }
            Err(RestoreFailure::Start(StartError::Storage(e @ StorageError::InUse { .. }))) => {
                Err(e.into())
            }
            Err(e) => {
                tracing::warn!("the replaced directory cannot be read: {e}");
                Ok(Self::Unreadable { _claim: OwnedDirectory::claim(target)? })
            }
        }
    }

    /// What its engines have granted, as far as it is known.
    fn record(&self) -> FloorRecord {
        match self {
            Self::Readable { server, .. } => FloorRecord {
                zxid: server.stats().last_zxid,
                longest_timeout: server.longest_timeout(),
            },
            _ => FloorRecord::default(),
        }
    }

    fn is_readable(&self) -> bool {
        !matches!(self, Self::Unreadable { .. })
    }

    /// Moves the draft into its place; returns the new path of the old content.
    fn give_way(&self, draft: Draft, target: &Path) -> Result<Option<PathBuf>, StorageError> {
        keep_permissions(target, &draft)?;
        if matches!(self, Self::None) {
            draft.put_in_place(target)?;
            return Ok(None);
        }
        let aside = free_name(target)?;
        draft.swap_with(target, &aside)?;
        Ok(Some(aside))
    }
}

/// Whether there is nothing that could be lost.
fn is_free(target: &Path) -> Result<bool, StorageError> {
    let entries = fs::read_dir(target).if_exists().at(target)?;
    Ok(entries.is_none_or(|mut entries| entries.next().is_none()))
}

/// Whether an engine created the content.
fn is_data(target: &Path) -> bool {
    [FORMAT, DATABASE].iter().any(|name| target.join(name).exists())
}

/// An unused name next to the directory.
fn free_name(target: &Path) -> Result<PathBuf, StorageError> {
    for number in 1_u64.. {
        let path = target.with_added_extension(format!("replaced-{number}"));
        if !path.try_exists().at(target)? {
            return Ok(path);
        }
    }
    unreachable!("a directory cannot contain so many names")
}

/// The directory may be shared on purpose: with a group, or with all users.
fn keep_permissions(target: &Path, draft: &Draft) -> Result<(), StorageError> {
    let path = draft.path();
    let Some(replaced) = fs::metadata(target).if_exists().at(path)? else { return Ok(()) };
    let files = draft.open()?;
    if files.handle().metadata().at(path)?.gid() != replaced.gid() {
        fchown(files.handle(), None, Some(replaced.gid())).at(path)?;
    }
    files.handle().set_permissions(replaced.permissions()).at(path)
}
