//! Decides when the command must be asked to end, and when it must be dead.
//!
//! ```text
//!                        |<------ kill-after ------>|<- reserve ->|
//!   ---- lease is renewed again and again ----------+-------------+--> time
//!                        TERM                       KILL          deadline
//! ```
//!
//! Each renewal moves the deadline and all of these times. TERM is final: the command may already have begun to end. If
//! this process is stopped, the watchdog kills the command after a quarter of the reserve.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;
use lockkeeper::{Clock, HolderState, Instant, LossReason, Timing};

use super::child::{Child, Ended, Environment, Step};
use super::events::{Event, Events};
use super::lock::Held;
use super::pause;
use super::watchdog::Watchdog;
use crate::shared::exit::{Exit, Failure};
use crate::shared::output::tell;

/// How long the command may take to end after TERM: the maximum, and the maximum as a share of the session timeout. A
/// longer time shortens the outage that the command survives.
const KILL_AFTER: Duration = Duration::from_secs(2);
const KILL_AFTER_SHARE: f64 = 2.0 / 15.0;

/// An outage that a command should survive: an ensemble elects a leader in less time.
const SHORT_OUTAGE: Duration = Duration::from_secs(2);

/// Timers do not count the time during which the machine is suspended, so the clock is checked at this interval.
const SLICE: Duration = Duration::from_secs(1);

/// What to do with the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// Send TERM in time, then KILL
    Term,
    /// Send KILL in time
    Kill,
    /// Only print a warning
    Warn,
}

/// What to do with the command when no server renews the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnOutage {
    /// End it, as --on-lost says
    End,
    /// Pause it, and resume it if nothing was lost
    Pause,
}

/// How long an outage may pause the command; `None` if an outage ends the command.
pub(super) fn grace(
    on_outage: OnOutage,
    on_lost: OnLost,
    grace: Option<Duration>,
) -> Result<Option<Duration>, Failure> {
    let refused = |message: &str| Err(Failure::new(Exit::Usage, message));
    match (on_outage, on_lost) {
        (OnOutage::End, _) if grace.is_some() => {
            refused("--grace requires --on-outage pause: otherwise, an outage ends the command")
        }
        (OnOutage::End, _) => Ok(None),
        (OnOutage::Pause, OnLost::Warn) => refused(
            "--on-outage pause cannot be used with --on-lost warn: a paused command would resume after \
             the loss of the lock",
        ),
        (OnOutage::Pause, _) if grace == Some(Duration::ZERO) => refused(
            "--grace 0 leaves no time for a pause: omit --on-outage pause to have an outage end the \
             command",
        ),
        (OnOutage::Pause, _) => Ok(Some(grace.unwrap_or(pause::GRACE))),
    }
}

/// The times that fit into the lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTimes {
    on_lost: OnLost,
    kill_after: Duration,
    reserve: Duration,
    /// How long an outage may pause the command; `None` if an outage ends the command.
    grace: Option<Duration>,
    timing: Timing,
}

/// Watches the lease.
#[derive(Debug)]
pub(super) struct Loss<'a> {
    /// The name of the lock, or of the locks, in messages.
    lock: String,
    times: LeaseTimes,
    /// The last deadline that was seen while the lock was held.
    deadline: Option<Instant>,
    phase: Phase,
    /// The exit code that describes why the command is ended.
    exit: Exit,
    watchdog: &'a mut Watchdog,
    events: &'a Events,
    /// When the command was last paused.
    paused: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Holding,
    /// TERM was sent; KILL follows at this time.
    Ending(Instant),
    /// STOP was sent; KILL follows at this time, unless the lock is held again before.
    Paused(Instant),
    Killed,
    Warned,
}

impl LeaseTimes {
    /// Checks that there is time to end the command between a failed renewal and the deadline.
    pub(super) fn fit(
        timing: Timing,
        on_lost: OnLost,
        wanted: Option<Duration>,
        grace: Option<Duration>,
    ) -> Result<Self, Failure> {
        let reserve = pause::reserve(timing);
        // Less than what is always left with healthy servers, which therefore never end a command.
        let largest = timing.always_left().saturating_sub(reserve * 2);
        let usual = KILL_AFTER.min(timing.timeout().mul_f64(KILL_AFTER_SHARE)).min(largest);

        let kill_after = wanted.unwrap_or(usual);
        if kill_after > largest && on_lost == OnLost::Term && grace.is_none() {
            let ms = |duration: Duration| duration.as_millis();
            let message = format!(
                "--kill-after {}ms is too long for this session timeout: on slow servers, a lease of {}ms has only \
                 {}ms left when it is renewed; use at most {}ms, or a longer --session-timeout",
                ms(kill_after),
                ms(timing.lease()),
                ms(timing.always_left()),
                ms(largest),
            );
            return Err(Failure::new(Exit::Usage, message));
        }

        Ok(Self { on_lost, kill_after, reserve, grace, timing })
    }

