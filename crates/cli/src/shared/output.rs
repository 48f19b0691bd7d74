//! Standard output, and notices and logs on standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, makedev};
use serde::Serialize;
use serde_json::Value;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::journal::{self, JournalFormat};
use crate::shared::log;

/// Prints a one-line notice on standard error. Errors are ignored.
pub(crate) fn tell(message: &str) {
    // A single write: standard error is unbuffered, and several runs may share it.
    let _ = io::stderr().write_all(format!("lockkeeper: {message}\n").as_bytes());
}

/// Prints a failure, and returns its exit code.
pub(crate) fn report(failure: &Failure) -> u8 {
    let _ = io::stderr().write_all(line_of(failure).as_bytes());
    failure.code()
}

fn line_of(failure: &Failure) -> String {
    let level = if journal::is_stderr() { journal::ERROR } else { "" };
    format!("{level}lockkeeper: {failure}\n")
}

/// Prints the failure, if there is one, and returns the exit code.
pub(crate) fn end(result: Result<u8, Failure>) -> u8 {
    let last = match &result {
        Ok(_) => String::new(),
        Err(failure) => line_of(failure),
    };
    // After the server's log, with the same time limit.
    let is_written = log::finish(&last);
    match result {
        Err(failure) if !is_written => report(&failure),
        Err(failure) => failure.code(),
        Ok(code) => code,
    }
}

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(|_| ())
}

/// Writes to standard output for a command that keeps running. Returns `false` if the pipe is closed.
pub(crate) fn print_to_reader(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(unwritten(&error)),
        Ok(()) => Ok(true),
    }
}

/// Prints one line when an ongoing activity begins. A closed pipe is not an error.
pub(crate) fn announce(global: &Global, value: &impl Serialize, text: &str) -> Result<(), Failure> {
    let line = if global.json { json(value)?.to_string() } else { text.to_owned() };
    print_to_reader(&format!("{line}\n")).map(|_| ())
}

/// Whether the reader of standard output has closed the pipe, as far as the system reports that without a write.
pub(crate) fn has_lost_its_reader() -> bool {
    let out = io::stdout();
    let mut asked = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let told = poll(&mut asked, PollTimeout::ZERO);
    told.is_ok_and(|count| count > 0)
        && asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
}

/// Writes a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Bug, format!("cannot write JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// Converts a value to JSON, for output on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value)
        .map_err(|error| Failure::new(Exit::Bug, format!("cannot write JSON: {error}")))
}

/// Writes the result as JSON with `--json`, or else as text.
pub(crate) fn show(
    global: &Global,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if global.json { print_json(value) } else { print(&text()) }
}

/// Writes a value unchanged. On a terminal, a line end follows.
pub(crate) fn print_value(value: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let needs_end = io::stdout().is_terminal() && !value.ends_with(b"\n");
    let end: &[u8] = if needs_end { b"\n" } else { b"" };
    let written = out.write_all(value).and_then(|()| out.write_all(end));
    written.and_then(|()| out.flush()).map_err(|error| unwritten(&error))
}

/// Writes a value as a line for a command that keeps running. Returns `false` if the pipe is closed.
pub(crate) fn print_line_to_reader(value: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let end: &[u8] = if value.ends_with(b"\n") { b"" } else { b"\n" };
    let written = out.write_all(value).and_then(|()| out.write_all(end));
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(unwritten(&error)),
        Ok(()) => Ok(true),
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(Exit::Disk, format!("cannot write to standard output: {error}"))
}

/// Whether standard output was closed when this process started. The standard library then opens a replacement for
/// reading and writing.
pub(crate) fn is_closed() -> bool {
    let out = io::stdout();
    let is_null = fstat(&out).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && stat.st_rdev == makedev(1, 3)
    });
    is_null && fcntl_getfl(&out).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// Whether to use colours: standard output is a terminal, and the user has not disabled them.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Starts the log on standard error. The log of a server never blocks. `LOCKKEEPER_LOG` overrides the levels for all
/// targets or for single ones, such as `info` or `warn,lockkeeper_engine=debug`.
pub(crate) fn start_log(verbose: u8, server: bool) {
    let default = match verbose + u8::from(server) {
        // Notices already report lost connections, lost locks and changed numbers of permits. Only the log reports
        // that servers could not be compared.
        0 => {
            "warn,lockkeeper_client=off,lockkeeper_client::one_service=warn,\
             lockkeeper_locks::guard=off,lockkeeper_locks::locks::semaphore=off"
        }
        1 => "info",
        2 => "debug",
        _ => "trace",
    };

    let wanted = levels(&std::env::var("LOCKKEEPER_LOG").unwrap_or_default());
    let queued = if server { log::Queued::start() } else { None };
    let writer = queued.map_or_else(|| BoxMakeWriter::new(io::stderr), BoxMakeWriter::new);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match journal::is_stderr() {
        true => lines.with_ansi(false).event_format(JournalFormat::new()).boxed(),
        false => lines.with_ansi(io::stderr().is_terminal()).with_target(false).boxed(),
    };
    let levels = wanted.unwrap_or_else(|| levels(default).unwrap_or_default());

    tracing_subscriber::registry().with(lines).with(levels).init();
}

/// Parses levels. Reports and skips invalid parts; `None` if no valid part is left.
fn levels(text: &str) -> Option<Targets> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let (understood, others): (Vec<&str>, Vec<&str>) = parts.partition(|part| names_a_level(part));
    for part in others {
        tell(&format!("LOCKKEEPER_LOG: `{part}` is neither a level nor target=level"));
    }
    if understood.is_empty() { None } else { understood.join(",").parse().ok() }
}

/// The library takes any word for a target and disables all others, so a mistyped level would silence the log.
fn names_a_level(part: &str) -> bool {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    match part.split_once('=') {
        None => is_level(part),
        Some((target, level)) => {
            let is_target = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
            !target.is_empty() && target.chars().all(is_target) && is_level(level)
        }
    }
}
