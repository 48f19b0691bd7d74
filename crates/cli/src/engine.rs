//! `lockkeeper engine`: the data directory of an engine, running or not.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lockkeeper_engine::{BackupError, Report, StorageError};
use serde::Serialize;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};

/// Look after the data directory of an engine
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check every record of a data directory that no engine is using, and change nothing
    Check {
        /// The data directory
        dir: PathBuf,
    },
    /// Copy a data directory as of one moment, while an engine runs on it or not
    ///
    /// To restore it, start an engine on the copy. Sessions are in it too, and get their full
    /// timeout from then on.
    Backup {
        /// The data directory
        dir: PathBuf,
        /// The copy; it must not exist yet
        to: PathBuf,
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

/// Does what a subcommand of `engine` says.
pub(crate) fn command(global: &Global, options: Options) -> Result<u8, Failure> {
    let (Task::Check { dir } | Task::Backup { dir, .. }) = &options.task;
    if !dir.is_dir() {
        let message = format!("{} is no data directory", dir.display());
        return Err(Failure::new(Exit::Usage, message).advise("give that of an engine"));
    }
    match options.task {
        Task::Check { dir } => check(global, &dir)?,
        Task::Backup { dir, to } => backup(global, &dir, &to)?,
    }
    Ok(Exit::Ok.code())
}

fn check(global: &Global, dir: &Path) -> Result<(), Failure> {
    let report = lockkeeper_engine::check(dir)?;
    if !global.json {
        return print(&describe(&report));
    }
    print_json(&Checked {
        dir: &report.path,
        file_bytes: report.file_bytes,
        after_crash: report.after_crash,
        znodes: report.nodes,
        ephemerals: report.ephemerals,
        sessions: report.sessions,
        data_bytes: report.data_bytes,
        last_zxid: report.last_zxid.to_string(),
    })
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
    // An engine that runs says the same, but not as what kind of error.
    if to.exists() {
        return Err(StorageError::Exists { path: to.to_owned() }.into());
    }
    let backup = lockkeeper_engine::backup(dir, to).map_err(failure)?;
    if global.json {
        return print_json(&Copied { dir, backup: &backup.path, records: backup.records });
    }
    let (path, records) = (backup.path.display(), backup.records);
    print(&format!("{path} is a backup of {}, with {records} records\n", dir.display()))
}

fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::Storage(error) => error.into(),
        BackupError::System(error) => error.into(),
        BackupError::NothingKept => Failure::new(Exit::Usage, error.to_string()),
        _ => Failure::new(Exit::Disk, error.to_string()),
    }
}
