//! Listening Unix sockets. An engine removes its socket file at its end, and replaces one that a dead engine left.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};
use tokio::net::{UnixListener, UnixSocket};

use crate::error::StartError;
use crate::storage::IoResultExt;

/// The longest path of a Unix socket, in bytes: what the address holds without its final NUL.
#[cfg(target_os = "linux")]
const MAX_PATH: usize = 107;
#[cfg(not(target_os = "linux"))]
const MAX_PATH: usize = 103;

/// The permissions of a socket that only this user can reach.
pub(crate) const PRIVATE: u32 = 0o600;

/// A listening socket's file; dropping this removes it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// If another file has taken the name, that one is kept.
    identity: Identity,
}

/// Device, inode, and creation time of the inode: file systems reuse the numbers of removed files.
type Identity = (u64, u64, i64, i64);

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Listens at `path`, for the users that `mode` allows to write to the socket. Replaces a file that a dead engine left.
/// Must be called within a runtime.
///
/// `backlog` is the number of connections that may wait to be accepted.
pub(crate) fn listen_at(
    path: &Path,
    mode: u32,
    backlog: u32,
) -> Result<(UnixListener, SocketFile), StartError> {
    let failed = |source| StartError::Socket { path: path.to_path_buf(), source };
    let path = std::path::absolute(path).map_err(failed)?;
    let address = address(&path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    create_private(directory).map_err(failed)?;
    let _turn = take_turn(directory).map_err(failed)?;
    remove_stale(&path, &address)?;
    let listener = bind_with(&path, mode, backlog).map_err(failed)?;
    let identity = identity(&path).map_err(failed)?;
    Ok((listener, SocketFile { path, identity }))
}

fn address(path: &Path) -> Result<SocketAddrUnix, StartError> {
    let len = path.as_os_str().as_bytes().len();
    if len > MAX_PATH {
        return Err(StartError::SocketPathTooLong { path: path.to_path_buf(), len, max: MAX_PATH });
    }
    SocketAddrUnix::new(path)
        .map_err(|e| StartError::Socket { path: path.to_path_buf(), source: e.into() })
}

/// Creates a missing directory for this user only; an existing one keeps its permissions.
fn create_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// How long to wait for another engine that is about to bind. Binding takes less than a millisecond.
const TURN_LIMIT: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Waits until no other engine is about to bind in this directory. Otherwise two engines could find the same dead
/// socket, and the slower one would remove the socket of the faster. Every user that can read the directory can hold
/// its lock, so the wait is limited.
#[expect(clippy::disallowed_methods, reason = "nothing is read or written")]
fn take_turn(directory: &Path) -> io::Result<File> {
    let turn = File::open(directory)?;
    let end = Instant::now() + TURN_LIMIT;
    while let Err(error) = turn.try_lock() {
        match error {
            TryLockError::Error(error) => return Err(error),
            TryLockError::WouldBlock if Instant::now() >= end => {
                let directory = directory.display();
                tracing::warn!(
                    "{directory} is locked by another process; continuing without the lock"
                );
                return Ok(turn);
            }
            TryLockError::WouldBlock => std::thread::sleep(LOOK_AGAIN),
        }
    }
    Ok(turn)
}

/// Removes the socket of a dead engine. A socket that refuses connections has no listener.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), StartError> {
    let failed = |source| StartError::Socket { path: path.to_path_buf(), source };
    let Some(found) = fs::symlink_metadata(path).if_exists().map_err(failed)? else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(StartError::NotASocket { path: path.to_path_buf() });
    }

    // Never blocks: a probe must not wait for an engine with a full queue.
    let probe = UnixSocket::new_stream().map_err(failed)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => {}
        // With any other error, the engine may be alive.
        _ => return Err(StartError::SocketInUse { path: path.to_path_buf() }),
    }

    tracing::debug!(path = %path.display(), "removing the socket of an engine that is gone");
    fs::remove_file(path).if_exists().map(drop).map_err(failed)
}

/// The permissions are set before clients can connect: a bound socket that does not listen refuses connections.
fn bind_with(path: &Path, mode: u32, backlog: u32) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(backlog)
}

fn identity(path: &Path) -> io::Result<Identity> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If the file cannot be removed, it is stale, and the next engine replaces it.
        let Some(directory) = self.path.parent() else {
            return;
        };
        let _turn = take_turn(directory);
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
