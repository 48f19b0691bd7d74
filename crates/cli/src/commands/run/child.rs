//! The command that runs under the lock.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use lockkeeper::Guard;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_current_process_group, kill_process,
    kill_process_group, waitpid,
};

use super::exec;
use super::lock::Held;
use super::processes::Processes;
use super::terminal::{Terminal, is_on_its_own};
use super::watchdog::Watchdog;
use crate::session::connect::Connection;
use crate::session::nested::{OUTER_LOCKS, outer_locks};
use crate::shared::exit::{Exit, Failure, no_process, signal_code};
use crate::shared::global::Digest;
use crate::shared::program::{RUN, this_program};

/// A running command, the first process of its group.
///
/// It is waited for by this alone, so that its id is its own for as long as it is signalled.
#[derive(Debug)]
pub(super) struct Child {
    processes: Processes,
    terminal: Option<Terminal>,
    /// Whether it was stopped by somebody else, and not continued since.
    is_stopped: bool,
}

/// What the command is told about its lock.
#[derive(Debug)]
pub(super) struct Environment<'a> {
    pub(super) connection: &'a Connection,
    pub(super) held: &'a Held,
    /// What it is told besides: of a run that runs once, or of an item.
    pub(super) more: Vec<(&'static str, String)>,
    /// Its standard input, if that is not the one of this process.
    pub(super) input: Option<File>,
}

/// Something that happened to the command.
#[derive(Debug)]
pub(super) enum Change {
    Ended(Ended),
    /// Stopped by this signal.
    Stopped(Option<Signal>),
    /// Continued, by whoever that was.
    Continued,
}

/// What is to be done to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Term,
    Kill,
    Warned,
    /// It must not run for now.
    Stop,
    /// It may run again.
    GoOn,
}

/// How the command ended.
#[derive(Debug)]
pub(super) struct Ended(WaitStatus);

impl Ended {
    /// Its exit code, as shells count.
    pub(super) fn code(&self) -> u8 {
        let own = self.0.exit_status().and_then(|code| u8::try_from(code).ok());
        own.unwrap_or_else(|| signal_code(self.0.terminating_signal().unwrap_or_default()))
    }

    /// Whether a signal ended it.
    pub(super) fn is_by_signal(&self) -> bool {
        self.0.signaled()
    }

    /// Whether it was killed.
    pub(super) fn is_by_kill(&self) -> bool {
        self.0.terminating_signal() == Some(Signal::KILL.as_raw())
    }
}

