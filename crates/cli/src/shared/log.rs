//! The log of a server: written by a thread of its own.
//!
//! Standard error may be a pipe that nobody reads, or a terminal that is stopped. Whoever writes
//! to it then waits, and no client's request may wait for that: what finds no place in a short queue
//! is dropped, and counted.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// How many lines wait to be written at most.
const LINES: usize = 1024;

/// How long the end of the process waits for the lines that are left.
const LAST: Duration = Duration::from_secs(1);

/// The queue to the thread that writes, once it was started.
static QUEUE: OnceLock<SyncSender<LogMessage>> = OnceLock::new();

/// How many lines were dropped since that was told.
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum LogMessage {
    Line(Vec<u8>),
    /// Everything before it was written.
    Done(SyncSender<()>),
}

/// Gives lines to the thread that writes to standard error. Never waits.
#[derive(Clone, Copy)]
pub(crate) struct Queued(());

impl Queued {
    /// Starts the thread; `None` if the system refuses it.
    pub(crate) fn start() -> Option<Self> {
        let (queue, messages) = sync_channel(LINES);
        let writes = move || write(&messages);
        thread::Builder::new().name("lockkeeper-log".to_owned()).spawn(writes).ok()?;
        // Of two, the later one ends at once.
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

/// If nobody reads the lines, nobody misses them.
fn write(messages: &Receiver<LogMessage>) {
    for message in messages {
        let mut out = io::stderr();
        match message {
            LogMessage::Line(line) => {
                let _ = out.write_all(&line);
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    let what = "standard error did not take them";
                    // With one call, as other processes may write there too.
                    let line =
                        format!("lockkeeper: {dropped} lines of the log are missing: {what}\n");
                    let _ = out.write_all(line.as_bytes());
                }
            }
            // Whoever asked may have given up.
            LogMessage::Done(done) => _ = done.try_send(()),
        }
    }
}

/// Writes what was logged, and then `last`, if it is not empty, before the process ends; waits a little at most, as
/// nobody may read it. `false` if there is no such log, and `last` is still to be written.
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

/// Waits for a place in the queue; `false` if there was none in time.
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
