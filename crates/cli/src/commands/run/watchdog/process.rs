//! The process of the watchdog.

use std::process::ExitCode;
use std::time::Duration;

use lockkeeper::{Clock, Instant};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::stdio::stdin;

use super::message::{Inbox, Message, Session};
use crate::commands::run::pause;
use crate::commands::run::processes::{Processes, RunName};
use crate::shared::exit::{Exit, Failure};
use crate::shared::output::tell;
use crate::shared::program::close_inherited;
use crate::shared::runtime::block_on;

/// Timers do not count the time during which the machine is suspended, so the clock is checked at this interval.
const SLICE: Duration = Duration::from_secs(1);

/// What this process has received.
#[derive(Debug)]
struct Watched {
    session: Session,
    run: RunName,
    group: Option<Pid>,
    /// Until when the command may run.
    limit: Option<Instant>,
    /// How long it is stopped before it is killed.
    grace: Duration,
    /// Whether this process has stopped it.
    is_stopped: bool,
    /// Whether to continue it as soon as it may run.
    is_to_resume: bool,
    has_ended: bool,
}

/// Watches until the command has ended or must end.
pub(crate) fn run() -> ExitCode {
    // A service manager sends TERM to all processes first, and lockkeeper must end its command before the watchdog
    // ends.
    if let Err(error) = SigSet::all().thread_block() {
        tracing::debug!("signals cannot be blocked: {error}");
    }
    close_inherited();
    let mut inbox = Inbox::default();
    let Some(Message::Session(session)) = inbox.next() else { return ExitCode::SUCCESS };
    let Some(Message::Run(run)) = inbox.next() else { return ExitCode::SUCCESS };
    let mut watched = Watched::of(*session, run);

    match watched.watch(&mut inbox) {
        Verdict::Late(group) => {
            watched.end(group);
            tell(
                "lockkeeper was stopped until the lease had nearly run out; the command was killed",
            );
        }
        Verdict::Orphaned(group) => {
            // Closing the session frees the lock for others, so the command must have ended.
            if watched.end(group) {
                close(watched.session);
            }
        }
        Verdict::Unreleased => close(watched.session),
    }
    ExitCode::SUCCESS
}

#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// The last received time has passed, for a command in this group.
    Late(Pid),
    /// lockkeeper was killed while the command ran in this group.
    Orphaned(Pid),
    /// lockkeeper was killed while no command ran and the lock may be held: before the start of a command, or before
    /// the release of the lock was confirmed.
    Unreleased,
}

impl Watched {
    fn of(session: Session, run: RunName) -> Self {
        let (group, limit, grace) = (None, None, Duration::ZERO);
        let (is_stopped, is_to_resume, has_ended) = (false, false, false);
        Self { session, run, group, limit, grace, is_stopped, is_to_resume, has_ended }
    }

    fn watch(&mut self, inbox: &mut Inbox) -> Verdict {
        loop {
            let running = self.group.filter(|_| !self.has_ended);
            let limited = running.zip(self.limit);
            let now = Clock.now();
            let due = limited.filter(|(_, limit)| *limit <= now);

            // Messages that arrived while this process could not run come first: they may extend the time.
            let left = limited.map_or(SLICE, |(_, limit)| limit.since(now).min(SLICE));
            // Another process may have stopped it as well when it may run again.
            let is_due_again = self.is_stopped && due.is_some();
            let wait = if is_due_again { pause::STOP_AGAIN } else { left };
            if !inbox.has_message() && !is_readable(wait) {
                match due {
                    Some((group, limit)) if limit + self.grace <= now => {
                        return Verdict::Late(group);
                    }
                    Some((group, _)) => self.stop(group),
                    None => {}
                }
                continue;
            }

            match inbox.next() {
                Some(message) => self.note(message),
                None => return running.map_or(Verdict::Unreleased, Verdict::Orphaned),
            }
        }
    }