impl Child {
    /// Starts a command that this watchdog watches. To be called on the main thread: the kernel takes
    /// the end of the thread that starts a child for the death of its parent.
    pub(super) fn spawn(
        command: &[OsString],
        environment: Environment<'_>,
        watchdog: &Watchdog,
    ) -> Result<Self, Failure> {
        let mut wrapped = Command::new(this_program().map_err(no_process)?);
        wrapped.arg0("lockkeeper").arg(exec::WORD).arg(getpid().as_raw_nonzero().to_string());
        wrapped.envs(environment.variables()).process_group(0);
        wrapped.env(RUN, watchdog.run().value());
        if let Some(input) = environment.input {
            wrapped.stdin(input);
        }
        // Whoever sees the command's environment is not to act in our name.
        wrapped.env_remove(Digest::VARIABLE);

        let child = watchdog
            .introduce(|pipe| wrapped.arg(pipe.to_string()).args(command).spawn())
            .map_err(no_process)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| {
            Failure::new(Exit::Bug, format!("{} is not a process id", child.id()))
        })?;
        let processes = Processes { group, run: watchdog.run().clone() };
        let mut child = Self { processes, terminal: Terminal::find(), is_stopped: false };
        child.offer_terminal();
        Ok(child)
    }

    /// Its process group.
    pub(super) fn group(&self) -> Pid {
        self.processes.group
    }

    /// Its process group, and what it has started that has left it.
    pub(super) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// What has happened since this was asked last; `None`: nothing more.
    pub(super) fn poll(&self) -> Result<Option<Change>, Failure> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        let change = waitpid(Some(self.group()), options).map_err(|error| {
            Failure::new(Exit::Bug, format!("cannot wait for the command: {error}"))
        })?;
        Ok(change.map(|(_, status)| match status.stopping_signal() {
            Some(signal) => Change::Stopped(Signal::from_named_raw(signal)),
            None if status.continued() => Change::Continued,
            None => Change::Ended(Ended(status)),
        }))
    }

    /// Passes a signal on to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        tracing::debug!(?signal, group = self.group().as_raw_nonzero(), "passed on");
        // Fails if the whole group has ended, of which we are about to hear.
        let _ = kill_process_group(self.group(), signal);
    }

    /// Asks the group to end.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        // A stopped process does not notice.
        self.signal(Signal::CONT);
    }

    /// Does what the lock demands.
    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Warned => {}
            Step::Stop => self.signal(Signal::STOP),
            // What somebody else has stopped before stays stopped.
            Step::GoOn if self.is_stopped => {}
            Step::GoOn => self.resume(),
            Step::Kill => self.processes.signal(&[Signal::KILL]),
            // A stopped process does not notice.
            Step::Term => self.processes.signal(&[Signal::TERM, Signal::CONT]),
        }
    }

    /// The command was stopped. If it only wanted the terminal, it gets it and goes on. Otherwise
    /// we stop with it, as the shell waits for us and not for the command; [`Child::resume`] is
    /// called when the shell continues us. A session that is stopped for too long is lost, and the
    /// command then never runs again.
    pub(super) fn stopped(&mut self, by: Option<Signal>) {
        self.is_stopped = true;
        let group = self.group();
        let wants_terminal = matches!(by, Some(Signal::TTIN | Signal::TTOU));
        // It may have stopped just before it was lent the terminal.
        let can_read = |terminal: &mut Terminal| terminal.is_with(group) || terminal.lend(group);
        if wants_terminal && self.terminal.as_mut().is_some_and(can_read) {
            return self.go_on();
        }

        // A STOP from elsewhere is nobody's wish to have the shell back.
        if by == Some(Signal::STOP) {
            return;
        }
        if is_on_its_own() {
            return self.go_on();
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(group, false);
        }

        // Ctrl-Z is meant for all of a job: a script that runs us, the other end of a pipe. We
        // listen to TSTP, so that it does not stop us, and pass it on to a group that has stopped.
        let _ = kill_current_process_group(Signal::TSTP);
        let _ = kill_process(getpid(), Signal::STOP);
    }

    /// Lets a stopped command go on, with the terminal if we have it again.
    pub(super) fn resume(&mut self) {
        self.offer_terminal();
        self.go_on();
    }

    /// Somebody has continued it, or wishes to.
    pub(super) fn continued(&mut self) {
        self.is_stopped = false;
    }

    /// Whether it was stopped by somebody else, and is to stay so.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn go_on(&mut self) {
        self.is_stopped = false;
        self.signal(Signal::CONT);
    }

    /// The command has ended: the terminal is ours again.
    pub(super) fn finish(&mut self, ended: &Ended) {
        let group = self.group();
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(group, ended.0.signaled());
        }
    }

    fn offer_terminal(&mut self) {
        let group = self.group();
        if let Some(terminal) = &mut self.terminal {
            terminal.lend_to_foreground(group);
        }
    }
}

impl Environment<'_> {
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let own = |text: &str| OsStr::new(text).to_owned();
        let guards = self.held.guards();
        // A line for each lock. None of these has control characters.
        let each = |of: fn(&Guard) -> String| {
            OsString::from(guards.iter().map(of).collect::<Vec<_>>().join("\n"))
        };
        let mut variables = vec![
            ("LOCKKEEPER_LOCK", each(|guard| guard.path().to_string())),
            ("LOCKKEEPER_NODE", each(|guard| guard.node().to_string())),
            ("LOCKKEEPER_TOKEN", each(|guard| guard.token().to_string())),
            ("LOCKKEEPER_CONNECT", own(&self.connection.servers)),
            (OUTER_LOCKS, own(&outer_locks(self.connection, guards))),
            ("LOCKKEEPER_DEADLINE_UNIX_MS", own(&self.deadline_unix_ms().to_string())),
        ];
        variables.extend(self.held.thing().map(|name| ("LOCKKEEPER_NAME", own(name))));
        variables.extend(self.connection.access.variables());
        variables.extend(self.more.iter().map(|(name, value)| (*name, own(value))));
        variables
    }

    /// Wall time is what a command can compare with, whatever it is written in.
    fn deadline_unix_ms(&self) -> u128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now + self.held.remaining()).as_millis()
    }
}
