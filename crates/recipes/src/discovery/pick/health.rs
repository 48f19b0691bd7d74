//! Which instances are excluded from calls because their calls fail, and for how long.
//!
//! ```text
//!            failures in a row, and the cap allows it
//!   healthy ------------------------------------------> ejected
//!      ^                                                 |   ^
//!      | the trial is answered          the pause is over|   | the trial fails:
//!      |                                                 v   | a longer pause
//!      +-------------------- on trial <------------------+   |
//!                               |                            |
//!                               +----------------------------+
//! ```
//!
//! An instance on trial gets one call, which decides. If it has not ended after another pause, there is a second
//! one, and so on: a call may last for hours, and the first that ends decides.

use std::time::Duration;

use lockkeeper_client::Instant;

/// When an instance is excluded from calls, and for how long.
///
/// This applies to one client: neither other clients nor the servers learn of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it takes effect when passed to a picker or a directory"]
pub struct Ejection {
    failures: u32,
    first_pause: Duration,
    longest_pause: Duration,
    percent: u8,
}

impl Default for Ejection {
    /// After 5 failures in a row, for 1 s, then 2 s, up to 60 s; at most half of the instances at once.
    fn default() -> Self {
        let (first_pause, longest_pause) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { failures: 5, first_pause, longest_pause, percent: 50 }
    }
}

impl Ejection {
    /// No instance is ever ejected.
    pub fn never() -> Self {
        Self { percent: 0, ..Self::default() }
    }

    lockkeeper_client::setters! {
        /// Sets how many calls in a row must fail, at least 1 (0 counts as 1). Default: 5.
        pub fn failures(self, in_a_row: u32) => self.failures = in_a_row.max(1);

        /// Sets how long the first ejection lasts, and the longest. Each one lasts twice as long as the one before,
        /// until the instance was healthy for as long as its last pause. Default: 1 s and 60 s.
        pub fn pauses(self, first: Duration, longest: Duration) =>
            (self.first_pause, self.longest_pause) = (first, longest.max(first));

        /// Sets the percentage of instances that may be ejected at once, rounded down to whole instances; more than
        /// 100 counts as 100. Failing instances above it still get calls. Default: 50.
        ///
        /// If many fail at once, the cause is more often the client, its network or its requests. Instances on
        /// trial count as ejected; those of weight 0 are not counted at all.
        pub fn at_most_percent(self, percent: u8) => self.percent = percent.min(100);
    }

    /// How many of this number of instances may be ejected.
    pub(crate) fn cap(&self, instances: usize) -> usize {
        instances * usize::from(self.percent) / 100
    }

    /// How long the next ejection lasts, after this number of earlier ones.
    fn pause(&self, earlier: u32) -> Duration {
        let factor = 1_u32.checked_shl(earlier).unwrap_or(u32::MAX);
        self.first_pause.saturating_mul(factor).min(self.longest_pause)
    }
}

/// The state of an instance in a [`Picker`](crate::Picker).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstanceHealth {
    /// It gets calls.
    Healthy,
    /// It gets no calls until then, unless it is the only instance.
    Ejected {
        /// The end of the pause, by the picker's clock.
        until: Instant,
    },
    /// Its pause is over. It gets one call, which decides; and another one after each further pause in which none
    /// has ended.
    OnTrial,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallVerdict {
    Good,
    Failed,
    /// The caller did not wait for the end.
    GivenUp,
}

/// The period between ejections in which a call began. Results from earlier periods are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Period(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthState {
    Healthy,
    Ejected {
        until: Instant,
    },
    /// It waits for its trial call.
    Due,
    /// The trial call is in flight. If it has not ended by then, another one is due.
    OnTrial {
        until: Instant,
    },
}

/// The record of one instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HealthRecord {
    state: HealthState,
    /// Failures in a row.
    failures: u32,
    /// Ejections since it was last healthy for long enough.
    ejections: u32,
    last_pause: Duration,
    healthy_since: Instant,
    period: Period,
}

impl HealthRecord {
    pub(crate) fn new() -> Self {
        Self {
            state: HealthState::Healthy,
            failures: 0,
            ejections: 0,
            last_pause: Duration::ZERO,
            healthy_since: Instant::default(),
            period: Period::default(),
        }
    }

