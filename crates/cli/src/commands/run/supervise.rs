//! Supervises the command from its start to its end.

use std::pin::pin;
use std::time::Duration;

use clap::ValueEnum;
use lockkeeper::{Clock, Instant};
use rustix::process::Signal;

use super::child::{Change, Child, Ended, Step};
use super::events::{Event, Events};
use super::lock::Held;
use super::loss::{Loss, sleep_until};
use crate::shared::exit::Failure;
use crate::shared::output::tell;
use crate::shared::signals::Signals;

/// What to do with the command when another program requests the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnRevoke {
    /// Send TERM; the lock is released after the command ends
    Term,
    /// Ignore the request
    Ignore,
}

/// The reasons to end a command, other than the loss of its lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) on_revoke: OnRevoke,
    /// The maximum running time.
    pub(super) max_run: Option<Duration>,
    /// How long the command may take to end after TERM.
    pub(super) kill_after: Duration,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Supervised {
    pub(super) ended: Ended,
    /// Whether it exceeded the maximum running time.
    pub(super) overran: bool,
    pub(super) end_request: EndRequest,
}

/// The source of a request to end the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndRequest {
    No,
    /// This process received a signal.
    BySignal(Signal),
    /// Another program requested the lock.
    ByRequest,
}

/// A command that runs under its lock, with everything needed to supervise it.
#[derive(Debug)]
pub(super) struct Supervision<'a, 'l> {
    child: &'a mut Child,
    loss: &'a mut Loss<'l>,
    held: &'a Held,
    events: &'a Events,
    end_request: EndRequest,
}

impl<'a, 'l> Supervision<'a, 'l> {
    pub(super) fn new(
        child: &'a mut Child,
        loss: &'a mut Loss<'l>,
        held: &'a Held,
        events: &'a Events,
    ) -> Self {
        Self { child, loss, held, events, end_request: EndRequest::No }
    }

    /// Forwards signals and watches the lease until the child has ended.
    pub(super) async fn supervise(
        mut self,
        rules: Rules,
        signals: &mut Signals,
    ) -> Result<Supervised, Failure> {
        let held = self.held;
        let mut limit = RunLimit::new(rules);
        let mut request = pin!(held.revoke_requested());
        let mut listens = rules.on_revoke == OnRevoke::Term;

        loop {
            tokio::select! {
                // Check the child first: a process that has ended must not be signalled.
                biased;
                signal = signals.next() => {
                    if let Some(ended) = self.handle_signal(signal)? {
                        let (overran, end_request) = (limit.is_over(), self.end_request);
                        return Ok(Supervised { ended, overran, end_request });
                    }
                }
                step = self.loss.next(held, self.child) => self.child.take(step),
                () = limit.due() => {
                    let step = limit.step(self.loss, held, self.events);
                    self.child.take(step);
                }
                requested = &mut request, if listens => {
                    listens = false;
                    // The loss of the lock is handled above.
                    if let Ok(path) = requested {
                        let by = self.events.revoked(held, path);
                        tell(&format!("{}{by}; ending the command", held.request_of(path)));
                        self.give_way();
                    }
                }
            }
        }
    }

    /// Forwards a signal to the child, or reads the state of child processes. Returns how the child ended, if it did.
    fn handle_signal(&mut self, signal: Signal) -> Result<Option<Ended>, Failure> {
        match signal {
            Signal::CHILD => {
                let ended = self.follow()?;
                if ended.is_none()
                    && let Some(step) = self.loss.keep_watchdog()
                {
                    self.child.take(step);
                }
                return Ok(ended);
            }
            // The lease was running while everything was stopped. If the child's time has run out, the loss is
            // noticed next, and the child is never continued.
            Signal::CONT if self.loss.lets_run(self.held) => self.child.resume(),
            Signal::CONT => self.child.continued(),
            other => {
                if asks_for_the_end(other) {
                    self.end_request = EndRequest::BySignal(other);
                }
                self.child.signal(other);
                if self.loss.is_paused() {
                    let lock = self.held.name();
                    tell(&format!("{lock}: the signal will be delivered when the command resumes"));
                }
            }
        }
        Ok(None)
    }

    /// Ends the child because another program requests the lock.
    fn give_way(&mut self) {
        if self.end_request == EndRequest::No {
            self.end_request = EndRequest::ByRequest;
        }
        match self.loss.is_paused() {
            // A paused command receives it when it resumes.
            true => self.child.signal(Signal::TERM),
            // Other processes that it has started may continue, as after any other end of the command.
            false => self.child.ask_to_end(),
        }
    }

    /// Handles all state changes of the child since the last call. Returns how it ended, if it did.
    fn follow(&mut self) -> Result<Option<Ended>, Failure> {
        let (child, loss) = (&mut *self.child, &*self.loss);
        while let Some(change) = child.poll()? {
            match change {
                Change::Ended(ended) => return Ok(Some(ended)),
                // Stopped by this process, now or just before.
                Change::Stopped(_) if loss.is_paused() => {}
                // Stopped by the watchdog. It resumes when the lock is held again.
                Change::Stopped(Some(Signal::STOP)) if loss.is_late() => {}
                Change::Stopped(by) => child.stopped(by),
                Change::Continued if loss.is_paused() => child.take(Step::Stop),
                Change::Continued => child.continued(),
            }
        }
        Ok(None)
    }
}

/// Whether a signal requests termination.
pub(super) fn asks_for_the_end(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal)
}

/// The time limit of `--max-run`. It starts with the command. Time during which the machine is suspended or the command
/// is stopped counts.
#[derive(Debug)]
struct RunLimit {
    max_run: Duration,
    kill_after: Duration,
    next: Next,
}

/// The next action on a command that exceeds its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Never,
    Term(Instant),
    Kill(Instant),
    Killed,
}

impl RunLimit {
    fn new(rules: Rules) -> Self {
        let next = rules.max_run.map_or(Next::Never, |limit| Next::Term(Clock.now() + limit));
        let max_run = rules.max_run.unwrap_or_default();
        Self { max_run, kill_after: rules.kill_after, next }
    }

    fn is_over(&self) -> bool {
        matches!(self.next, Next::Kill(_) | Next::Killed)
    }

    /// Waits until the next action is due. Cancel safe.
    async fn due(&self) {
        match self.next {
            Next::Term(at) | Next::Kill(at) => sleep_until(at).await,
            Next::Never | Next::Killed => std::future::pending().await,
        }
    }

    fn step(&mut self, loss: &Loss<'_>, held: &Held, events: &Events) -> Step {
        let lock = held.name();
        if self.is_over() {
            tell(&format!("{lock}: the command did not end in time; sending KILL"));
            self.next = Next::Killed;
            return Step::Kill;
        }

        events.write(Event::Overran { max_run_ms: self.max_run.as_millis() });
        let limit = humantime::format_duration(self.max_run);
        // TERM would require the paused command to run.
        let (step, next, what) = match loss.is_paused() {
            true => (Step::Kill, Next::Killed, "killing"),
            false => (Step::Term, Next::Kill(Clock.now() + self.kill_after), "ending"),
        };
        tell(&format!("{lock}: the command has run for {limit} (--max-run); {what} it"));
        self.next = next;
        step
    }
}
