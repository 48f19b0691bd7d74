//! Backups that another process requests: the command `backup` while `serve` runs.
//!
//! The engine listens on the socket `CONTROL` in its data directory, which only its own user can reach. A line with an
//! absolute path requests a backup there; the answer is a line that begins with `ok` or `error`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::data_dir::backup::{Backup, BackupError};
use crate::error::StartError;
use crate::files;
use crate::sockets::listen::BACKLOG;
use crate::sockets::unix::{PRIVATE, SocketFile, listen_at};
use crate::storage::{CONTROL, IoResultExt, Snapshots, Storage, StorageError, open_directory};
use crate::thread;

/// The longest line, in bytes: a path of the longest length that the operating system accepts, and its end.
const MAX_LINE: u64 = 4_200;
/// The longest answer, in bytes: an error with one or two paths.
const MAX_ANSWER: u64 = 64 * 1024;
/// How long a request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens in a data directory. If this fails, the engine still works.
pub(crate) fn listen(data_dir: &Path) -> Option<(UnixListener, SocketFile)> {
    let opened = listen_at(&data_dir.join(CONTROL), PRIVATE, BACKLOG);
    opened.inspect_err(|e| tracing::warn!("other processes cannot request a backup: {e}")).ok()
}

/// Answers requests while the runtime runs, one at a time: a second backup would only slow down the first.
pub(crate) async fn serve(listener: UnixListener, snapshots: Snapshots) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };

        let is_owner = is_owner(&stream);
        let (read, mut write) = stream.into_split();
        let mut line = Vec::new();
        let mut limited = tokio::io::BufReader::new(read.take(MAX_LINE));
        match timeout(REQUEST_TIMEOUT, limited.read_until(b'\n', &mut line)).await {
            Ok(Ok(count)) if count > 0 => {}
            _ => continue,
        }

        let answer = match (is_owner, target_of(line)) {
            (true, Some(target)) => match copy(&snapshots, target).await {
                Ok(records) => format!("ok {records}\n"),
                Err(e) => format!("error {e}\n"),
            },
            (true, None) => "error send a line with an absolute path\n".to_owned(),
            (false, _) => "error the engine runs as another user\n".to_owned(),
        };
        // The client may be gone; the backup exists in any case.
        let _ = write.write_all(answer.as_bytes()).await;
    }
}

/// The path at which a copy is requested. A relative path would mean different places to the client and the engine.
fn target_of(mut line: Vec<u8>) -> Option<PathBuf> {
    let is_whole = line.pop() == Some(b'\n');
    let target = PathBuf::from(OsString::from_vec(line));
    (is_whole && target.is_absolute()).then_some(target)
}

/// Whether the client is this user or root: a copy is written with the engine's permissions.
fn is_owner(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| files::is_owner(peer.uid()))
}

/// Copies on a thread of its own: the engine does not wait for it.
#[tracing::instrument(name = "backup", level = "debug", skip(snapshots))]
pub(crate) async fn copy(snapshots: &Snapshots, target: PathBuf) -> Result<u64, BackupError> {
    let (sender, copied) = oneshot::channel();
    let snapshots = snapshots.clone();
    thread::spawn("lockkeeper-backup", move || {
        // The caller may be gone.
        let _ = sender.send(snapshots.copy_to(&target));
    })
    .map_err(StartError::no_thread)?;
    let copied = copied.await.ok().flatten().ok_or(BackupError::Ended)?;
    Ok(copied?)
}

/// Copies a data directory into a new one, whether an engine runs on it, here or in another process, or not. Otherwise
/// like [`Engine::backup`](crate::Engine::backup); blocks until the copy is complete.
///
/// # Errors
/// `target` exists, one of the directories cannot be read or written, or the directory's engine does not answer.
pub fn backup(data_dir: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<Backup, BackupError> {
    let (data_dir, target) = (data_dir.as_ref(), target.as_ref());
    let path = std::path::absolute(target).at(target)?;
    // A slash at the end would be taken for a name in the directory.
    let path: PathBuf = path.components().collect();
    if path.as_os_str().as_bytes().contains(&b'\n') {
        return Err(BackupError::Refused("a backup's path cannot have a line break".to_owned()));
    }
    // The engine of another user could give any answer.
    open_directory(data_dir)?;
    let records = match BlockingStream::connect(data_dir.join(CONTROL)) {
        Ok(stream) => ask(stream, &path)?,
        // Either no engine runs, or opening the directory reports which process uses it.
        Err(_) => copy_unused(data_dir, &path)?,
    };
    Ok(Backup { path, records })
}

fn ask(mut stream: BlockingStream, target: &Path) -> Result<u64, BackupError> {
    let no_answer = |_| BackupError::Ended;
    let line = [target.as_os_str().as_bytes(), b"\n"].concat();
    stream.write_all(&line).map_err(no_answer)?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut answer).map_err(no_answer)?;
    let answer = answer.trim_end();
    if let Some(records) = answer.strip_prefix("ok ").and_then(|count| count.parse().ok()) {
        return Ok(records);
    }
    match answer.strip_prefix("error ") {
        Some(why) => Err(BackupError::Refused(why.to_owned())),
        None => Err(BackupError::Ended),
    }
}

fn copy_unused(data_dir: &Path, target: &Path) -> Result<u64, BackupError> {
    let (storage, _) = Storage::inspect(data_dir)?
        .ok_or_else(|| StorageError::NoData { path: data_dir.to_path_buf() })?;
    let snapshots = storage.snapshots().ok_or(BackupError::NothingKept)?;
    Ok(snapshots.copy_to(target).ok_or(BackupError::Ended)??)
}
