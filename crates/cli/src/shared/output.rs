//! Standard output, and the log on standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, makedev};
use serde::Serialize;
use serde_json::Value;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::log;

/// Tells the user one line on standard error. If nobody reads it, nobody misses it.
pub(crate) fn tell(message: &str) {
    // With one call: standard error has no buffer, and several runs may share it.
    let _ = io::stderr().write_all(format!("lockkeeper: {message}\n").as_bytes());
}

/// Tells the user of a failure, and gives its exit code.
pub(crate) fn report(failure: &Failure) -> u8 {
    tell(&failure.to_string());
    failure.code()
}

/// Tells the user how it ended, if that was a failure, and gives the exit code.
pub(crate) fn end(result: Result<u8, Failure>) -> u8 {
    let last = match &result {
        Ok(_) => String::new(),
        Err(failure) => format!("lockkeeper: {failure}\n"),
    };
    // After the log of a server, and bounded as that is.
    let is_told = log::finish(&last);
    match result {
        Err(failure) if !is_told => report(&failure),
        Err(failure) => failure.code(),
        Ok(code) => code,
    }
}

/// Writes to standard output. A reader that has gone (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(|_| ())
}

/// The same for a command that goes on; says whether there is still a reader.
pub(crate) fn print_to_reader(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(unwritten(&error)),
        Ok(()) => Ok(true),
    }
}

/// Says in one line that something has begun that goes on. A reader that has gone knows what it wanted to know.
pub(crate) fn announce(global: &Global, value: &impl Serialize, text: &str) -> Result<(), Failure> {
    let line = if global.json { json(value)?.to_string() } else { text.to_owned() };
    print_to_reader(&format!("{line}\n")).map(|_| ())
}

/// Whether the reader of standard output has gone, as far as the system tells without a write.
pub(crate) fn has_lost_its_reader() -> bool {
    let out = io::stdout();
    let mut asked = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let told = poll(&mut asked, PollTimeout::ZERO);
    told.is_ok_and(|count| count > 0)
        && asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
}

/// Writes a value as JSON, for programs.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Bug, format!("cannot write JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// A value as JSON, for what is written on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value)
        .map_err(|error| Failure::new(Exit::Bug, format!("cannot write JSON: {error}")))
}

/// Writes what was asked for: as JSON if a program reads it, or else as text for people.
pub(crate) fn show(
    global: &Global,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if global.json { print_json(value) } else { print(&text()) }
}

/// Writes a value as it is. A terminal gets a line end after it.
pub(crate) fn print_value(value: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let needs_end = io::stdout().is_terminal() && !value.ends_with(b"\n");
    let end: &[u8] = if needs_end { b"\n" } else { b"" };
    let written = out.write_all(value).and_then(|()| out.write_all(end));
    written.and_then(|()| out.flush()).map_err(|error| unwritten(&error))
}

/// Writes a value as a line, for a command that goes on; says whether there is still a reader.
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

/// Whether standard output was closed when this process began: it is what the standard library has opened instead, to read
/// and write.
pub(crate) fn is_closed() -> bool {
    let out = io::stdout();
    let is_null = fstat(&out).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && stat.st_rdev == makedev(1, 3)
    });
    is_null && fcntl_getfl(&out).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// Whether colours would be seen: a terminal, and nobody has asked for none.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Starts the log on standard error; that of a server never keeps anything waiting. `LOCKKEEPER_LOG` has the last
/// word: levels of all and of single targets, such as `info` or `warn,lockkeeper_engine=debug`.
pub(crate) fn start_log(verbose: u8, server: bool) {
    let default = match verbose + u8::from(server) {
        // What a lost connection means for a lock, its loss, and another number of permits are told in so
        // many words. That servers could not be compared is told by nothing else.
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
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let levels = wanted.unwrap_or_else(|| levels(default).unwrap_or_default());

    tracing_subscriber::registry().with(lines).with(levels).init();
}

/// Reads levels. What makes no sense is told, and left out; `None` if nothing is left.
fn levels(text: &str) -> Option<Targets> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let (understood, others): (Vec<&str>, Vec<&str>) = parts.partition(|part| names_a_level(part));
    for part in others {
        tell(&format!("LOCKKEEPER_LOG: `{part}` is neither a level nor like target=level"));
    }
    if understood.is_empty() { None } else { understood.join(",").parse().ok() }
}

/// Any word is a target to the library, which then turns off all others: a level that is mistyped
/// would silence the log.
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
