//! What happens to a run, for programs: one JSON text a line (`--json-log`).
//!
//! `docs/run-log.md` has all events and their fields; these names are kept.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lockkeeper::{OwnerInfo, ZnodePath};
use rustix::fs::{FileType, OFlags, fstat};
use serde::Serialize;

use super::lock::Held;
use crate::shared::exit::{Exit, Failure};
use crate::shared::output::tell;
use crate::shared::view;

/// The names of a log that is standard error.
const STDERR: [&str; 2] = ["-", "/dev/stderr"];

/// Where events are written to, if anywhere.
#[derive(Debug)]
pub(super) struct Events {
    log: RefCell<Option<Log>>,
}

#[derive(Debug)]
struct Log {
    /// What the user called it.
    name: String,
    /// Whether a loss was written, which is written once.
    is_lost: bool,
    sink: EventSink,
    source: EventSource,
}

#[derive(Debug)]
enum EventSink {
    File(File),
    Stderr,
}

/// What tells the events of one run from those of others.
#[derive(Debug, Serialize)]
struct EventSource {
    run: String,
    host: String,
    pid: u32,
    locks: Vec<String>,
}

/// Something that happened. Times that something took are in milliseconds.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// The lock has not been free for a second.
    Waiting { holder: Option<&'a str> },
    /// The lock is held. One node and one token for each lock, in the order of `locks`.
    /// `item`: that of a queue. `name`: the thing of a pool.
    Acquired {
        waited_ms: u128,
        nodes: Vec<String>,
        tokens: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// It is recorded that the command begins (`--once-per`, `--every`). `attempt`: 1, or more if earlier ones
    /// have no end.
    Begun { key: &'a str, attempt: u32 },
    /// The command does not run, as an earlier run is `done` or `unfinished`, or a later time has `passed` it.
    NotRun { key: &'a str, reason: &'static str, code: u8 },
    /// The command runs, in a process group of this number.
    Started { command_pid: i32 },
    /// No server has renewed the lease, and the command stands still.
    Paused,
    /// It goes on.
    Resumed { paused_ms: u128 },
    /// Another program has asked for the lock.
    Revoked { lock: &'a str, by: Option<&'a str>, reason: Option<&'a str> },
    /// The lock is lost, or cannot be kept for as long as the command takes to end.
    Lost { reason: &'a str },
    /// The command has run for longer than it may.
    Overran { max_run_ms: u128 },
    /// The command has ended. `code`: that of the run.
    Ended { code: u8, ran_ms: u128 },
    /// No end is recorded of a command that runs once.
    Unfinished { key: &'a str, reason: &'a str },
    /// The lock is given back. `confirmed`: by a server.
    Released { held_ms: u128, confirmed: bool },
    /// The lock was not free.
    Conflict { code: u8, waited_ms: u128 },
    /// A signal ended the wait.
    Interrupted { code: u8, waited_ms: u128 },
    /// Nothing of the above: what standard error says, with its exit code.
    Failed { code: u8, error: &'a str },
}

impl Event<'_> {
    pub(super) fn acquired(held: &Held, waited_ms: u128) -> Self {
        let guards = held.guards();
        let nodes = guards.iter().map(|guard| guard.node().to_string()).collect();
        let tokens = guards.iter().map(|guard| guard.token().to_string()).collect();
        let item = held.item().map(str::to_owned);
        let name = held.thing().map(str::to_owned);
        Self::Acquired { waited_ms, nodes, tokens, item, name }
    }
}

#[derive(Serialize)]
struct EventLine<'a> {
    time: String,
    #[serde(flatten)]
    event: &'a Event<'a>,
    #[serde(flatten)]
    source: &'a EventSource,
}

impl Events {
    /// Opens a log for the events of a run of these locks; without a path, they are written nowhere.
    ///
    /// # Errors
    /// If there is none, and it cannot be made.
    pub(super) fn open(path: Option<&Path>, locks: &[ZnodePath]) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self { log: RefCell::new(None) }) };
        let sink = match STDERR.iter().any(|name| path == Path::new(name)) {
            true => stderr(),
            false => EventSink::File(append(path).map_err(|error| {
                let message = format!("--json-log {}: {error}", path.display());
                Failure::new(Exit::CannotCreate, message)
            })?),
        };

        let owner = OwnerInfo::current(None);
        let mut locks: Vec<_> = locks.iter().map(ZnodePath::to_string).collect();
        locks.sort();
        let run = uuid::Uuid::new_v4().to_string();
        let source = EventSource { run, host: owner.host, pid: owner.pid, locks };
        Ok(Self {
            log: RefCell::new(Some(Log {
                name: path.display().to_string(),
                is_lost: false,
                sink,
                source,
            })),
        })
    }

    /// Whether there is a log.
    pub(super) fn are_written(&self) -> bool {
        self.log.borrow().is_some()
    }

    /// Writes one line. A log that cannot be written disturbs neither the lock nor the command: it is told
    /// once, and is not written any more.
    pub(super) fn write(&self, event: Event<'_>) {
        let mut log = self.log.borrow_mut();
        let Some(open) = log.as_mut() else { return };
        let is_loss = matches!(event, Event::Lost { .. });
        if is_loss && std::mem::replace(&mut open.is_lost, true) {
            return;
        }
        if let Err(error) = open.write(&event) {
            let name = std::mem::take(&mut open.name);
            *log = None;
            tell(&format!(
                "--json-log {name}: {error}; the events of this run are not written any more"
            ));
        }
    }

    /// Writes that another program asks for a lock. Returns who and why, as far as it said so: " by ann on db1: a
    /// restore".
    pub(super) fn revoked(&self, held: &Held, path: &ZnodePath) -> String {
        let request = held.request(path);
        let by = request.as_ref().and_then(|asked| asked.by.as_deref());
        let reason = request.as_ref().and_then(|asked| asked.reason.as_deref());
        self.write(Event::Revoked { lock: &held.name_of(path), by, reason });
        view::by_whom(request.as_ref())
    }

    /// Writes that a run failed.
    pub(super) fn failed(&self, failure: &Failure) {
        let error = failure.to_string();
        self.write(Event::Failed { code: failure.code(), error: &error });
    }
}

impl Log {
    fn write(&mut self, event: &Event<'_>) -> io::Result<()> {
        let time = format!("{:.3}", jiff::Timestamp::now());
        let mut line = serde_json::to_vec(&EventLine { time, event, source: &self.source })?;
        line.push(b'\n');
        // With one call, so that several runs can share a file.
        let written = match &mut self.sink {
            EventSink::File(file) => file.write(&line)?,
            EventSink::Stderr => io::stderr().lock().write(&line)?,
        };
        match written == line.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// Standard error; a pipe is opened once more, so that a slow reader keeps nothing waiting. Not a file: what
/// is appended to it by one of two that have it open would be written over by the other.
fn stderr() -> EventSink {
    let is_pipe = fstat(io::stderr())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    let opened = is_pipe.then(|| append(Path::new("/dev/stderr")).ok()).flatten();
    opened.map_or(EventSink::Stderr, EventSink::File)
}

/// Opens a file for additions, which never wait: a pipe may be full, or have no reader.
#[expect(clippy::disallowed_methods, reason = "the user names the file, or the kernel does")]
fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)
}
