//! The home directory of a machine-local engine.
//!
//! | file | content |
//! |---|---|
//! | `engine.sock` | the socket for clients |
//! | `admin.sock` | the control socket for `lockkeeper local` |
//! | `data/` | the data directory |
//! | `engine.log` | the log; `engine.log.old` is the previous one |
//! | `start.lock` | locked shared while a command connects, and exclusively while an engine starts or ends |
//! | `neighbours` | the directories of other engines that its user was warned about, one on each line |
//! | `enabled` | only for the machine's engine: marks it as in use |
//!
//! All files belong to the owner of the directory, and none is a symbolic link.

use std::env;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use lockkeeper_engine::files::{Access, Directory};
use serde::Serialize;

use crate::shared::exit::{Exit, Failure};
use crate::shared::trust::{self, Missing};
use crate::shared::user;

/// The environment variable with the path of the directory.
pub(super) const VARIABLE: &str = "LOCKKEEPER_HOME";

/// The state directory within a home directory, by the XDG specification.
const STATE: &str = ".local/state";

/// The names of the files.
pub(super) const SOCKET: &str = "engine.sock";
pub(super) const ADMIN_SOCKET: &str = "admin.sock";
pub(super) const START_LOCK: &str = "start.lock";
const ENABLED: &str = "enabled";
const WARNED: &str = "neighbours";
const DATA: &str = "data";
const LOG: &str = "engine.log";
const OLD_LOG: &str = "engine.log.old";

/// All of these names.
pub(super) const FILES: [&str; 8] =
    [SOCKET, ADMIN_SOCKET, START_LOCK, ENABLED, WARNED, DATA, LOG, OLD_LOG];

/// The maximum length of a Unix socket's path, in bytes, on the strictest system.
const SOCKET_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The permissions of files for one user.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_SOCKET: u32 = 0o600;

/// The permissions of the sockets of the machine's engine. Those of the directory restrict access.
const SHARED_SOCKET: u32 = 0o666;

/// The next engine starts a new log if the old one is longer than this.
const LOG_LIMIT: u64 = 1024 * 1024;

/// The longest list of other engines, in bytes. A longer list is started anew, because any user can add engines to it.
const MAX_LIST_BYTES: u64 = 64 * 1024;

/// The users whom an engine serves. The names are stable: `local status --json` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scope {
    /// The owner of its directory.
    User,
    /// All users to whom an administrator gives access.
    System,
}

/// The directory of a machine-local engine. It exists, and only its owner can change it.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    directory: PathBuf,
    scope: Scope,
}

impl Home {
    /// The directory that the environment names. Created, for this user alone, if it is missing.
    pub(super) fn own() -> Result<Self, Failure> {
        let named = named()?;
        check_length(&named, VARIABLE)?;
        check_home(&named)?;
        let ours = |failure: Failure| {
            failure.advise(&format!(
                "set {VARIABLE} to a directory that you own (after sudo: sudo -H)"
            ))
        };
        let found = trust::follow(&named, Missing::Make(PRIVATE_DIRECTORY)).map_err(ours)?;
        let home = Self::at(found.unwrap_or(named), Scope::User);
        check_length(&home.directory, VARIABLE)?;
        home.check(trust::me()).map_err(ours)?;
        Ok(home)
    }

