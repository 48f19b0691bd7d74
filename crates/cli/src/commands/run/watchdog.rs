//! Ends the command when lockkeeper itself cannot: because it is stopped past the deadline of the
//! lease, or was killed.
//!
//! The watchdog is a process of its own: this program again, as `lockkeeper __watchdog`. Its
//! standard input is a pipe of messages: the session, the name of the run, the process group of the command, the times
//! until which the command may run, and that it has ended. It kills the group when the last time
//! that it was told has come, and when the pipe ends before the command has. In the latter case
//! lockkeeper was killed: as soon as nothing of the group can run any more, the watchdog closes the
//! session, so that the next contender has the lock at once.
//!
//! It is started before the lock is asked for, so that it watches whenever the lock is held. The
//! command's process makes its group known itself, before it becomes the command (`super::exec`): a
//! command that runs is one that the watchdog knows of.
//!
//! With `--on-outage pause` it first stops the group, keeps it stopped, and kills it when the grace is
//! over. If the lock turns out to be still held, lockkeeper says so.
//!
//! A watchdog that is killed itself is replaced, at the latest when the command is started.
//!
//! What the command has put into other process groups is found by its environment ([`processes`](super::processes)).

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

/// The word that asks for this.
const WORD: &str = "__watchdog";

/// How many watchdogs are started in a row, each within [`WHILE`] of the one before.
const TRIES: u32 = 5;

/// A watchdog that was killed after so long was killed by accident.
const WHILE: Duration = Duration::from_secs(60);

/// A running watchdog. Dropped without a dismissal, it kills the command and closes the session.
#[derive(Debug)]
pub(super) struct Watchdog {
    process: Child,
    pipe: PipeWriter,
    session: Session,
    /// By which it finds what has left the group.
    run: RunName,
    group: Option<Pid>,
    /// Until when the command may run.
    until: Option<Instant>,
    /// The same, as this process was told it last.
    told: Option<Instant>,
    /// For how long it stops the command before it kills it, if it does.
    grace: Option<Duration>,
    started: Instant,
    /// How many were killed in a row.
    killed: u32,
    /// How many commands it had to watch before this one.
    commands: u64,
}

