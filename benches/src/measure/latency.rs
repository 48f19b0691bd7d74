//! Percentiles.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Collects durations from many tasks.
///
/// One histogram for all of them: one for each of a thousand tasks would be gigabytes, and cold.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    histogram: Arc<Mutex<Histogram<u64>>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty one.
    pub(crate) fn new() -> Self {
        // From 1 ns to an hour, with an error below one thousandth.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        Self { histogram: Arc::new(Mutex::new(histogram.expect("these bounds are in order"))) }
    }

    /// Adds a duration.
    pub(crate) fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(nanos);
    }

    /// How long this share of them took at most.
    pub(crate) fn at(&self, quantile: f64) -> Duration {
        let histogram = self.histogram.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_nanos(histogram.value_at_quantile(quantile))
    }

    /// What was collected so far.
    pub(crate) fn summary(&self) -> Latency {
        let histogram = self.histogram.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        Latency {
            count: histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: Duration::from_nanos(histogram.max()),
        }
    }
}

/// In microseconds, as the report has it.
pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// How long things took; between programs in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Latency {
    /// How many.
    pub(crate) count: u64,
    /// Half of them took no longer than this.
    #[serde(with = "nanos")]
    pub(crate) p50: Duration,
    /// 99 in 100.
    #[serde(with = "nanos")]
    pub(crate) p99: Duration,
    /// 999 in 1,000.
    #[serde(with = "nanos")]
    pub(crate) p999: Duration,
    /// All.
    #[serde(with = "nanos")]
    pub(crate) max: Duration,
}

mod nanos {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let recorder = Recorder::new();
        for micros in 1..=1_000 {
            recorder.record(Duration::from_micros(micros));
        }
        let latency = recorder.summary();
        let near = |measured: Duration, micros: f64| {
            (measured.as_secs_f64() * 1e6 - micros).abs() <= micros / 500.0
        };
        assert_eq!(latency.count, 1_000);
        assert!(near(latency.p50, 500.0), "{latency:?}");
        assert!(near(latency.p99, 990.0), "{latency:?}");
        assert!(near(latency.p999, 999.0), "{latency:?}");
        assert!(near(latency.max, 1_000.0), "{latency:?}");
    }
}