    /// The directory that the starting process found.
    pub(super) fn at(directory: PathBuf, scope: Scope) -> Self {
        Self { directory, scope }
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// This directory, if an engine of this user has run in it, regardless of the environment.
    pub(super) fn used(directory: &Path) -> Option<Self> {
        let real = trust::follow(directory, Missing::Report).ok()??;
        let home = Self::at(real, Scope::User);
        let is_home = home.start_lock_path().symlink_metadata().is_ok();
        (is_home && home.check(trust::me()).is_ok()).then_some(home)
    }

    /// Whether this user may start and stop the engine.
    pub(super) fn is_ours(&self) -> bool {
        self.scope == Scope::User || trust::me() == trust::ROOT
    }

    /// The permissions of the sockets.
    pub(super) fn socket_mode(&self) -> u32 {
        match self.scope {
            Scope::User => PRIVATE_SOCKET,
            Scope::System => SHARED_SOCKET,
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    pub(super) fn admin_socket(&self) -> PathBuf {
        self.directory.join(ADMIN_SOCKET)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.directory.join(DATA)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.directory.join(LOG)
    }

    fn start_lock_path(&self) -> PathBuf {
        self.directory.join(START_LOCK)
    }

    pub(super) fn enabled(&self) -> PathBuf {
        self.directory.join(ENABLED)
    }

    /// The connection string for clients.
    pub(crate) fn connect_string(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// The file that is locked while a command connects, or while an engine starts or ends.
    pub(super) fn start_lock(&self) -> Result<File, Failure> {
        self.open(START_LOCK, Access::Create)
    }

    /// Opens the log for writing.
    pub(super) fn open_log(&self) -> Result<File, Failure> {
        if self.log().symlink_metadata().is_ok_and(|meta| meta.len() > LOG_LIMIT) {
            // If that fails, the old log is continued.
            let _ = self.files().and_then(|files| {
                files.rename(LOG, OLD_LOG).map_err(|error| trust::cannot_use(&self.log(), &error))
            });
        }
        self.open(LOG, Access::Append)
    }

    /// The engines that the user was warned about: their directories, one on each line. Empty if the list cannot be
    /// read.
    pub(super) fn warned_of(&self) -> Vec<u8> {
        let read = self.files().ok().and_then(|files| files.read(WARNED, MAX_LIST_BYTES).ok());
        read.unwrap_or_default()
    }

    /// Adds lines to the list that was read.
    pub(super) fn note_warned(&self, known: Vec<u8>, lines: &[u8]) -> Result<(), Failure> {
        let all = [known.as_slice(), lines].concat();
        let kept = if all.len() as u64 > MAX_LIST_BYTES { lines } else { &all };
        let replaced = self.files()?.replace(WARNED, kept);
        replaced.map_err(|error| trust::cannot_use(&self.directory.join(WARNED), &error))
    }

    /// Creates the file that marks the machine's engine as in use.
    pub(super) fn make_enabled(&self) -> Result<(), Failure> {
        self.open(ENABLED, Access::Create).map(drop)
    }

    fn open(&self, name: &str, access: Access) -> Result<File, Failure> {
        let opened = self.files()?.open_file(name, access);
        opened.map_err(|error| trust::cannot_use(&self.directory.join(name), &error))
    }

    fn files(&self) -> Result<Directory, Failure> {
        // The machine's engine belongs to root for every user.
        let opened = Directory::open(&self.directory);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let opened = opened.and_then(|found| found.ok_or_else(missing));
        opened.map_err(|error| trust::cannot_use(&self.directory, &error))
    }

    /// Fails if another user can write to the directory, or could have earlier. Only its owner can change the content,
    /// so the result of the check remains valid.
    pub(super) fn check(&self, owner: u32) -> Result<(), Failure> {
        let directory = &self.directory;
        let Some(meta) = trust::look(directory)? else { return Ok(()) };
        if !meta.is_dir() {
            let error = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(trust::cannot_use(directory, &error));
        }
        trust::check_owned_by(owner, directory, &meta)?;
        trust::check_closed(directory, &meta)?;

        for path in [self.socket(), self.admin_socket()] {
            check_entry(&path, owner, "a socket", |meta| meta.file_type().is_socket())?;
        }
        for path in [self.start_lock_path(), self.log(), self.enabled()] {
            check_entry(&path, owner, "a file with one name", |meta| {
                meta.is_file() && meta.nlink() == 1
            })?;
        }
        check_entry(&self.data(), owner, "a directory", |meta| meta.is_dir())?;
        match trust::look(&self.data())? {
            Some(meta) => trust::check_closed(&self.data(), &meta),
            None => Ok(()),
        }
    }
}

/// Fails for a file that an engine of this owner would not have created. A missing file is fine.
fn check_entry(
    path: &Path,
    owner: u32,
    kind: &str,
    is_kind: impl Fn(&std::fs::Metadata) -> bool,
) -> Result<(), Failure> {
    let Some(meta) = trust::look(path)? else { return Ok(()) };
    trust::check_owned_by(owner, path, &meta)?;
    if is_kind(&meta) {
        return Ok(());
    }
    let fault = if meta.is_symlink() { "a symbolic link" } else { "an unexpected file" };
    let message = format!("{} is {fault} where {kind} belongs", path.display());
    Err(Failure::new(Exit::CannotCreate, message).advise("remove it"))
}

/// Fails if the home directory itself is missing: that of `nobody`, for example, is not meant to exist.
fn check_home(named: &Path) -> Result<(), Failure> {
    if set(VARIABLE).is_some() {
        return Ok(());
    }
    match user::home().filter(|home| named.starts_with(home) && !home.exists()) {
        None => Ok(()),
        Some(home) => {
            let message = format!("the home directory {} does not exist", home.display());
            let advice = format!("set {VARIABLE} to a directory that you own");
            Err(Failure::new(Exit::CannotCreate, message).advise(&advice))
        }
    }
}

/// The value of an environment variable, unless it is empty.
fn set(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `LOCKKEEPER_HOME`, or the XDG state directory.
pub(super) fn named() -> Result<PathBuf, Failure> {
    // The specification says to ignore a relative XDG directory.
    let state = || set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let in_home = || Some(user::home()?.join(STATE));

    let own = set(VARIABLE);
    let variable = if own.is_some() { VARIABLE } else { "HOME" };
    let path = own.or_else(|| Some(state().or_else(in_home)?.join("lockkeeper")));
    let path = path.ok_or_else(|| {
        let message = "the home directory of this user is unknown";
        Failure::new(Exit::Usage, message)
            .advise(&format!("set {VARIABLE} to a directory that you own"))
    })?;

    // A relative path would mean another engine, with other locks, in each working directory.
    if path.is_relative() {
        let mistake = format!("{variable} must be an absolute path, not {}", path.display());
        return Err(Failure::new(Exit::Usage, mistake));
    }
    // A connection string, which clients use to find the sockets, is UTF-8.
    if path.to_str().is_none() {
        let mistake = format!("the directory in {variable} is not UTF-8 ({})", path.display());
        let advice = format!("set {VARIABLE} to another directory");
        return Err(Failure::new(Exit::Usage, mistake).advise(&advice));
    }
    Ok(path)
}

/// Fails if the path of the directory is too long for the sockets in it. `variable` names its source.
pub(super) fn check_length(directory: &Path, variable: &str) -> Result<(), Failure> {
    let len = directory.as_os_str().as_bytes().len();
    let limit = SOCKET_LIMIT - SOCKET.len() - 1;
    if len <= limit {
        return Ok(());
    }
    let directory = directory.display();
    Err(Failure::new(
        Exit::Usage,
        format!(
            "{directory} is {len} bytes long; the Unix socket in it allows at most {limit}; \
             set {variable} to a shorter path"
        ),
    ))
}
