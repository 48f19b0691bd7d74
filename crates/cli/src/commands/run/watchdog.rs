//! Ends the command when lockkeeper itself cannot: because it was killed, or because it is stopped past the deadline of
//! the lease.
//!
//! The watchdog is a separate process of this program, started as `lockkeeper __watchdog`. Its standard input is a pipe
//! of messages: the session, the name of the run, the process group of the command, the times until which the command
//! may run, and its end. The watchdog kills the group when the last of these times has passed, and when the pipe closes
//! before the command has ended. The latter means that lockkeeper was killed: as soon as no process of the group can
//! run any more, the watchdog closes the session, so that the next contender gets the lock immediately.
//!
//! It is started before the lock is requested, so that the lock is never held without it. The command's process
//! announces its own group before it executes the command (`super::exec`), so the watchdog knows every command that
//! runs.
//!
//! With `--on-outage pause` it first stops the group, keeps it stopped, and kills it after the grace period. If the
//! lock turns out to be still held, lockkeeper sends a message.
//!
//! A watchdog that is killed itself is replaced, at the latest when the command starts.
//!
//! Processes that have left the group are found by their environment ([`processes`](super::processes)).

mod message;
mod process;

use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use lockkeeper::{Clock, Instant};
use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::process::Pid;

use self::message::{Message, Session};
use super::processes::RunName;
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure, no_process};
use crate::shared::program::helper_process;

pub(super) use self::message::announce;
pub(crate) use self::process::run;

/// The first argument that selects this mode.
const WORD: &str = "__watchdog";

/// How many watchdogs are started in a row, each within [`WHILE`] of the previous one.
const TRIES: u32 = 5;

/// A watchdog that was killed after a longer time than this was killed by accident.
const WHILE: Duration = Duration::from_secs(60);

/// A running watchdog. If it is dropped without a dismissal, it kills the command and closes the session.
#[derive(Debug)]
pub(super) struct Watchdog {
    process: Child,
    pipe: PipeWriter,
    session: Session,
    /// The name by which it finds processes that have left the group.
    run: RunName,
    group: Option<Pid>,
    /// Until when the command may run.
    until: Option<Instant>,
    /// The last such time that the watchdog process has received.
    told: Option<Instant>,
    /// How long it stops the command before it kills it, if it does.
    grace: Option<Duration>,
    started: Instant,
    /// How many were killed in a row.
    killed: u32,
    /// How many commands it has supervised before this one.
    commands: u64,
}

impl Watchdog {
    /// Starts a watchdog, without a command so far.
    pub(super) fn start(connection: &Connection) -> Result<Self, Failure> {
        let session = Session::of(connection).ok_or_else(|| {
            Failure::new(Exit::NoServer, "the session was lost before the lock was requested")
        })?;
        let run = RunName::new(session.id);
        let (process, pipe) = spawn(&[Message::session(&session), Message::Run(run.clone())])?;
        Ok(Self::of(process, pipe, session, run))
    }

    fn of(process: Child, pipe: PipeWriter, session: Session, run: RunName) -> Self {
        let started = Clock.now();
        let (group, until, told, grace, killed) = (None, None, None, None, 0);
        Self {
            process,
            pipe,
            session,
            run,
            group,
            until,
            told,
            grace,
            started,
            killed,
            commands: 0,
        }
    }

    /// The name of the run, for the command.
    pub(super) fn run(&self) -> &RunName {
        &self.run
    }

    /// Prepares for the next command, which is a separate run: processes that the previous command left behind do not
    /// belong to it. Replaces a watchdog that has killed the previous command.
    ///
    /// # Errors
    /// If it cannot be replaced.
    pub(super) fn begin_next(&mut self) -> Result<(), Failure> {
        self.commands += 1;
        self.run = RunName::next(self.session.id, self.commands);
        (self.group, self.until, self.told) = (None, None, None);
        let next = Message::Run(self.run.clone());
        if self.process.try_wait().ok().flatten().is_some() {
            (self.process, self.pipe) = spawn(&[Message::session(&self.session), next])?;
            self.started = Clock.now();
        } else {
            self.tell(&next);
        }
        Ok(())
    }

    /// Sends the current session if it has changed.
    pub(super) fn follow(&mut self, connection: &Connection) {
        if let Some(session) = Session::of(connection).filter(|now| now.id != self.session.id) {
            self.tell(&Message::session(&session));
            self.session = session;
        }
    }

    /// Starts a process that announces its group over the inherited descriptor.
    pub(super) fn introduce<T>(&self, start: impl FnOnce(RawFd) -> io::Result<T>) -> io::Result<T> {
        fcntl_setfd(&self.pipe, FdFlags::empty())?;
        let started = start(self.pipe.as_raw_fd());
        fcntl_setfd(&self.pipe, FdFlags::CLOEXEC)?;
        started
    }

    /// Records the supervised group, for a replacement of the watchdog.
    pub(super) fn watches(&mut self, group: Pid) {
        self.group = Some(group);
    }

