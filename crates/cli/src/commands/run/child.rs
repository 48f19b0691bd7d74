//! The command, as a child process.

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
/// Only this type waits for the process, so its id stays valid while it may be signalled.
#[derive(Debug)]
pub(super) struct Child {
    processes: Processes,
    terminal: Option<Terminal>,
    /// Whether its standard input is that of this process.
    inherits_input: bool,
    /// Whether another process stopped it and it was not continued since.
    is_stopped: bool,
}

/// The lock, as described to the command by environment variables.
#[derive(Debug)]
pub(super) struct Environment<'a> {
    pub(super) connection: &'a Connection,
    pub(super) held: &'a Held,
    /// Further variables, for a run that runs once or for an item.
    pub(super) more: Vec<(&'static str, String)>,
    /// Standard input; `None` inherits it from this process.
    pub(super) input: Option<File>,
}

/// A state change of the command.
#[derive(Debug)]
pub(super) enum Change {
    Ended(Ended),
    /// Stopped by this signal.
    Stopped(Option<Signal>),
    /// Continued by any process.
    Continued,
}

/// An action on the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Term,
    Kill,
    Warned,
    /// Stop it: it must not run for now.
    Stop,
    /// Let it run again.
    Resume,
}

/// How the command ended.
#[derive(Debug)]
pub(super) struct Ended(WaitStatus);

impl Ended {
    /// Its exit code, by the convention of shells.
    pub(super) fn code(&self) -> u8 {
        let own = self.0.exit_status().and_then(|code| u8::try_from(code).ok());
        own.unwrap_or_else(|| signal_code(self.0.terminating_signal().unwrap_or_default()))
    }

    /// Whether a signal terminated it.
    pub(super) fn is_by_signal(&self) -> bool {
        self.0.signaled()
    }

    /// Whether KILL terminated it.
    pub(super) fn is_by_kill(&self) -> bool {
        self.0.terminating_signal() == Some(Signal::KILL.as_raw())
    }
}

impl Child {
    /// Starts a command that this watchdog supervises. Must be called on the main thread: the kernel treats the end of
    /// the thread that started a child as the death of the parent.
    pub(super) fn spawn(
        command: &[OsString],
        environment: Environment<'_>,
        watchdog: &Watchdog,
    ) -> Result<Self, Failure> {
        let mut wrapped = Command::new(this_program().map_err(no_process)?);
        wrapped.arg0("lockkeeper").arg(exec::WORD).arg(getpid().as_raw_nonzero().to_string());
        wrapped.envs(environment.variables()).process_group(0);
        wrapped.env(RUN, watchdog.run().value());
        let inherits_input = environment.input.is_none();
        if let Some(input) = environment.input {
            wrapped.stdin(input);
        }
        // The command's environment must not contain our credentials.
        wrapped.env_remove(Digest::VARIABLE);

        let child = watchdog
            .introduce(|pipe| wrapped.arg(pipe.to_string()).args(command).spawn())
            .map_err(no_process)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| {
            Failure::new(Exit::Bug, format!("{} is not a process id", child.id()))
        })?;
        let processes = Processes { group, run: watchdog.run().clone() };
        let terminal = Terminal::find();
        let mut child = Self { processes, terminal, inherits_input, is_stopped: false };
        child.offer_terminal();
        Ok(child)
    }

    /// Its process group.
    pub(super) fn group(&self) -> Pid {
        self.processes.group
    }

    /// Its process group, and the processes that have left the group.
    pub(super) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// The next state change since the last call; `None` after the last one.
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

    /// Forwards a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        tracing::debug!(?signal, group = self.group().as_raw_nonzero(), "signal forwarded");
        // Fails if the whole group has ended, which is noticed next.
        let _ = kill_process_group(self.group(), signal);
    }

    /// Asks the group to end.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        // A stopped process does not handle TERM until it is continued.
        self.signal(Signal::CONT);
    }

    /// Does what the state of the lock requires.
    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Warned => {}
            Step::Stop => self.signal(Signal::STOP),
            // If another process stopped it before, it stays stopped.
            Step::Resume if self.is_stopped => {}
            Step::Resume => self.resume(),
            Step::Kill => self.processes.signal(&[Signal::KILL]),
            // A stopped process does not handle TERM until it is continued.
            Step::Term => self.processes.signal(&[Signal::TERM, Signal::CONT]),
        }
    }

    /// Handles a command that was stopped. If it only needs the terminal, it gets the terminal and continues. Otherwise
    /// this process stops as well, because the shell waits for it and not for the command. [`Child::resume`] is called
    /// when the shell continues this process. If that takes too long, the session expires, and the command never runs
    /// again.
    pub(super) fn stopped(&mut self, by: Option<Signal>) {
        self.is_stopped = true;
        let group = self.group();
        let wants_terminal = matches!(by, Some(Signal::TTIN | Signal::TTOU));
        // It may have stopped just before it got the terminal.
        let can_read = |terminal: &mut Terminal| terminal.is_with(group) || terminal.lend(group);
        if wants_terminal && self.terminal.as_mut().is_some_and(can_read) {
            return self.continue_group();
        }

        // STOP comes from another process, so the user has not asked for the shell.
        if by == Some(Signal::STOP) {
            return;
        }
        if is_on_its_own() {
            return self.continue_group();
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(group, false);
        }

        // Ctrl-Z is meant for the whole job: for a script that started this process, or the other end of a pipe. This
        // process handles TSTP, so it is not stopped by the signal, and sends it to a group that is already stopped.
        let _ = kill_current_process_group(Signal::TSTP);
        let _ = kill_process(getpid(), Signal::STOP);
    }

    /// Continues a stopped command, with the terminal if this process has it again.
    pub(super) fn resume(&mut self) {
        self.offer_terminal();
        self.continue_group();
    }

    /// Another process has continued it, or wants to.
    pub(super) fn continued(&mut self) {
        self.is_stopped = false;
    }

    /// Whether another process stopped it, so that it must stay stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn continue_group(&mut self) {
        self.is_stopped = false;
        self.signal(Signal::CONT);
    }

    /// Takes the terminal back after the command has ended. Returns the signal of the terminal that ended the command:
    /// the terminal sends Ctrl-C only to the group that it is lent to, but the user means this process as well.
    pub(super) fn finish(&mut self, ended: &Ended) -> Option<Signal> {
        let group = self.group();
        let terminal = self.terminal.as_mut().filter(|terminal| terminal.is_with(group))?;
        terminal.take_back(group, ended.0.signaled());
        let code = ended.code();
        [Signal::INT, Signal::QUIT].into_iter().find(|signal| code == signal_code(signal.as_raw()))
    }

    /// Lends the terminal to a command that the user interacts with. A command with an input of its own gets it only
    /// when it is stopped for reading, so that Ctrl-C reaches this process.
    fn offer_terminal(&mut self) {
        let group = self.group();
        if let Some(terminal) = self.terminal.as_mut().filter(|_| self.inherits_input) {
            terminal.lend_to_foreground(group);
        }
    }
}

impl Environment<'_> {
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let own = |text: &str| OsStr::new(text).to_owned();
        let guards = self.held.guards();
        // One line for each lock. None of these values contains control characters.
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

    /// In wall-clock time, which programs in any language can compare.
    fn deadline_unix_ms(&self) -> u128 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now + self.held.remaining()).as_millis()
    }
}
