//! Ends the command when lockkeeper itself cannot: because it is stopped past the deadline of the
//! lease, or was killed.
//!
//! The watchdog is a process of its own: this program again, as `lockkeeper __watchdog`. Its
//! standard input is a pipe of messages, each one number: first the process group of the command,
//! then the times until which the command may run, then a farewell. It kills the group when the
//! last time that it was told has come, and when the pipe ends without a farewell.
//!
//! What the command has put into other process groups is out of its reach.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use lockkeeper::{Clock, Instant};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use rustix::io::{ioctl_fionbio, read};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::stdio::stdin;

use super::exec::this_program;
use crate::exit::{Exit, Failure};
use crate::local::daemon::close_inherited;
use crate::output::tell;

/// The word that asks for this.
const WORD: &str = "__watchdog";

/// The command has ended.
const FAREWELL: u64 = 0;

/// A timer does not count the time in which the machine is suspended, so the clock is looked at
/// again and again.
const SLICE: Duration = Duration::from_secs(1);

/// A running watchdog. Dropped without a farewell, it kills the command.
#[derive(Debug)]
pub(super) struct Watchdog {
    pipe: ChildStdin,
    told: Option<Instant>,
}

impl Watchdog {
    /// Starts one that watches nothing yet.
    pub(super) fn start() -> Result<Self, Failure> {
        let refused = |error: std::io::Error| {
            Failure::new(Exit::System, format!("the system refuses a process: {error}"))
        };
        let mut watchdog = Command::new(this_program().map_err(refused)?)
            .arg0("lockkeeper")
            .arg(WORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A signal for our group is none for the watchdog.
            .process_group(0)
            .spawn()
            .map_err(refused)?;
        let pipe = watchdog.stdin.take();
        let pipe = pipe.ok_or_else(|| Failure::new(Exit::Bug, "the watchdog has no pipe"))?;
        // A watchdog that is stopped itself must not stop us.
        ioctl_fionbio(&pipe, true).map_err(|error| refused(error.into()))?;
        Ok(Self { pipe, told: None })
    }

    /// Has it watch this process group.
    pub(super) fn watch(&mut self, group: Pid) {
        self.tell(u64::from(group.as_raw_nonzero().get().unsigned_abs()));
    }

    /// The command may run until then.
    pub(super) fn allow(&mut self, until: Instant) {
        if self.told != Some(until) {
            self.told = Some(until);
            let ms = until.since_start().as_millis();
            self.tell(u64::try_from(ms).unwrap_or(u64::MAX));
        }
    }

    /// Until when the command was allowed to run at last; `None`: for ever.
    pub(super) fn allowed(&self) -> Option<Instant> {
        self.told
    }

    /// The command has ended. What it has left behind may go on.
    pub(super) fn dismiss(mut self) {
        self.tell(FAREWELL);
    }

    /// If the watchdog was killed, the command does without: what it is there for is rare.
    fn tell(&mut self, message: u64) {
        if let Err(error) = self.pipe.write_all(&message.to_le_bytes()) {
            tracing::debug!("the watchdog cannot be told: {error}");
        }
    }
}

/// Whether this process was started to be a watchdog.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

/// Watches until the command has ended, or must.
pub(crate) fn run() -> ExitCode {
    // Whoever ends a whole service begins with TERM, and lockkeeper has a command to end first.
    if let Err(error) = SigSet::all().thread_block() {
        tracing::debug!("signals cannot be blocked: {error}");
    }
    close_inherited();
    let Some(group) = next().and_then(|group| i32::try_from(group).ok()).and_then(Pid::from_raw)
    else {
        return ExitCode::SUCCESS;
    };
    match watch() {
        Verdict::Ended => {}
        Verdict::Late => {
            kill(group);
            tell("lockkeeper was stopped until the lease had nearly run out: killed the command");
        }
        Verdict::Orphaned => kill(group),
    }
    ExitCode::SUCCESS
}

enum Verdict {
    Ended,
    /// The last time that was told has come.
    Late,
    /// There is nobody any more who would tell.
    Orphaned,
}

fn watch() -> Verdict {
    let mut limit = None;
    loop {
        let left = limit.map(|limit: Instant| limit.since(Clock.now()));
        if left == Some(Duration::ZERO) {
            return Verdict::Late;
        }
        if !is_readable(left.unwrap_or(SLICE).min(SLICE)) {
            continue;
        }
        match next() {
            None => return Verdict::Orphaned,
            Some(FAREWELL) => return Verdict::Ended,
            Some(ms) => limit = Some(Instant::from_start(Duration::from_millis(ms))),
        }
    }
}

fn is_readable(within: Duration) -> bool {
    let mut input = [PollFd::new(stdin(), PollFlags::POLLIN)];
    // Rounded up: a time of nothing would be a loop without a pause.
    let ms = u16::try_from(within.as_millis() + 1).unwrap_or(u16::MAX);
    poll(&mut input, PollTimeout::from(ms)).is_ok_and(|ready| ready > 0)
}

/// The next message; `None` at the end of the pipe.
fn next() -> Option<u64> {
    let mut message = [0; 8];
    // Each was written at once, and so is read at once.
    let count = read(stdin(), &mut message).unwrap_or_default();
    (count == message.len()).then(|| u64::from_le_bytes(message))
}

fn kill(group: Pid) {
    // Fails if all of it has ended.
    let _ = kill_process_group(group, Signal::KILL);
}