    pub(crate) fn health(&self) -> InstanceHealth {
        match self.state {
            HealthState::Healthy => InstanceHealth::Healthy,
            HealthState::Ejected { until } => InstanceHealth::Ejected { until },
            HealthState::Due | HealthState::OnTrial { .. } => InstanceHealth::OnTrial,
        }
    }

    /// Whether it may be picked while others may.
    pub(crate) fn takes_calls(&self) -> bool {
        matches!(self.state, HealthState::Healthy | HealthState::Due)
    }

    /// Whether it waits for a trial call.
    pub(crate) fn is_due(&self) -> bool {
        self.state == HealthState::Due
    }

    /// Whether it counts against the cap.
    pub(crate) fn is_out(&self) -> bool {
        self.state != HealthState::Healthy
    }

    pub(crate) fn pause_ends(&self) -> Option<Instant> {
        match self.state {
            HealthState::Ejected { until } => Some(until),
            _ => None,
        }
    }

    /// When the state changes with time.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        match self.state {
            HealthState::Ejected { until } | HealthState::OnTrial { until } => Some(until),
            HealthState::Healthy | HealthState::Due => None,
        }
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn period(&self) -> Period {
        self.period
    }

    /// Ends its pause, or the time for its trial, if that is over. Returns whether the state changed.
    pub(crate) fn look_at_clock(&mut self, now: Instant) -> bool {
        let is_over = self.next_look().is_some_and(|until| until <= now);
        if is_over {
            self.state = HealthState::Due;
        }
        is_over
    }

    /// Records a pick. Returns whether the set of instances that may be picked changes.
    pub(crate) fn picked(&mut self, now: Instant) -> bool {
        let is_trial = self.state == HealthState::Due;
        if is_trial {
            self.state = HealthState::OnTrial { until: now + self.last_pause };
        }
        is_trial
    }

    /// Makes it healthy, for a reason other than its own calls.
    pub(crate) fn pardon(&mut self, now: Instant) {
        self.become_healthy(now);
    }

    /// Records the end of a call of this period. Returns whether the set of instances that may be picked changes.
    pub(crate) fn ended(
        &mut self,
        verdict: CallVerdict,
        period: Period,
        ejection: &Ejection,
        has_room: bool,
        now: Instant,
    ) -> bool {
        if period != self.period {
            return false;
        }

        match (verdict, self.state) {
            (CallVerdict::Good, HealthState::Healthy) => {
                self.failures = 0;
                if now.since(self.healthy_since) >= self.last_pause {
                    self.ejections = 0;
                }
                false
            }
            (CallVerdict::Good, _) => {
                self.become_healthy(now);
                true
            }
            (CallVerdict::Failed, HealthState::Healthy) => {
                self.failures = self.failures.saturating_add(1);
                let is_due = has_room && self.failures >= ejection.failures;
                if is_due {
                    self.eject(ejection, now);
                }
                is_due
            }
            (CallVerdict::Failed, HealthState::Due | HealthState::OnTrial { .. }) => {
                self.eject(ejection, now);
                true
            }
            (CallVerdict::GivenUp, HealthState::OnTrial { .. }) => {
                self.state = HealthState::Due;
                true
            }
            // It was called because no other was available, and its pause continues.
            (CallVerdict::Failed, HealthState::Ejected { .. }) | (CallVerdict::GivenUp, _) => false,
        }
    }

    fn eject(&mut self, ejection: &Ejection, now: Instant) {
        self.last_pause = ejection.pause(self.ejections);
        self.state = HealthState::Ejected { until: now + self.last_pause };
        self.ejections = self.ejections.saturating_add(1);
        self.period = Period(self.period.0.wrapping_add(1));
    }

    fn become_healthy(&mut self, now: Instant) {
        (self.state, self.failures, self.healthy_since) = (HealthState::Healthy, 0, now);
    }
}

#[cfg(test)]
impl HealthRecord {
    /// The state after so many failures and ejections that every counter is at its maximum.
    pub(crate) fn at_its_limits(&mut self) {
        (self.failures, self.ejections, self.period) = (u32::MAX, u32::MAX, Period(u32::MAX));
    }
}
