//! `lockkeeper record`: records events of locks. `lockkeeper why` reads them.

pub(crate) mod history;
pub(crate) mod hold_times;
pub(crate) mod why;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;
use lockkeeper::inspect::{LockQueue, LockQueues};
use lockkeeper::{Contact, TreeCache, ZnodePath};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::history::{History, HistoryEvent, HistoryLine, changed_locks};
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::signals::Signals;
use crate::shared::{names, output, view};

const NOTES: &str = "\
Each line is a JSON object: a contender waits, is granted the lock, is asked to release it, has ended as a holder, \
or has left the queue; servers are away, or back. A recording costs the servers one watch on the path and one read for each change. It \
continues across lost connections; of events in between it records the outcome. It keeps this machine's engine \
running, if that has the locks. Holders of a pool are shown by their znodes, such as gpu/held/0. Times are by the \
clock of this machine. The event `ended` means that the holder released the lock or that its session expired; the \
servers do not show which.

With --file, at most --max-size bytes are kept: the newer half in the file, and the older half in FILE.old. lockkeeper \
why LOCK reads both.

Examples:
  lockkeeper record --file locks.history
  lockkeeper record /backups | jq -r 'select(.event == \"granted\") | .lock'

Exit codes: 128 + n after signal n; 0 when the reader of the output closes the pipe; 69, another recording writes to \
the file; 75, the servers are permanently unreachable; others: lockkeeper run --help";

/// Record which programs get which locks, and when, until Ctrl-C
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct RecordOptions {
    /// The path whose locks to record
    #[arg(default_value = "/", value_parser = names::folder)]
    path: ZnodePath,

    /// The file to append to [default: standard output]
    #[arg(long, env = "LOCKKEEPER_HISTORY")]
    file: Option<PathBuf>,

    /// The maximum size of the history in files, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = names::byte_limit)]
    max_size: usize,
}

/// Where clients record the outcomes of writes; not locks.
pub(crate) const OUTCOMES: &str = "/lockkeeper-outcomes";

/// How long the last line may wait for a reader.
const LAST_LINE: Duration = Duration::from_secs(1);

/// The file with the older half of a history.
fn older(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

/// Records until a signal.
pub(crate) async fn record(global: &Global, options: RecordOptions) -> Result<u8, Failure> {
    let sink = match &options.file {
        Some(file) => HistorySink::File(HistoryFile::open(file, options.max_size)?),
        None => HistorySink::Output,
    };
    let connection = Connection::open_within(global, &mut None).await?;
    let result = with_session(&connection, &options.path, sink).await;
    connection.close().await;
    result
}

async fn with_session(
    connection: &Connection,
    path: &ZnodePath,
    sink: HistorySink,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut recorder = Recorder { sink, history: History::default() };
    let result = tokio::select! {
        failure = recorder.follow(connection, path) => failure.map(|()| Exit::Ok.code()),
        failure = connection.keep_engine() => Err(failure),
        signal = signals.next_of_wait() => Ok(signal_code(signal.as_raw())),
    };
    let last = [HistoryLine::of_recording(HistoryEvent::RecordingEnded, path, now())];
    // Without this line, the history ends a little earlier.
    let _ = timeout(LAST_LINE, recorder.write(&last)).await;
    result
}

fn now() -> u64 {
    u64::try_from(view::unix_ms(SystemTime::now())).unwrap_or(u64::MAX)
}

struct Recorder {
    sink: HistorySink,
    history: History,
}

impl Recorder {
    /// Returns when the reader has closed the pipe.
    async fn follow(&mut self, connection: &Connection, path: &ZnodePath) -> Result<(), Failure> {
        let is_wanted = |path: &str| !path.starts_with(OUTCOMES);
        let cache = TreeCache::builder(&connection.client, path.as_str());
        let cache = cache.filter(is_wanted).skip_unreadable();
        let cache = cache.open().await.map_err(|error| Failure::of_recipe(&error))?;
        let mut changes = cache.changes();
        let first = cache.snapshot();
        let began = HistoryLine::of_recording(HistoryEvent::RecordingBegan, path, now());
        let mut lines = vec![began];
        for queue in &LockQueues::in_tree(&*first, path).queues {
            lines.extend(self.history.see(&queue.path, Some(queue), now(), true));
        }

        let mut status = connection.client.status();
        let mut is_away = false;
        while self.write(&lines).await? {
            lines.clear();
            let update = tokio::select! {
                biased;
                Ok(_) = status.wait_for(|now| (now.contact != Contact::Connected) != is_away) => {
                    is_away = !is_away;
                    let event = match is_away {
                        true => HistoryEvent::ServersAway,
                        false => HistoryEvent::ServersBack,
                    };
                    lines.push(HistoryLine::of_recording(event, path, now()));
                    continue;
                }
                update = changes.next() => update.map_err(|error| Failure::of_recipe(&error))?,
            };
            for lock in changed_locks(&update) {
                let queue = LockQueue::in_tree(&*update.snapshot, &lock);
                lines.extend(self.history.see(&lock, queue.as_ref(), now(), false));
            }
        }
        Ok(())
    }

    /// Returns `false` if the reader has closed the pipe.
    async fn write(&mut self, lines: &[HistoryLine]) -> Result<bool, Failure> {
        let mut text = String::new();
        for line in lines {
            text.push_str(&output::json(line)?.to_string());
            text.push('\n');
        }
        match &mut self.sink {
            HistorySink::Output => {
                // A blocked reader must not delay a signal.
                let (written, result) = oneshot::channel();
                thread::spawn(move || written.send(output::print_to_reader(&text)));
                result.await.unwrap_or(Ok(false))
            }
            HistorySink::File(file) => file.write(text.as_bytes()).map(|()| true),
        }
    }
}

enum HistorySink {
    Output,
    File(HistoryFile),
}

/// A file of limited size, and the file before it.
struct HistoryFile {
    path: PathBuf,
    file: File,
    size: usize,
    /// The size at which the next file begins.
    limit: usize,
}

impl HistoryFile {
    #[expect(clippy::disallowed_methods, reason = "the user names the file")]
    fn open(path: &Path, max_size: usize) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        // Do not wait for the reader of a pipe.
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
        let opened = file.and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| unwritten(path, &error))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let message = format!("{}: another recording writes to it", path.display());
            return Err(Failure::new(Exit::Taken, message));
        }

        let size = metadata.len();
        let mut last = [b'\n'];
        if metadata.is_file() && size > 0 {
            let read = file.read_at(&mut last, size - 1);
            read.map_err(|error| unwritten(path, &error))?;
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut opened = Self { path: path.to_owned(), file, size, limit: max_size / 2 };
        // A line is incomplete, for example because the disk was full.
        if last != [b'\n'] {
            opened.write(b"\n")?;
        }
        Ok(opened)
    }

    fn write(&mut self, text: &[u8]) -> Result<(), Failure> {
        if self.size > 0 && self.size.saturating_add(text.len()) > self.limit {
            let renamed = fs::rename(&self.path, older(&self.path));
            renamed.map_err(|error| unwritten(&self.path, &error))?;
            *self = Self::open(&self.path, self.limit * 2)?;
        }
        self.file.write_all(text).map_err(|error| unwritten(&self.path, &error))?;
        self.size += text.len();
        Ok(())
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::CannotCreate, format!("{}: {error}", path.display()))
}
