//! The events of a run for other programs, as one JSON object per line (`--json-log`).
//!
//! `docs/run-log.md` describes all events and their fields. The names are stable.

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

/// The names that mean standard error.
const STDERR: [&str; 2] = ["-", "/dev/stderr"];

/// The log of events, if there is one.
#[derive(Debug)]
pub(super) struct Events {
    log: RefCell<Option<Log>>,
}

#[derive(Debug)]
struct Log {
    /// The name that the user gave.
    name: String,
    /// Whether the loss was already written: it is written once.
    is_lost: bool,
    sink: EventSink,
    source: EventSource,
}

#[derive(Debug)]
enum EventSink {
    File(File),
    Stderr,
}

/// Identifies the run that an event belongs to.
#[derive(Debug, Serialize)]
struct EventSource {
    run: String,
    host: String,
    pid: u32,
    locks: Vec<String>,
}

/// An event. Durations are in milliseconds.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// The lock has not been free for a second.
    Waiting { holder: Option<&'a str> },
    /// The lock is held. There is one node and one token for each lock, in the order of `locks`. `item`: the item of a
    /// queue. `name`: the thing of a pool.
    Acquired {
        waited_ms: u128,
        nodes: Vec<String>,
        tokens: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// The start of the command was recorded (`--once-per`, `--every`). `attempt`: 1, or more if earlier runs have no
    /// recorded end.
    Begun { key: &'a str, attempt: u32 },
    /// The command does not run: an earlier run is `done` or `unfinished`, or a later time has already started
    /// (`passed`).
    NotRun { key: &'a str, reason: &'static str, code: u8 },
    /// The command is running in the process group with this number.
    Started { command_pid: i32 },
    /// No server has renewed the lease, and the command is paused.
    Paused,
    /// The command has resumed.
    Resumed { paused_ms: u128 },
    /// Another program has requested the lock.
    Revoked { lock: &'a str, by: Option<&'a str>, reason: Option<&'a str> },
    /// The lock is lost, or cannot be kept for as long as the command takes to end.
    Lost { reason: &'a str },
    /// The command has exceeded its maximum running time.
    Overran { max_run_ms: u128 },
    /// The command has ended. `code`: the exit code of the run.
    Ended { code: u8, ran_ms: u128 },
    /// A command that runs once has ended, and its end is not recorded.
    Unfinished { key: &'a str, reason: &'a str },
    /// The lock was released. `confirmed`: a server has confirmed it.
    Released { held_ms: u128, confirmed: bool },
    /// The lock was not free.
    Conflict { code: u8, waited_ms: u128 },
    /// A signal ended the wait.
    Interrupted { code: u8, waited_ms: u128 },
    /// Another failure, as reported on standard error, with the exit code.
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
    /// Opens a log for the events of a run of these locks. Without a path, events are not written.
    ///
    /// # Errors
    /// If the file cannot be opened or created.
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

    /// Whether events are written.
    pub(super) fn are_written(&self) -> bool {
        self.log.borrow().is_some()
    }

    /// Writes one line. A log that cannot be written affects neither the lock nor the command: the error is reported
    /// once, and no further events are written.
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
            tell(&format!("--json-log {name}: {error}; no further events of this run are written"));
        }
    }

    /// Writes that another program requests a lock. Returns the requester and the reason, if the request contains them:
    /// " by ann on db1: a restore".
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
        // A single write, so that several runs can share a file.
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

/// Standard error. A pipe is opened again for non-blocking writes, so that a slow reader does not block the run. A file
/// is not: two open files have separate positions, and their writes would overwrite each other.
fn stderr() -> EventSink {
    let is_pipe = fstat(io::stderr())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    let opened = is_pipe.then(|| append(Path::new("/dev/stderr")).ok()).flatten();
    opened.map_or(EventSink::Stderr, EventSink::File)
}

/// Opens a file for appending without blocking: a pipe may be full, or have no reader.
#[expect(clippy::disallowed_methods, reason = "the user names the file, or the kernel does")]
fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)
}
