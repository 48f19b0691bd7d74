//! The watchdog's own process.

use std::process::ExitCode;
use std::time::Duration;

use lockkeeper::{Clock, Instant};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::stdio::stdin;

use super::message::{Inbox, Message, Session};
use crate::exit::{Exit, Failure};
use crate::local::daemon::close_inherited;
use crate::output::tell;
use crate::run::group;

/// A timer does not count the time in which the machine is suspended, so the clock is looked at
/// again and again.
const SLICE: Duration = Duration::from_secs(1);

/// Watches until the command has ended, or must.
pub(crate) fn run() -> ExitCode {
    // Whoever ends a whole service begins with TERM, and lockkeeper has a command to end first.
    if let Err(error) = SigSet::all().thread_block() {
        tracing::debug!("signals cannot be blocked: {error}");
    }
    close_inherited();
    let mut inbox = Inbox::default();
    let Some((session, group)) = introduction(&mut inbox) else { return ExitCode::SUCCESS };

    match watch(&mut inbox) {
        Verdict::Late => {
            kill(group);
            tell("lockkeeper was stopped until the lease had nearly run out: killed the command");
        }
        Verdict::Orphaned => {
            kill(group);
            // Others get the lock with the end of the session, so the command must be gone.
            if group::ends_within(group, session.identity().timeout) {
                close(session);
            }
        }
        Verdict::Unreleased => close(session),
    }
    ExitCode::SUCCESS
}

/// What is watched; `None` if lockkeeper has gone before it had a command.
fn introduction(inbox: &mut Inbox) -> Option<(Session, Pid)> {
    let Message::Session(session) = inbox.next()? else { return None };
    let Message::Group(group) = inbox.next()? else { return None };
    Some((*session, Pid::from_raw(group)?))
}

enum Verdict {
    /// The last time that was told has come.
    Late,
    /// lockkeeper was killed while the command ran.
    Orphaned,
    /// lockkeeper was killed after the command had ended, and before it was certain that the lock
    /// is released.
    Unreleased,
}

fn watch(inbox: &mut Inbox) -> Verdict {
    let mut limit = None;
    let mut has_ended = false;
    loop {
        let left = limit.filter(|_| !has_ended).map(|limit: Instant| limit.since(Clock.now()));
        let wait = left.unwrap_or(SLICE).min(SLICE);
        // What was told while this process could not run comes first: it may be more time.
        if !inbox.has_message() && !is_readable(wait) {
            match left {
                Some(Duration::ZERO) => return Verdict::Late,
                _ => continue,
            }
        }

        match inbox.next() {
            None if has_ended => return Verdict::Unreleased,
            None => return Verdict::Orphaned,
            Some(Message::Ended) => has_ended = true,
            Some(Message::Until(ms)) => {
                limit = Some(Instant::from_start(Duration::from_millis(ms)))
            }
            Some(Message::Session(_) | Message::Group(_)) => {}
        }
    }
}

fn is_readable(within: Duration) -> bool {
    let mut input = [PollFd::new(stdin(), PollFlags::POLLIN)];
    // Rounded up: a time of nothing would be a loop without a pause.
    let ms = u16::try_from(within.as_millis() + 1).unwrap_or(u16::MAX);
    poll(&mut input, PollTimeout::from(ms)).is_ok_and(|ready| ready > 0)
}

fn kill(group: Pid) {
    // Fails if all of it has ended.
    let _ = kill_process_group(group, Signal::KILL);
}

/// Ends the session, so that the next one in line need not wait until it expires.
fn close(session: Session) {
    let identity = session.identity();
    let closing = async {
        let builder = session.access.builder()?.connect_timeout(identity.timeout);
        builder.close_session(&session.servers, &identity).await?;
        Ok(Exit::Ok.code())
    };
    if let Err(failure) = crate::block_on(closing) {
        let failure: Failure = failure;
        tell(&format!(
            "lockkeeper was killed, and the lock may not be free before its session expires: \
             {failure}"
        ));
    }
}
