//! `lockkeeper engine`: works on the data directory of an engine, running or not.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use lockkeeper_engine::{
    BackupError, Existing, Report, Restoration, RestoreFailure, StartError, StorageError,
};
use serde::Serialize;

use crate::commands::serve::zoo_cfg::ZooCfg;
use crate::commands::transfer;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::{show, tell};

/// A subcommand of `engine`.
#[derive(Debug, Subcommand)]
pub(crate) enum EngineTask {
    /// Check every record of a data directory that no engine is using; change nothing
    Check {
        /// The data directory, or the configuration file of serve that names it
        dir: PathBuf,
    },
    /// Copy a data directory as of one point in time, whether or not an engine runs on it
    ///
    /// The directory that will contain the copy must exist, and must not be the data directory itself.
    ///
    /// To use the copy, restore it. An engine that is started on the copy itself issues fencing
    /// tokens again that were issued after the copy was made.
    Backup {
        /// The data directory, or the configuration file of serve that names it
        dir: PathBuf,
        /// The copy; it must not exist yet, and must be outside of the data directory
        to: PathBuf,
    },
    /// Create a data directory from a backup or a plain copy, which is not changed
    ///
    /// New fencing tokens are greater than all earlier ones: the epoch, their upper half, becomes
    /// larger than that of the backup, of the directory that is replaced, and of the file
    /// DIRECTORY.floor next to it. Sessions in the backup end. The next engine starts no session
    /// before the longest session timeout has passed, because clients may still hold locks.
    Restore {
        /// The backup: a data directory that no engine is using
        backup: PathBuf,
        /// The data directory to create; it must not exist yet, or be empty
        directory: PathBuf,
        /// Replace an existing data directory, which is kept as DIRECTORY.replaced-N
        #[arg(long)]
        replace: bool,
        /// How long the next engine starts no session; 0s if certainly no client holds a lock
        /// [default: the longest session timeout]
        #[arg(long, value_name = "DURATION", value_parser = names::duration)]
        quiet_time: Option<Duration>,
    },
    /// Make new fencing tokens greater than those of the servers that you move from
    ///
    /// Raises the file DIRECTORY.floor, before the first start of the engine or while it is stopped. If
    /// the tokens of the directory are from an earlier epoch, its sessions end, and the next engine
    /// starts no session before the longest session timeout has passed, unless serve --quiet-time
    /// sets another time. See docs/growing.md.
    Floor {
        /// The data directory; it need not exist
        directory: PathBuf,
        /// The lower bound of new tokens: a zxid (0x1a2d0000000d), a token, or a file of lockkeeper
        /// export
        #[arg(long, value_name = "ZXID|FILE", allow_hyphen_values = true)]
        above: String,
    },
}

/// The result of a check, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    dir: &'a Path,
    file_bytes: u64,
    after_crash: bool,
    znodes: usize,
    ephemerals: usize,
    sessions: usize,
    data_bytes: usize,
    last_zxid: String,
}

/// The result of a copy, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct Copied<'a> {
    dir: &'a Path,
    backup: &'a Path,
    records: u64,
}

/// The result of a restore, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct Restored<'a> {
    backup: &'a Path,
    dir: &'a Path,
    epoch: u32,
    last_zxid: String,
    znodes: usize,
    sessions_ended: usize,
    ephemerals_deleted: usize,
    replaced: Option<&'a Path>,
}

/// The new lower bound of a directory's tokens, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct Raised<'a> {
    dir: &'a Path,
    floor: &'a Path,
    above: String,
}

/// Runs a subcommand of `engine`.
pub(crate) fn command(global: &Global, task: EngineTask) -> Result<u8, Failure> {
    match task {
        EngineTask::Floor { directory, above } => floor(global, &directory, &above)?,
        EngineTask::Check { dir } => check(global, &data_dir(dir)?)?,
        EngineTask::Backup { dir, to } => backup(global, &data_dir(dir)?, &to)?,
        EngineTask::Restore { backup, directory, replace, quiet_time } => {
            check_is_directory(&backup)?;
            let existing = if replace { Existing::Replace } else { Existing::Keep };
            restore(global, (&backup, &directory), existing, quiet_time)?;
        }
    }
    Ok(Exit::Ok.code())
}

/// The data directory that is given, or that a configuration file names.
fn data_dir(given: PathBuf) -> Result<PathBuf, Failure> {
    let dir = match given.is_file() {
        true => ZooCfg::read(&given)?.data_dir.ok_or_else(|| {
            Failure::new(Exit::Config, format!("{} names no dataDir", given.display()))
        })?,
        false => given,
    };
    check_is_directory(&dir)?;
    Ok(dir)
}

fn check_is_directory(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    match path.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let failure = Failure::new(Exit::NoPermission, format!("cannot open {shown}: {error}"));
            Err(failure.advise("run as the engine's user"))
        }
        _ => Err(Failure::new(Exit::Usage, format!("{shown} is not a data directory"))
            .advise("name the data directory of an engine")),
    }
}

fn check(global: &Global, dir: &Path) -> Result<(), Failure> {
    let report = lockkeeper_engine::check(dir).map_err(not_started)?;
    let checked = Checked {
        dir: &report.path,
        file_bytes: report.file_bytes,
        after_crash: report.after_crash,
        znodes: report.nodes,
        ephemerals: report.ephemerals,
        sessions: report.sessions,
        data_bytes: report.data_bytes,
        last_zxid: report.last_zxid.to_string(),
    };
    show(global, &checked, || describe(&report))
}

