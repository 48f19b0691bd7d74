//! What an instance has to do, as this client sees it.

use std::time::Duration;

use lockkeeper_client::Instant;

/// How far the average of the latency looks back: a latency this old counts e times less than one of now. It
/// is also this many picks, where these take longer: with few calls, nothing newer is known.
const MEMORY: Duration = Duration::from_secs(1);
const MEMORY_PICKS: f64 = 16.0;

/// When something happens: by the clock, and by how many picks there were before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) time: Instant,
    pub(crate) picks: u32,
}

impl Moment {
    /// How long ago it was, in units after which it counts e times less.
    fn age(self, now: Self) -> f64 {
        let by_time = now.time.since(self.time).as_secs_f64() / MEMORY.as_secs_f64();
        let by_picks = f64::from(now.picks.wrapping_sub(self.picks)) / MEMORY_PICKS;
        by_time.min(by_picks)
    }
}

/// By how much one must have less to do than another, so that it is more than chance: without such a
/// bound, the faster of two equal instances would get three calls of four.
const CLEARLY: f64 = 1.25;

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
    /// Of how many samples, as far as that matters.
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

    /// Counts how long a call took that was answered; but not the first, which has the set-up of a
    /// connection in it, and caches that are empty.
    pub(crate) fn answered(&mut self, took: Duration, now: Moment) {
        if std::mem::replace(&mut self.is_warm, true) {
            self.count(took, now);
        }
    }

    /// Counts how long a call took that had no answer when it was given up: the instance is at least as
    /// slow as that.
    pub(crate) fn given_up(&mut self, took: Duration, now: Moment) {
        let is_slower = |average: Average| took.as_secs_f64() > average.seconds;
        if self.latency.is_none_or(is_slower) {
            self.count(took, now);
        }
    }

    /// Counts that a call failed, which tells nothing of how long an answer takes: the average is as new as
    /// if the instance had answered as before. It must not fade, or an instance that only fails would look
    /// faster with each second.
    pub(crate) fn failed(&mut self, now: Moment) {
        if let Some(average) = &mut self.latency {
            average.at = now;
        }
    }

    /// The first samples count the same each. Later, the weight of one depends on the time since the last,
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

    /// The average of the latency, if two calls were answered.
    pub(crate) fn latency(&self) -> Option<Duration> {
        Some(Duration::from_secs_f64(self.latency?.seconds))
    }
}

/// One of two instances to compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedInstance {
    pub(crate) load: Load,
    pub(crate) weight: u32,
    /// How many calls in a row have failed. Failures come fast: without this, an instance that
    /// answers nothing would look like one with little to do.
    pub(crate) failures: u32,
}

/// Whether the second of two has clearly less to do than the first. Latencies are compared as of `now`.
/// Without it, only calls in flight are: what went wrong once is no reason to call an instance never again.
pub(crate) fn has_less_to_do(
    second: LoadedInstance,
    first: LoadedInstance,
    now: Option<Moment>,
) -> bool {
    // One call of the lighter of the two is the unit, so that a heavy one with one call counts as idle.
    let unit = f64::from(first.weight.min(second.weight));
    let work = |of: LoadedInstance| {
        let queued = 1.0 + f64::from(of.load.in_flight) * unit / f64::from(of.weight);
        let failures = now.map_or(0, |_| of.failures);
        queued * (1.0 + f64::from(failures))
    };
    let (mut first_work, mut second_work) = (work(first), work(second));

    // Latencies count only if both are known: one that was never called is not infinitely fast.
    let latencies = (first.load.latency, second.load.latency, now);
    if let (Some(first), Some(second), Some(now)) = latencies {
        // Each average fades with its age, so that an instance that nobody calls because it was slow is
        // tried again. Only their ratio counts: one exponential, and none that fades to nothing.
        first_work *= first.seconds;
        second_work *=
            second.seconds * (first.at.age(now) - second.at.age(now)).exp().min(f64::MAX);
    }
    second_work * CLEARLY < first_work
}