    /// The longest outage of the servers that does not end the command.
    fn outage(&self, timing: Timing) -> Duration {
        timing.outage().saturating_sub(self.lead())
    }

    /// Prints a warning if even a short outage would end the command.
    pub(super) fn warn_of_short_outages(&self, timing: Timing) {
        let outage = self.outage(timing);
        let may_end = self.on_lost != OnLost::Warn && self.grace.is_none();
        if may_end && outage < SHORT_OUTAGE {
            tell(&format!(
                "a server outage of {:.1} s would end the command; to survive a longer one, use a longer \
                 --session-timeout or a shorter --kill-after",
                outage.as_secs_f64(),
            ));
        }
    }

    /// Whether there is enough time for the command to run.
    pub(super) fn leaves_time(&self, held: &Held) -> bool {
        self.on_lost == OnLost::Warn || held.remaining() > self.lead()
    }

    /// How long the command may take to end after TERM.
    pub(super) fn kill_after(&self) -> Duration {
        self.kill_after
    }

    /// How long before the deadline the first step is due.
    fn lead(&self) -> Duration {
        match (self.on_lost, self.grace) {
            (OnLost::Term, None) => self.kill_after + self.reserve,
            (OnLost::Kill, _) | (_, Some(_)) => self.reserve,
            (OnLost::Warn, None) => Duration::ZERO,
        }
    }
}

impl<'a> Loss<'a> {
    /// Must be created before the command starts, so that the watchdog knows how long the command may run.
    pub(super) fn new(
        times: LeaseTimes,
        watchdog: &'a mut Watchdog,
        held: &Held,
        events: &'a Events,
    ) -> Self {
        let (lock, phase, exit) = (held.name(), Phase::Holding, Exit::Lost);
        let (deadline, paused) = (None, Clock.now());
        let mut loss = Self { lock, times, deadline, phase, exit, watchdog, events, paused };
        if let Some(grace) = times.grace {
            loss.watchdog.pauses_for(grace + pause::WATCHDOG_LATER);
            // The state shows a loss.
            let _ = held.allow_jeopardy();
        }
        loss.note(held.deadline());
        loss
    }

    /// Starts the command.
    pub(super) fn spawn(
        &mut self,
        command: &[OsString],
        environment: Environment<'_>,
    ) -> Result<Child, Failure> {
        // The watchdog may have been killed while this process waited for the lock.
        self.watchdog.keep()?;
        let child = Child::spawn(command, environment, self.watchdog)?;
        self.watchdog.watches(child.group());
        Ok(child)
    }

    /// Ends the watch after the command has ended. Returns the exit code, unless the command ended by itself.
    pub(super) fn conclude(&mut self, ended: &Ended) -> Option<Exit> {
        let by_watchdog =
            self.watchdog.kills_at().is_some_and(|at| at <= Clock.now()) && ended.is_by_kill();
        self.watchdog.ended();
        let by_us = matches!(self.phase, Phase::Ending(_) | Phase::Killed);
        if by_watchdog && !by_us {
            let reason = "lockkeeper was stopped until the lease had nearly run out";
            self.events.write(Event::Lost { reason });
        }
        (by_watchdog || by_us).then_some(self.exit)
    }

    /// Called when a child process has ended. If it was the watchdog, it must be replaced: without it, the command
    /// could outlive the lease while lockkeeper is stopped.
    pub(super) fn keep_watchdog(&mut self) -> Option<Step> {
        let failure = self.watchdog.keep().err()?;
        if !matches!(self.phase, Phase::Holding | Phase::Paused(_)) {
            return None;
        }
        self.exit = Exit::System;
        Some(self.act(&format!("{}: {failure}", self.lock)))
    }

    /// Records until when the lock is certain. Returns whether the watchdog learns it in time, and so has not stopped
    /// the command.
    fn note(&mut self, deadline: Option<Instant>) -> bool {
        self.deadline = deadline.or(self.deadline);
        match self.deadline.filter(|_| self.times.on_lost != OnLost::Warn) {
            // Later than this process would act, and early enough for the kernel to do it.
            Some(deadline) => self.watchdog.allow(before(deadline, self.times.reserve * 3 / 4)),
            None => true,
        }
    }