    /// Lets the command run until this time. Returns whether the watchdog learns it in time. The watchdog acts only if
    /// its pipe is empty when the previous time has passed, so it has not acted if that time has not passed after the
    /// message is in the pipe. If the message cannot be sent, the previous time remains valid, and the next call tries
    /// again.
    pub(super) fn allow(&mut self, until: Instant) -> bool {
        let before = self.told;
        self.until = Some(until);
        if before != self.until && self.tell(&Message::until(until)) {
            self.told = self.until;
        }
        before.is_none_or(|before| Clock.now() < before)
    }

    /// From now on, the watchdog first stops the command, and kills it after this grace period.
    pub(super) fn pauses_for(&mut self, grace: Duration) {
        self.grace = Some(grace);
        self.tell(&Message::grace(grace));
    }

    /// Lets the command resume: if the watchdog has stopped it, it continues it after it has processed all earlier
    /// messages.
    pub(super) fn resume(&mut self) {
        self.tell(&Message::Resume);
    }

    /// When it stops the command or, without a grace period, kills it; `None`: never.
    pub(super) fn stops_at(&self) -> Option<Instant> {
        self.told
    }

    /// When it kills the command; `None`: never.
    pub(super) fn kills_at(&self) -> Option<Instant> {
        self.told.map(|stops_at| stops_at + self.grace.unwrap_or_default())
    }

    /// Replaces the watchdog if it was killed. Must be called when a child process has ended.
    ///
    /// # Errors
    /// If it cannot be replaced.
    pub(super) fn keep(&mut self) -> Result<(), Failure> {
        let ended = self.process.try_wait().ok().flatten();
        // A watchdog that has exited by itself has done its work: the command was killed.
        if ended.is_none_or(|status| status.success()) {
            return Ok(());
        }
        let now = Clock.now();
        self.killed = if now.since(self.started) < WHILE { self.killed + 1 } else { 1 };
        if self.killed >= TRIES {
            let message = format!("the watchdog process was killed {TRIES} times in a row");
            return Err(Failure::new(Exit::System, message));
        }

        tracing::debug!("the watchdog was killed; starting another one");
        let group = self.group.map(Message::group);
        let until = self.until.map(Message::until);
        let grace = self.grace.map(Message::grace);
        let run = Some(Message::Run(self.run.clone()));
        let known = [Some(Message::session(&self.session)), run, grace, group, until];
        (self.process, self.pipe) = spawn(&known.into_iter().flatten().collect::<Vec<_>>())?;
        (self.told, self.started) = (self.until, now);
        Ok(())
    }

    /// The command has ended. Processes that it has left behind may continue.
    pub(super) fn ended(&mut self) {
        self.tell(&Message::Ended);
        // A replacement must not kill anything either: the number of the group may be reused.
        (self.group, self.until, self.told) = (None, None, None);
    }

    /// Ends the watchdog and reaps it. For use when there is neither a command nor a lock any more.
    pub(super) fn dismiss(mut self) {
        // Both fail only for a process that was already reaped. KILL also ends a stopped process.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Returns whether the message is in the pipe. If it cannot be sent, the watchdog was killed, which
    /// [`Watchdog::keep`] handles, or has been stopped for long.
    fn tell(&mut self, message: &Message) -> bool {
        let sent = message.send(&mut self.pipe);
        if let Err(error) = &sent {
            tracing::debug!("cannot send a message to the watchdog: {error}");
        }
        sent.is_ok()
    }
}

/// Starts a process with these messages already in its pipe: if this process is stopped right afterwards, the watchdog
/// has all that it needs.
fn spawn(messages: &[Message]) -> Result<(Child, PipeWriter), Failure> {
    let (reader, mut pipe) = io::pipe().map_err(no_process)?;
    // A stopped watchdog must not block this process.
    ioctl_fionbio(&pipe, true).map_err(|error| no_process(error.into()))?;
    for message in messages {
        message.send(&mut pipe).map_err(no_process)?;
    }

    let process = helper_process()
        .map_err(no_process)?
        .arg(WORD)
        .stdin(reader)
        .stdout(Stdio::null())
        // Signals for our group are not meant for the watchdog.
        .process_group(0)
        .spawn()
        .map_err(no_process)?;
    Ok((process, pipe))
}

/// Whether this process was started as a watchdog.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Symptom: a renewal that was sent just as the watchdog stopped the command was taken to be in time, and the stop
    /// to be another program's, so the command was never continued.
    #[test]
    fn a_renewal_that_the_watchdog_hears_too_late_is_told() {
        let (reader, pipe) = io::pipe().unwrap();
        let process = Command::new("true").spawn().unwrap();
        let session = self::message::tests::session();
        let run = RunName::new(session.id);
        let mut watchdog = Watchdog::of(process, pipe, session, run);
        let (soon, later) = (Duration::from_millis(20), Duration::from_secs(600));
        let now = Clock.now();
        assert!(watchdog.allow(now + later), "no earlier time was sent");
        assert!(watchdog.allow(now + later * 2), "sent long before the first time");
        assert!(watchdog.allow(now + soon));
        std::thread::sleep(soon * 2);
        assert!(!watchdog.allow(now + later), "it may have acted");
        assert!(watchdog.allow(now + later), "it was sent once");

        drop(reader);
        assert!(watchdog.allow(now + later * 2), "this one arrived, and not the next");
        assert_eq!(watchdog.stops_at(), Some(now + later), "no later time arrived");
        watchdog.dismiss();
    }
}
