//! The log of a server, written by a separate thread.
//!
//! Standard error may be a pipe without a reader or a stopped terminal, so a write to it may block. A client's
//! request must not block on the log. Lines go into a short queue; if the queue is full, they are dropped and counted.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// The maximum number of lines in the queue.
const LINES: usize = 1024;

/// How long the process waits at exit until the remaining lines are written.
const LAST: Duration = Duration::from_secs(1);

/// The queue to the log thread, once it was started.
static QUEUE: OnceLock<SyncSender<LogMessage>> = OnceLock::new();

/// How many lines were dropped since the last report of dropped lines.
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum LogMessage {
    Line(Vec<u8>),
    /// A request to confirm that all earlier lines are written.
    Done(SyncSender<()>),
}

/// Passes lines to the thread that writes to standard error. Never blocks.
#[derive(Clone, Copy)]
pub(crate) struct Queued(());

impl Queued {
    /// Starts the thread; `None` if the system cannot create it.
    pub(crate) fn start() -> Option<Self> {
        let (queue, messages) = sync_channel(LINES);
        let writes = move || write(&messages);
        thread::Builder::new().name("lockkeeper-log".to_owned()).spawn(writes).ok()?;
        // If there are two threads, the second one ends immediately.
        let _ = QUEUE.set(queue);
        Some(Self(()))
    }
}

impl MakeWriter<'_> for Queued {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl Write for Queued {
    /// Takes a whole line, as the subscriber writes them.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let sent = QUEUE.get().map(|queue| queue.try_send(LogMessage::Line(line.to_owned())));
        if sent.is_none_or(|sent| sent.is_err()) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the queued lines. Errors are ignored, because they cannot be reported anywhere else.
fn write(messages: &Receiver<LogMessage>) {
    for message in messages {
        let mut out = io::stderr();
        match message {
            LogMessage::Line(line) => {
                let _ = out.write_all(&line);
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    let what = "standard error was blocked";
                    // A single write, because other processes may write to the same file.
                    let line =
                        format!("lockkeeper: {dropped} lines of the log are missing: {what}\n");
                    let _ = out.write_all(line.as_bytes());
                }
            }
            // The receiver may have timed out.
            LogMessage::Done(done) => _ = done.try_send(()),
        }
    }
}

/// Writes the queued lines and then `last`, unless it is empty, before the process exits. Waits only briefly, because
/// standard error may have no reader. Returns `false` if this log is not in use; the caller then writes `last`.
pub(crate) fn finish(last: &str) -> bool {
    let Some(queue) = QUEUE.get() else { return false };
    let (done, is_done) = sync_channel(1);
    let until = Instant::now() + LAST;
    let messages = [LogMessage::Line(last.into()), LogMessage::Done(done)];
    if messages.into_iter().all(|message| send(queue, message, until)) {
        let _ = is_done.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
    true
}

/// Waits for space in the queue; `false` if there is none in time.
fn send(queue: &SyncSender<LogMessage>, mut message: LogMessage, until: Instant) -> bool {
    while let Err(TrySendError::Full(refused)) = queue.try_send(message) {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
        message = refused;
    }
    true
}