impl Watchdog {
    /// Starts one that knows of no command yet.
    pub(super) fn start(connection: &Connection) -> Result<Self, Failure> {
        let session = Session::of(connection).ok_or_else(|| {
            Failure::new(Exit::NoServer, "the session was lost before the lock was asked for")
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

    /// Makes ready for the next command, which is a run of its own: what the one before has left behind is none of its
    /// processes. A watchdog that has killed that one is followed by another.
    ///
    /// # Errors
    /// If there is no other one.
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

    /// Tells it the present session if that is another one than before.
    pub(super) fn follow(&mut self, connection: &Connection) {
        if let Some(session) = Session::of(connection).filter(|now| now.id != self.session.id) {
            self.tell(&Message::session(&session));
            self.session = session;
        }
    }

    /// Starts a process that announces its group over the descriptor that it inherits.
    pub(super) fn introduce<T>(&self, start: impl FnOnce(RawFd) -> io::Result<T>) -> io::Result<T> {
        fcntl_setfd(&self.pipe, FdFlags::empty())?;
        let started = start(self.pipe.as_raw_fd());
        fcntl_setfd(&self.pipe, FdFlags::CLOEXEC)?;
        started
    }

    /// Notes the group that it watches, for the one that replaces it.
    pub(super) fn watches(&mut self, group: Pid) {
        self.group = Some(group);
    }

    /// The command may run until then. Returns whether the watchdog hears it in time: it acts only if
    /// its pipe is empty when the time that it was told before has passed, so it has not acted if that
    /// time has not passed after this is in the pipe. If it cannot be told, the time before counts, and
    /// the next call tells it again.
    pub(super) fn allow(&mut self, until: Instant) -> bool {
        let before = self.told;
        self.until = Some(until);
        if before != self.until && self.tell(&Message::until(until)) {
            self.told = self.until;
        }
        before.is_none_or(|before| Clock.now() < before)
    }

    /// From now on it first stops the command, and kills it so much later.
    pub(super) fn pauses_for(&mut self, grace: Duration) {
        self.grace = Some(grace);
        self.tell(&Message::grace(grace));
    }

    /// The command goes on: if the watchdog has stopped it, it continues it, after all that it was
    /// told before.
    pub(super) fn go_on(&mut self) {
        self.tell(&Message::GoOn);
    }

    /// When it stops the command or, without a grace, kills it; `None`: never.
    pub(super) fn stops_at(&self) -> Option<Instant> {
        self.told
    }

    /// When it kills the command; `None`: never.
    pub(super) fn kills_at(&self) -> Option<Instant> {
        self.told.map(|stops_at| stops_at + self.grace.unwrap_or_default())
    }

    /// Replaces the watchdog if it was killed. To be called when a child process has ended.
    ///
    /// # Errors
    /// If there is no other one.
    pub(super) fn keep(&mut self) -> Result<(), Failure> {
        let ended = self.process.try_wait().ok().flatten();
        // One that has ended by itself has done its work: the command is killed.
        if ended.is_none_or(|status| status.success()) {
            return Ok(());
        }
        let now = Clock.now();
        self.killed = if now.since(self.started) < WHILE { self.killed + 1 } else { 1 };
        if self.killed >= TRIES {
            let message = format!("the watchdog process was killed {TRIES} times in a row");
            return Err(Failure::new(Exit::System, message));
        }

        tracing::debug!("the watchdog was killed: starting another one");
        let group = self.group.map(Message::group);
        let until = self.until.map(Message::until);
        let grace = self.grace.map(Message::grace);
        let run = Some(Message::Run(self.run.clone()));
        let known = [Some(Message::session(&self.session)), run, grace, group, until];
        (self.process, self.pipe) = spawn(&known.into_iter().flatten().collect::<Vec<_>>())?;
        (self.told, self.started) = (self.until, now);
        Ok(())
    }

    /// The command has ended. What it has left behind may go on.
    pub(super) fn ended(&mut self) {
        self.tell(&Message::Ended);
        // Nor is the one that replaces it to kill anything: the number of the group may be used again.
        (self.group, self.until, self.told) = (None, None, None);
    }

    /// Ends it, and leaves no zombie behind. For when there is neither a command nor a lock any more.
    pub(super) fn dismiss(mut self) {
        // Both fail only for a process that has been waited for. KILL ends also a stopped one.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Returns whether it is in the pipe. A watchdog that cannot be told has been killed, which is seen to by
    /// [`Watchdog::keep`], or has stood still for long.
    fn tell(&mut self, message: &Message) -> bool {
        let sent = message.send(&mut self.pipe);
        if let Err(error) = &sent {
            tracing::debug!("the watchdog cannot be told: {error}");
        }
        sent.is_ok()
    }
}

/// Starts a process that finds these messages in its pipe from the beginning: if we are stopped
/// right after, it knows what it needs.
fn spawn(messages: &[Message]) -> Result<(Child, PipeWriter), Failure> {
    let (reader, mut pipe) = io::pipe().map_err(no_process)?;
    // A watchdog that is stopped itself must not stop us.
    ioctl_fionbio(&pipe, true).map_err(|error| no_process(error.into()))?;
    for message in messages {
        message.send(&mut pipe).map_err(no_process)?;
    }

    let process = helper_process()
        .map_err(no_process)?
        .arg(WORD)
        .stdin(reader)
        .stdout(Stdio::null())
        // A signal for our group is none for the watchdog.
        .process_group(0)
        .spawn()
        .map_err(no_process)?;
    Ok((process, pipe))
}

/// Whether this process was started to be a watchdog.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Symptom: a renewal that was passed on just as the watchdog stopped the command was taken to be
    /// in time, the stop to be somebody else's, and the command stood still for good.
    #[test]
    fn a_renewal_that_the_watchdog_hears_too_late_is_told() {
        let (reader, pipe) = io::pipe().unwrap();
        let process = Command::new("true").spawn().unwrap();
        let session = self::message::tests::session();
        let run = RunName::new(session.id);
        let mut watchdog = Watchdog::of(process, pipe, session, run);
        let (soon, later) = (Duration::from_millis(20), Duration::from_secs(600));
        let now = Clock.now();
        assert!(watchdog.allow(now + later), "it was told no time before");
        assert!(watchdog.allow(now + later * 2), "it heard of this long before the first time");
        assert!(watchdog.allow(now + soon));
        std::thread::sleep(soon * 2);
        assert!(!watchdog.allow(now + later), "it may have acted");
        assert!(watchdog.allow(now + later), "which was told once");

        drop(reader);
        assert!(watchdog.allow(now + later * 2), "it heard of this, and not of the next");
        assert_eq!(watchdog.stops_at(), Some(now + later), "nobody has heard of more");
        watchdog.dismiss();
    }
}
