//! The load of an instance, as this client sees it.

use std::time::Duration;

use lockkeeper_client::Instant;

/// The time constant of the latency average: a latency this old counts e times less than a current one. It is also
/// this many picks, if these take longer: with few calls, no newer values exist.
const TIME_CONSTANT: Duration = Duration::from_secs(1);
const TIME_CONSTANT_PICKS: f64 = 16.0;

/// The time of an event: by the clock, and by the number of earlier picks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) time: Instant,
    pub(crate) picks: u32,
}

impl Moment {
    /// The age in units of the time constant.
    fn age(self, now: Self) -> f64 {
        let by_time = now.time.since(self.time).as_secs_f64() / TIME_CONSTANT.as_secs_f64();
        let by_picks = f64::from(now.picks.wrapping_sub(self.picks)) / TIME_CONSTANT_PICKS;
        by_time.min(by_picks)
    }
}

/// The factor by which loads must differ to be more than chance: without such a bound, the faster of two equal
/// instances would get three of four calls.
const CLEAR_FACTOR: f64 = 1.25;

/// The calls to one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) in_flight: u32,
    /// Whether a call was answered.
    is_warm: bool,
    latency: Option<Average>,
}

/// A moving average, in seconds.
#[derive(Clone, Copy, Debug)]
struct Average {
    seconds: f64,
    /// The number of samples, as far as it matters.
    samples: u16,
    at: Moment,
}

impl Load {
    pub(crate) fn begin(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    pub(crate) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records the duration of an answered call; but not of the first one, which includes connection set-up and
    /// cold caches.
    pub(crate) fn answered(&mut self, took: Duration, now: Moment) {
        if std::mem::replace(&mut self.is_warm, true) {
            self.count(took, now);
        }
    }

    /// Records the duration of a call that was dropped without an answer: the instance is at least as slow as that.
    pub(crate) fn given_up(&mut self, took: Duration, now: Moment) {
        let is_slower = |average: Average| took.as_secs_f64() > average.seconds;
        if self.latency.is_none_or(is_slower) {
            self.count(took, now);
        }
    }

    /// Records a failed call, which does not show how long an answer takes: the average becomes as new as if the
    /// instance had answered as before. It must not fade, or an instance that only fails would look faster with
    /// each second.
    pub(crate) fn failed(&mut self, now: Moment) {
        if let Some(average) = &mut self.latency {
            average.at = now;
        }
    }

    /// The first samples have equal weights. Later, the weight of a sample depends on the time since the last one,
    /// so that a burst of calls counts no more than one call.
    fn count(&mut self, took: Duration, now: Moment) {
        let sample = took.as_secs_f64();
        let next = match self.latency {
            Some(average) => {
                let samples = average.samples.saturating_add(1);
                let weight = (1.0 - (-average.at.age(now)).exp()).max(1.0 / f64::from(samples));
                let seconds = average.seconds + (sample - average.seconds) * weight;
                Average { seconds, samples, at: now }
            }
            None => Average { seconds: sample, samples: 1, at: now },
        };
        self.latency = Some(next);
    }

    /// The average latency, if two calls were answered.
    pub(crate) fn latency(&self) -> Option<Duration> {
        Some(Duration::from_secs_f64(self.latency?.seconds))
    }
}

/// One of two instances to compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedInstance {
    pub(crate) load: Load,
    pub(crate) weight: u32,
    /// Failed calls in a row. Failures come fast: without this, an instance that answers nothing would look idle.
    pub(crate) failures: u32,
}

/// Whether the second of two is clearly less loaded than the first. Latencies are compared as of `now`. Without it,
/// only calls in flight are compared, so that a past failure does not exclude an instance forever.
pub(crate) fn has_less_to_do(
    second: LoadedInstance,
    first: LoadedInstance,
    now: Option<Moment>,
) -> bool {
    // The unit is one call of the instance with the smaller weight, so that a heavy one with one call counts as
    // idle.
    let unit = f64::from(first.weight.min(second.weight));
    let work = |of: LoadedInstance| {
        let queued = 1.0 + f64::from(of.load.in_flight) * unit / f64::from(of.weight);
        let failures = now.map_or(0, |_| of.failures);
        queued * (1.0 + f64::from(failures))
    };
    let (mut first_work, mut second_work) = (work(first), work(second));

    // Latencies count only if both are known: an instance that was never called is not infinitely fast.
    let latencies = (first.load.latency, second.load.latency, now);
    if let (Some(first), Some(second), Some(now)) = latencies {
        // Each average fades with its age, so that an instance that gets no calls because it was slow is tried
        // again. Only their ratio counts: one exponential, which does not underflow.
        first_work *= first.seconds;
        second_work *=
            second.seconds * (first.at.age(now) - second.at.age(now)).exp().min(f64::MAX);
    }
    second_work * CLEAR_FACTOR < first_work
}
