//! `lockkeeper engine`: the data directory of an engine, running or not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use lockkeeper_engine::{
    BackupError, Existing, Report, Restoration, RestoreFailure, StartError, StorageError,
};
use serde::Serialize;

use crate::commands::transfer;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::{show, tell};

/// A subcommand of `engine`.
#[derive(Debug, Subcommand)]
pub(crate) enum EngineTask {
    /// Check every record of a data directory that no engine is using, and change nothing
    Check {
        /// The data directory
        dir: PathBuf,
    },
    /// Copy a data directory as of one moment, whether or not an engine runs on it
    ///
    /// The directory in which the copy is made must exist, and must not be the data directory itself.
    ///
    /// To use the copy, restore it. An engine that is started on the copy itself gives out fencing
    /// tokens again that were given out after it was made.
    Backup {
        /// The data directory
        dir: PathBuf,
        /// The copy; it must not exist yet, and must be outside of the data directory
        to: PathBuf,
    },
    /// Make a data directory from a backup or a plain copy, which is not changed
    ///
    /// Fencing tokens go on above all earlier ones: the epoch, their upper half, becomes
    /// larger than that of the backup, of the directory that is replaced, and of the file
    /// DIRECTORY.floor beside it. Sessions in the backup end. The next engine lets no session begin
    /// before the longest session timeout has passed, as clients may still hold locks.
    Restore {
        /// The backup: a data directory that no engine is using
        backup: PathBuf,
        /// The data directory to make; it must not exist yet, or be empty
        directory: PathBuf,
        /// Replace an existing data directory, which is kept as DIRECTORY.replaced-N
        #[arg(long)]
        replace: bool,
        /// How long the next engine lets no session begin; 0s if certainly no client holds a lock
        /// [default: the longest session timeout]
        #[arg(long, value_name = "DURATION", value_parser = names::duration)]
        quiet_time: Option<Duration>,
    },
    /// Make fencing tokens go on above those of the servers from which you move
    ///
    /// Raises the file DIRECTORY.floor, before the first start of the engine or while it is stopped. If
    /// its tokens were in an earlier epoch, sessions that the directory has end, and the next engine
    /// lets none begin before the longest session timeout has passed, unless it is told otherwise
    /// (serve --quiet-time). See docs/growing.md.
    Floor {
        /// The data directory; it need not exist
        directory: PathBuf,
        /// The lower bound of new tokens: a zxid (0x1a2d0000000d), a token, or a file of lockkeeper
        /// export
        #[arg(long, value_name = "ZXID|FILE", allow_hyphen_values = true)]
        above: String,
    },
}

/// What a check found, as JSON. The names are stable.
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

/// What was copied, as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct Copied<'a> {
    dir: &'a Path,
    backup: &'a Path,
    records: u64,
}

/// What was restored, as JSON. The names are stable.
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

/// What the tokens of a directory are above from now on, as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct Raised<'a> {
    dir: &'a Path,
    floor: &'a Path,
    above: String,
}

/// Does what a subcommand of `engine` says.
pub(crate) fn command(global: &Global, task: EngineTask) -> Result<u8, Failure> {
    match &task {
        EngineTask::Check { dir }
        | EngineTask::Backup { dir, .. }
        | EngineTask::Restore { backup: dir, .. }
            if !dir.is_dir() =>
        {
            let message = format!("{} is not a data directory", dir.display());
            return Err(Failure::new(Exit::Usage, message).advise("give that of an engine"));
        }
        _ => {}
    }

    match task {
        EngineTask::Floor { directory, above } => floor(global, &directory, &above)?,
        EngineTask::Check { dir } => check(global, &dir)?,
        EngineTask::Backup { dir, to } => backup(global, &dir, &to)?,
        EngineTask::Restore { backup, directory, replace, quiet_time } => {
            let existing = if replace { Existing::Replace } else { Existing::Keep };
            restore(global, (&backup, &directory), existing, quiet_time)?;
        }
    }
    Ok(Exit::Ok.code())
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
        "{} is in order\n\
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
            "the last engine had no time to end in order; the next start cleans up, and nothing \
             that was acknowledged is missing\n",
        );
    }
    text
}

fn backup(global: &Global, dir: &Path, to: &Path) -> Result<(), Failure> {
    // An engine that runs says the same of these, but not as what kind of error.
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

/// Whether a path that is not there yet would be in a directory.
fn is_within(path: &Path, directory: &Path) -> bool {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    let (Ok(parent), Ok(directory)) = (parent, directory.canonicalize()) else { return false };
    parent.starts_with(directory)
}

/// Says what to do about an error of the disk where there is no engine to restart.
fn without_engine(error: StorageError) -> Failure {
    let message = match &error {
        StorageError::Full { path, source } => format!(
            "no space is left for {} ({source}): free some on that disk, or raise the limit of file \
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

/// Above this, a program that reads numbers as floating point takes two tokens for one.
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
            "what was replaced cannot be read: if the clock was set back since, tokens may repeat",
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
        tell("tokens are above 2^53 from now on, which programs that read JSON may not tell apart");
    }
}

fn floor(global: &Global, dir: &Path, above: &str) -> Result<(), Failure> {
    let above = match transfer::zxid(above) {
        Ok(zxid) => zxid,
        Err(_) if Path::new(above).exists() => transfer::zxid_of_file(Path::new(above))?,
        Err(why) => return Err(Failure::new(Exit::Usage, format!("{why}, and no file"))),
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
            Failure::from(error).advise("or see --replace")
        }
        RestoreFailure::Start(error) => not_started(error),
        RestoreFailure::Foreign { .. } => Failure::new(Exit::CannotCreate, error.to_string()),
        RestoreFailure::UsedUp { .. } => Failure::new(Exit::Data, error.to_string()),
        _ => Failure::new(Exit::Usage, error.to_string()),
    }
}