    /// Whether the command may continue after a stop.
    pub(super) fn lets_run(&self, held: &Held) -> bool {
        !self.is_paused() && self.times.leaves_time(held)
    }

    /// Whether the command is paused because of an outage.
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused(_))
    }

    /// Whether the watchdog may have stopped the command while this process could not run.
    pub(super) fn is_late(&self) -> bool {
        let is_over = || self.watchdog.stops_at().is_some_and(|at| at <= Clock.now());
        self.times.grace.is_some() && is_over()
    }

    /// Waits for the next step. Cancel safe.
    pub(super) async fn next(&mut self, held: &Held, child: &Child) -> Step {
        match self.phase {
            Phase::Holding => self.watch(held, child).await,
            Phase::Paused(until) => self.ride_out(held, child, until).await,
            Phase::Ending(at) => {
                sleep_until(at).await;
                self.phase = Phase::Killed;
                tell(&format!("{}: the command did not end in time; sending KILL", self.lock));
                Step::Kill
            }
            Phase::Killed | Phase::Warned => std::future::pending().await,
        }
    }

    async fn watch(&mut self, held: &Held, child: &Child) -> Step {
        loop {
            match held.state() {
                HolderState::Lost(reason) => return self.lost(held, reason),
                HolderState::Jeopardy => return self.pause(child),
                _ => {}
            }

            // The watchdog may have stopped the command. That is undone when the lock is known to be held.
            if !self.note(held.deadline()) && self.times.grace.is_some() {
                return self.pause(child);
            }

            let left = held.remaining();
            let spare = left.saturating_sub(self.times.lead());
            if spare.is_zero() {
                return match self.times.grace {
                    Some(_) => self.pause(child),
                    None => self.running_out(left),
                };
            }
            tokio::select! {
                _ = held.jeopardy() => {}
                // Soon after each renewal, so that the watchdog learns of it.
                () = tokio::time::sleep(spare.min(SLICE).min(self.times.timing.renewal_interval())) => {}
            }
        }
    }

    /// Pauses the command, at the latest time that is certain to be before the deadline.
    fn pause(&mut self, child: &Child) -> Step {
        let grace = self.times.grace.unwrap_or_default();
        let stands_still = pause::stop(child.group(), self.times.timing);
        let (lock, most) = (&self.lock, humantime::format_duration(grace));
        tell(&format!(
            "{lock}: no server has renewed the lease; the command is paused, for {most} at most"
        ));
        if !stands_still {
            tell("a process of the command is blocked in the kernel, and stops afterwards");
        }
        self.events.write(Event::Paused);
        self.paused = Clock.now();
        self.phase = Phase::Paused(self.paused + grace);
        Step::Stop
    }

    /// Waits until the lock is held again, or until the command must not resume.
    async fn ride_out(&mut self, held: &Held, child: &Child, until: Instant) -> Step {
        if let HolderState::Lost(reason) = held.state() {
            return self.end_paused(&format!("{} is lost: {reason}", held.lost_name()));
        }
        if until <= Clock.now() {
            return self.end_paused(&format!("{}: no server was reachable in time", self.lock));
        }

        tokio::select! {
            biased;
            again = held.held_again() => {
                if again.is_ok() && self.times.leaves_time(held) {
                    return self.resume(held, child);
                }
                tokio::time::sleep(pause::STOP_AGAIN).await;
            }
            () = tokio::time::sleep(pause::STOP_AGAIN) => {}
        }
        Step::Stop
    }

    fn resume(&mut self, held: &Held, child: &Child) -> Step {
        tell(&format!("{} was held all the time; the command resumes", self.lock));
        self.note(held.deadline());
        // This process may have been paused since the last check, or the watchdog cannot be reached.
        if self.is_late() || !self.times.leaves_time(held) {
            return Step::Stop;
        }
        let paused = Clock.now().since(self.paused);
        self.events.write(Event::Resumed { paused_ms: paused.as_millis() });
        self.phase = Phase::Holding;
        if !child.is_stopped() {
            self.watchdog.resume();
        }
        Step::Resume
    }

    /// Kills the paused command: any other signal would require it to run.
    fn end_paused(&mut self, what: &str) -> Step {
        self.events.write(Event::Lost { reason: what });
        tell(&format!("{what}; killing the command"));
        self.phase = Phase::Killed;
        Step::Kill
    }

    fn lost(&mut self, held: &Held, reason: LossReason) -> Step {
        self.act(&format!("{} is lost: {reason}", held.lost_name()))
    }

    fn running_out(&mut self, left: Duration) -> Step {
        let left = left.as_secs_f64();
        self.act(&format!("{}: no server has renewed the lease; {left:.1} s are left", self.lock))
    }

    fn act(&mut self, what: &str) -> Step {
        if self.is_paused() {
            return self.end_paused(what);
        }

        self.events.write(Event::Lost { reason: what });
        let now = Clock.now();
        // After the deadline another program may have the lock, so TERM is too late.
        let latest = self.deadline.map_or(now, |deadline| before(deadline, self.times.reserve));
        let kill_at = latest.min(now + self.times.kill_after);

        match self.times.on_lost {
            OnLost::Warn => {
                tell(&format!("{what}; the command continues (--on-lost warn)"));
                self.phase = Phase::Warned;
                Step::Warned
            }
            OnLost::Term if kill_at > now => {
                tell(&format!("{what}; ending the command"));
                self.phase = Phase::Ending(kill_at);
                Step::Term
            }
            OnLost::Term | OnLost::Kill => {
                tell(&format!("{what}; killing the command"));
                self.phase = Phase::Killed;
                Step::Kill
            }
        }
    }
}