    /// Stops the command repeatedly: any process may have continued it.
    fn stop(&mut self, group: Pid) {
        self.is_stopped = true;
        signal(group, Signal::STOP);
    }

    fn note(&mut self, message: Message) {
        match message {
            Message::Session(session) => self.session = *session,
            Message::Run(run) => self.run = run,
            Message::Group(group) => {
                // Another command, as for each item of a queue.
                (self.group, self.has_ended) = (Pid::from_raw(group), false);
            }
            Message::Until(since_start) => self.limit = Some(Instant::from_start(since_start)),
            Message::Grace(ms) => self.grace = Duration::from_millis(ms),
            Message::Resume => self.is_to_resume = true,
            Message::Ended => self.has_ended = true,
        }

        // This process may have been paused since, until the command must not run again.
        if self.is_to_resume && self.limit.is_none_or(|limit| limit > Clock.now()) {
            self.resume();
        }
    }

    /// Kills the command and the processes that it has started. Returns whether all of them have ended.
    fn end(&self, group: Pid) -> bool {
        let processes = Processes { group, run: self.run.clone() };
        processes.end_within(self.session.identity().timeout)
    }

    fn resume(&mut self) {
        if let (true, Some(group)) = (self.is_stopped, self.group) {
            signal(group, Signal::CONT);
        }
        self.is_stopped = false;
        self.is_to_resume = false;
    }
}

fn is_readable(within: Duration) -> bool {
    let mut input = [PollFd::new(stdin(), PollFlags::POLLIN)];
    // Round up: a zero timeout would be a busy loop.
    let ms = u16::try_from(within.as_millis() + 1).unwrap_or(u16::MAX);
    poll(&mut input, PollTimeout::from(ms)).is_ok_and(|ready| ready > 0)
}

fn signal(group: Pid, signal: Signal) {
    // Fails if all processes of the group have ended.
    let _ = kill_process_group(group, signal);
}

/// Closes the session, so that the next contender does not wait until it expires.
fn close(session: Session) {
    let identity = session.identity();
    let closing = async {
        let builder = session.access.builder()?.connect_timeout(identity.timeout);
        builder.close_session(&session.servers, &identity).await?;
        Ok(Exit::Ok.code())
    };
    if let Err(failure) = block_on(closing) {
        let failure: Failure = failure;
        tell(&format!(
            "lockkeeper was killed, and the lock may stay held until its session expires: \
             {failure}"
        ));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;
    use crate::commands::run::group;

    fn watched() -> Watched {
        let session = super::super::message::tests::session();
        let run = RunName::new(session.id);
        Watched::of(session, run)
    }

    /// Longer than any step takes on a busy machine.
    const LONG: Duration = Duration::from_secs(30);

    /// Symptom: the watchdog received a time in whole milliseconds, and stopped the command up to a millisecond before
    /// lockkeeper expected it; the command was never continued.
    #[test]
    fn a_time_is_heard_as_it_was_told() {
        let until = Instant::from_start(Duration::new(7, 123_456_789));
        let mut line = Vec::new();
        Message::until(until).send(&mut line).unwrap();
        let mut watched = watched();
        watched.note(serde_json::from_slice(&line).unwrap());
        assert_eq!(watched.limit, Some(until));
    }

    /// Symptom: a watchdog that was paused after it received a message to continue the command did so when the time for
    /// that had passed.
    #[test]
    fn nothing_goes_on_after_its_time() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        let mut watched = watched();
        watched.note(Message::group(group));
        watched.stop(group);
        assert!(group::stops_within(group, LONG));

        watched.note(Message::until(Clock.now()));
        watched.note(Message::Resume);
        assert!(watched.is_stopped, "it must still be continued");
        assert!(group::stops_within(group, Duration::ZERO), "it was continued");

        watched.note(Message::until(Clock.now() + LONG));
        assert!(!watched.is_stopped, "it may run");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
