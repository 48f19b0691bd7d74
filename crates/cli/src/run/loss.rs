//! When the command has to be told to end, and when it has to be dead.
//!
//! ```text
//!                        |<------ kill-after ------>|<- reserve ->|
//!   ---- lease is renewed again and again ----------+-------------+--> time
//!                        TERM                       KILL          deadline
//! ```
//!
//! Each renewal moves the deadline, and all of this with it. Once TERM is sent there is no way
//! back: the command may have begun to end. If this process is stopped, the watchdog kills the
//! command after a quarter of the reserve.

use std::time::Duration;

use lockkeeper::{Client, Clock, Guard, Instant, LossReason, State, ZnodePath};
use rustix::process::Pid;

use super::OnLost;
use super::child::Ended;
use super::watchdog::Watchdog;
use crate::exit::{Exit, Failure};
use crate::output::tell;

/// How long the command may take after TERM, if the lease has the time.
const KILL_AFTER: Duration = Duration::from_secs(2);

/// The longest time between KILL and the deadline, in which the kernel ends the command.
const LONGEST_RESERVE: Duration = Duration::from_millis(250);

/// A timer does not count the time in which the machine is suspended, so the clock is looked at
/// again and again.
const SLICE: Duration = Duration::from_secs(1);

/// The times that fit into the lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    on_lost: OnLost,
    kill_after: Duration,
    reserve: Duration,
}

/// What is to be done to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Term,
    Kill,
    Warned,
}

/// Watches over the lease.
#[derive(Debug)]
pub(super) struct Loss {
    lock: ZnodePath,
    terms: Terms,
    /// The last deadline that was seen while the lock was held.
    deadline: Option<Instant>,
    phase: Phase,
    watchdog: Watchdog,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Holding,
    /// TERM was sent; KILL comes then.
    Ending(Instant),
    Killed,
    Warned,
}

impl Terms {
    /// Makes sure that there is time to end the command between a renewal that fails and the
    /// deadline.
    pub(super) fn fit(
        client: &Client,
        on_lost: OnLost,
        wanted: Option<Duration>,
    ) -> Result<Self, Failure> {
        let lease = client.lease_length();
        let reserve = (lease / 20).min(LONGEST_RESERVE);
        // A held node is proven every third of the timeout; an answer takes its time, too.
        let largest = lease.saturating_sub(client.session_timeout() / 3 + reserve * 2);
        let kill_after = wanted.unwrap_or(KILL_AFTER.min(largest * 3 / 4));
        if kill_after > largest && on_lost == OnLost::Term {
            let ms = |duration: Duration| duration.as_millis();
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "--kill-after {}ms does not fit: a lease lasts {}ms and may be used up to a third \
                 before it is renewed; use at most {}ms, or a longer --session-timeout",
                    ms(kill_after),
                    ms(lease),
                    ms(largest),
                ),
            ));
        }
        Ok(Self { on_lost, kill_after, reserve })
    }

    /// How long before the deadline the first step is taken.
    fn lead(&self) -> Duration {
        match self.on_lost {
            OnLost::Term => self.kill_after + self.reserve,
            OnLost::Kill => self.reserve,
            OnLost::Warn => Duration::ZERO,
        }
    }
}

impl Loss {
    /// Begins with a command that runs in this group.
    pub(super) fn new(lock: &ZnodePath, terms: Terms, mut watchdog: Watchdog, group: Pid) -> Self {
        watchdog.watch(group);
        Self { lock: lock.clone(), terms, deadline: None, phase: Phase::Holding, watchdog }
    }

    /// The command has ended. Says whether the lock was lost before that.
    pub(super) fn conclude(self, ended: &Ended) -> bool {
        let by_watchdog =
            self.watchdog.allowed().is_some_and(|until| until <= Clock.now()) && ended.is_by_kill();
        self.watchdog.dismiss();
        by_watchdog || matches!(self.phase, Phase::Ending(_) | Phase::Killed)
    }

    /// Notes until when the lock is certain.
    fn note(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline.or(self.deadline);
        if let Some(deadline) = self.deadline.filter(|_| self.terms.on_lost != OnLost::Warn) {
            // Later than we do it ourselves, and early enough for the kernel to do it.
            self.watchdog.allow(before(deadline, self.terms.reserve * 3 / 4));
        }
    }

    /// Whether the command may go on after a stop.
    pub(super) fn leaves_time(&self, guard: &Guard) -> bool {
        self.terms.on_lost == OnLost::Warn || guard.remaining() > self.terms.lead()
    }

    /// Waits for the next thing that is to be done. Cancel safe.
    pub(super) async fn next(&mut self, guard: &Guard) -> Step {
        match self.phase {
            Phase::Holding => self.watch(guard).await,
            Phase::Ending(at) => {
                sleep_until(at).await;
                self.phase = Phase::Killed;
                tell(&format!("{}: the command did not end in time: KILL", self.lock));
                Step::Kill
            }
            Phase::Killed | Phase::Warned => std::future::pending().await,
        }
    }

    async fn watch(&mut self, guard: &Guard) -> Step {
        loop {
            if let State::Lost(reason) = guard.state() {
                return self.lost(reason);
            }
            self.note(guard.deadline());
            let left = guard.remaining();
            let spare = left.saturating_sub(self.terms.lead());
            if spare.is_zero() {
                return self.running_out(left);
            }
            tokio::select! {
                _ = guard.lost() => {}
                () = tokio::time::sleep(spare.min(SLICE)) => {}
            }
        }
    }

    fn lost(&mut self, reason: LossReason) -> Step {
        self.act(&format!("{} is lost: {reason}", self.lock))
    }

    fn running_out(&mut self, left: Duration) -> Step {
        let left = left.as_secs_f64();
        self.act(&format!("{}: no server has renewed the lease, {left:.1} s are left", self.lock))
    }

    fn act(&mut self, what: &str) -> Step {
        let now = Clock.now();
        // After the deadline somebody else may have the lock, and there is no time for manners.
        let latest = self.deadline.map_or(now, |deadline| before(deadline, self.terms.reserve));
        let kill_at = latest.min(now + self.terms.kill_after);
        match self.terms.on_lost {
            OnLost::Warn => {
                tell(&format!("{what}; the command goes on (--on-lost warn)"));
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

/// The instant so long before another.
fn before(deadline: Instant, lead: Duration) -> Instant {
    let start = Instant::from_start(Duration::ZERO);
    Instant::from_start(deadline.since(start).saturating_sub(lead))
}

async fn sleep_until(at: Instant) {
    loop {
        let left = at.since(Clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}