/// The instant `lead` before another.
fn before(deadline: Instant, lead: Duration) -> Instant {
    let start = Instant::from_start(Duration::ZERO);
    Instant::from_start(deadline.since(start).saturating_sub(lead))
}

pub(super) async fn sleep_until(at: Instant) {
    loop {
        let left = at.since(Clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper::LeaseMode;

    use super::*;

    fn timing(seconds: u64) -> Timing {
        let (timeout, tick) = (Duration::from_secs(seconds), Duration::from_secs(2));
        Timing::new(LeaseMode::Quorum, timeout, tick)
    }

    fn times(seconds: u64) -> LeaseTimes {
        LeaseTimes::fit(timing(seconds), OnLost::Term, None, None).expect("the default fits")
    }

    /// The table of `docs/decisions/0013-timing.md`, in tenths of a second.
    #[test]
    fn the_outages_that_a_command_survives() {
        for (timeout, tenths) in [(4, 8), (6, 18), (10, 38), (15, 63), (20, 95), (30, 159)] {
            let outage = times(timeout).outage(timing(timeout));
            assert_eq!(outage.as_millis() / 100, tenths, "{timeout} s");
        }
    }

    /// F1: a command was ended although its servers were healthy.
    #[test]
    fn no_command_is_ended_while_servers_answer_in_time() {
        for timeout in 4..=40 {
            let left = timing(timeout).always_left();
            assert!(times(timeout).lead() < left, "{timeout} s: {left:?} is always left");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let wanted = Some(Duration::from_secs(10));
        let failure =
            LeaseTimes::fit(timing(15), OnLost::Term, wanted, None).expect_err("it is too long");
        let message = failure.to_string();
        let most = message.split("use at most ").nth(1).and_then(|rest| rest.split("ms").next());
        let most = Duration::from_millis(most.expect(&message).parse().expect(&message));
        assert!(LeaseTimes::fit(timing(15), OnLost::Term, Some(most), None).is_ok(), "{most:?}");
        let more = most + Duration::from_millis(1);
        assert!(LeaseTimes::fit(timing(15), OnLost::Term, Some(more), None).is_err());
        assert!(LeaseTimes::fit(timing(15), OnLost::Kill, wanted, None).is_ok(), "it is not used");
    }

    #[test]
    fn what_each_pair_means() {
        let of = |on_outage, on_lost, time| grace(on_outage, on_lost, time).ok();
        let minute = Some(Duration::from_secs(60));
        for on_lost in [OnLost::Term, OnLost::Kill, OnLost::Warn] {
            assert_eq!(of(OnOutage::End, on_lost, None), Some(None));
            assert_eq!(of(OnOutage::End, on_lost, minute), None, "the command is never paused");
        }
        for on_lost in [OnLost::Term, OnLost::Kill] {
            assert_eq!(of(OnOutage::Pause, on_lost, None), Some(Some(pause::GRACE)));
            assert_eq!(of(OnOutage::Pause, on_lost, minute), Some(minute));
        }
        assert_eq!(of(OnOutage::Pause, OnLost::Warn, None), None);
        assert_eq!(of(OnOutage::Pause, OnLost::Term, Some(Duration::ZERO)), None, "that is `end`");
    }
}
