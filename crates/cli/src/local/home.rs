//! Where the machine-local engine lives.
//!
//! | file | what it is |
//! |---|---|
//! | `engine.sock` | where clients connect (0600) |
//! | `admin.sock` | where `lockkeeper local` asks (0600) |
//! | `data/` | the data directory |
//! | `engine.log` | the log; `engine.log.old`, the one before |
//! | `start.lock` | shared while a command connects, exclusive while an engine starts or ends |

use std::env;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// The variable that says where.
pub(super) const VARIABLE: &str = "LOCKKEEPER_HOME";

const SOCKET: &str = "engine.sock";

/// The longest path of a Unix socket, in bytes, on the systems that allow the least.
const SOCKET_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The permissions of a group and of everyone to write.
const OTHERS_WRITE: u32 = 0o022;

/// A log that is longer than this begins anew with the next engine.
const LOG_LIMIT: u64 = 1024 * 1024;

/// The directory of the machine-local engine; it exists.
#[derive(Clone, Debug)]
pub(super) struct Home {
    directory: PathBuf,
}

impl Home {
    /// The one that the environment names; made if missing, for this user alone.
    pub(super) fn find() -> Result<Self, Failure> {
        let directory = named()?;
        check_length(&directory)?;
        let home = Self { directory };
        home.create().map_err(|error| home.cannot_create(&error))?;
        home.check_access()?;
        Ok(home)
    }

    /// The one that the starter of an engine has found.
    pub(super) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    pub(super) fn admin_socket(&self) -> PathBuf {
        self.directory.join("admin.sock")
    }

    pub(super) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("engine.log")
    }

    /// What a client connects to.
    pub(super) fn connect_string(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// The file that is locked while a command connects, or an engine starts or ends.
    pub(super) fn start_lock(&self) -> Result<File, Failure> {
        let path = self.directory.join("start.lock");
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        file.map_err(|error| self.cannot_create(&error))
    }

    /// The log, ready to be written to.
    pub(super) fn open_log(&self) -> Result<File, Failure> {
        let path = self.log();
        if path.metadata().is_ok_and(|meta| meta.len() > LOG_LIMIT) {
            // If that fails, the old log goes on.
            let _ = std::fs::rename(&path, self.directory.join("engine.log.old"));
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        file.map_err(|error| self.cannot_create(&error))
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    /// Whoever may write to the directory could put a socket of their own in place of the engine's.
    fn check_access(&self) -> Result<(), Failure> {
        let metadata = self.directory.metadata().map_err(|error| self.cannot_create(&error))?;
        let mode = metadata.permissions().mode();
        if mode & OTHERS_WRITE == 0 {
            return Ok(());
        }
        let directory = self.directory.display();
        let mode = mode & 0o7777;
        Err(Failure::new(
            Exit::CannotCreate,
            format!(
                "others may write to {directory} (mode {mode:04o}), and so get at its locks: chmod \
                 go-w {directory}, or set {VARIABLE} to a directory of yours"
            ),
        ))
    }

    fn cannot_create(&self, error: &io::Error) -> Failure {
        let directory = self.directory.display();
        Failure::new(
            Exit::CannotCreate,
            format!(
                "cannot write to {directory} ({error}); set {VARIABLE} to a directory of yours"
            ),
        )
    }
}

/// `LOCKKEEPER_HOME`, or the XDG state directory.
fn named() -> Result<PathBuf, Failure> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A relative XDG directory is to be ignored, says its specification.
    let state = || set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| home.join(".local/state"));
    let path = set(VARIABLE).or_else(|| Some(state().or_else(home)?.join("lockkeeper")));
    let path = path.ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format!("neither {VARIABLE} nor HOME is set; set {VARIABLE} to a directory of yours"),
        )
    })?;
    // From each working directory it would be another engine, with other locks.
    if path.is_relative() {
        let mistake = format!("{VARIABLE} is relative ({}); set it to a full path", path.display());
        return Err(Failure::new(Exit::Usage, mistake));
    }
    Ok(path)
}

fn check_length(directory: &Path) -> Result<(), Failure> {
    let len = directory.as_os_str().as_bytes().len();
    let limit = SOCKET_LIMIT - SOCKET.len() - 1;
    if len <= limit {
        return Ok(());
    }
    let directory = directory.display();
    Err(Failure::new(
        Exit::Usage,
        format!(
            "{directory} is {len} bytes long, and the Unix socket in it leaves room for {limit}; \
             set {VARIABLE} to a shorter path"
        ),
    ))
}