fn describe(report: &Report) -> String {
    let mut text = format!(
        "{} is valid\n\
         znodes       {}, {} of them ephemeral; {} bytes of paths and data\n\
         sessions     {}\n\
         last change  {}\n\
         file         {} bytes\n",
        report.path.display(),
        report.nodes,
        report.ephemerals,
        report.data_bytes,
        report.sessions,
        report.last_zxid,
        report.file_bytes,
    );

    if report.after_crash {
        text.push_str(
            "the last engine was not shut down cleanly; the next start cleans up, and no \
             acknowledged write is missing\n",
        );
    }
    text
}

fn backup(global: &Global, dir: &Path, to: &Path) -> Result<(), Failure> {
    // A running engine reports the same errors, but without their kind.
    if to.exists() {
        return Err(StorageError::Exists { path: to.to_owned() }.into());
    }
    let parent = to.parent().filter(|parent| *parent != Path::new(""));
    if parent.is_some_and(|parent| !parent.exists()) {
        return Err(StorageError::NoParent { path: to.to_owned() }.into());
    }
    if is_within(to, dir) {
        return Err(StorageError::Within { path: to.to_owned(), original: dir.to_owned() }.into());
    }

    let backup = lockkeeper_engine::backup(dir, to).map_err(failure)?;
    let (path, records) = (&backup.path, backup.records);
    show(global, &Copied { dir, backup: path, records }, || {
        let (path, dir) = (path.display(), dir.display());
        format!("{path} is a backup of {dir}, with {records} records\n")
    })
}

fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::Storage(error) => without_engine(error),
        BackupError::System(error) => error.into(),
        BackupError::NothingKept => Failure::new(Exit::Usage, error.to_string()),
        _ => Failure::new(Exit::Disk, error.to_string()),
    }
}

/// Whether a path that does not exist yet would be inside a directory.
fn is_within(path: &Path, directory: &Path) -> bool {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    let (Ok(parent), Ok(directory)) = (parent, directory.canonicalize()) else { return false };
    parent.starts_with(directory)
}

/// The failure for a disk error when there is no engine to restart.
fn without_engine(error: StorageError) -> Failure {
    let message = match &error {
        StorageError::Full { path, source } => format!(
            "no space is left for {} ({source}): free some space on that disk, or raise the limit for file \
             sizes, and try again",
            path.display()
        ),
        StorageError::Io { path, source } => {
            let path = path.display();
            format!(
                "{path} cannot be read or written ({source}): check the disk and the system log"
            )
        }
        _ => return error.into(),
    };
    Failure::from(error).instead(message)
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Storage(error) => without_engine(error),
        error => error.into(),
    }
}

/// Above this, programs that read numbers as floating point may confuse two tokens.
const EXACT_IN_JSON: i64 = 1 << 53;

fn restore(
    global: &Global,
    (backup, directory): (&Path, &Path),
    existing: Existing,
    quiet_time: Option<Duration>,
) -> Result<(), Failure> {
    let restored = lockkeeper_engine::restore(backup, directory, existing, quiet_time);
    let restored = restored.map_err(not_restored)?;
    if !restored.replaced_was_readable {
        tell(
            "the replaced directory cannot be read: if the clock was set back since, tokens may repeat",
        );
    }
    warn_of_large_tokens(restored.last_zxid.0);

    let shown = Restored {
        backup,
        dir: &restored.path,
        epoch: restored.last_zxid.epoch(),
        last_zxid: restored.last_zxid.to_string(),
        znodes: restored.nodes,
        sessions_ended: restored.sessions_ended,
        ephemerals_deleted: restored.ephemerals_deleted,
        replaced: restored.replaced.as_deref(),
    };
    show(global, &shown, || describe_restored(backup, &restored))
}

fn describe_restored(backup: &Path, restored: &Restoration) -> String {
    let mut text = format!(
        "{} is restored from {}\n\
         znodes       {}\n\
         sessions     {} ended, with {} ephemeral znodes\n\
         tokens       above {}\n",
        restored.path.display(),
        backup.display(),
        restored.nodes,
        restored.sessions_ended,
        restored.ephemerals_deleted,
        restored.last_zxid.0,
    );
    if let Some(replaced) = &restored.replaced {
        text.push_str(&format!("replaced     now {}\n", replaced.display()));
    }
    text
}

fn warn_of_large_tokens(above: i64) {
    if above >= EXACT_IN_JSON {
        tell("new tokens exceed 2^53; some JSON readers cannot distinguish such numbers");
    }
}

fn floor(global: &Global, dir: &Path, above: &str) -> Result<(), Failure> {
    let above = match transfer::zxid(above) {
        Ok(zxid) => zxid,
        Err(_) if Path::new(above).exists() => transfer::zxid_of_file(Path::new(above))?,
        Err(why) => return Err(Failure::new(Exit::Usage, format!("{why}, and not a file"))),
    };
    let floor = lockkeeper_engine::raise_floor(dir, above).map_err(not_restored)?;
    warn_of_large_tokens(above.0);
    show(global, &Raised { dir, floor: &floor, above: above.to_string() }, || {
        let (dir, floor) = (dir.display(), floor.display());
        format!("tokens of {dir} will be above {} ({floor})\n", above.0)
    })
}

fn not_restored(error: RestoreFailure) -> Failure {
    match error {
        RestoreFailure::Start(StartError::Storage(error @ StorageError::Exists { .. })) => {
            Failure::from(error).advise("or use --replace")
        }
        RestoreFailure::Start(error) => not_started(error),
        RestoreFailure::Foreign { .. } => Failure::new(Exit::CannotCreate, error.to_string()),
        RestoreFailure::UsedUp { .. } => Failure::new(Exit::Data, error.to_string()),
        _ => Failure::new(Exit::Usage, error.to_string()),
    }
}
