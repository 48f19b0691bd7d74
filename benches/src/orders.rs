//! What programs answer that measure for us, in whatever language.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::{Latency, Repeats};

/// What the programs answer. Times are in nanoseconds.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) per_second: f64,
    #[serde(default)]
    pub(crate) grants_per_second: f64,
    #[serde(default)]
    pub(crate) acquire: Percentiles,
    #[serde(default)]
    pub(crate) latency: Percentiles,
}

#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Percentiles {
    count: u64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl From<Repeats> for Answer {
    fn from(Repeats { per_second, latency }: Repeats) -> Self {
        Self { per_second, latency: latency.into(), ..Self::default() }
    }
}

impl From<Latency> for Percentiles {
    fn from(latency: Latency) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let Latency { count, p50, p99, p999, max } = latency;
        Self { count, p50: nanos(p50), p99: nanos(p99), p999: nanos(p999), max: nanos(max) }
    }
}

impl From<Percentiles> for Latency {
    fn from(answer: Percentiles) -> Self {
        let Percentiles { count, p50, p99, p999, max } = answer;
        let nanos = Duration::from_nanos;
        Self { count, p50: nanos(p50), p99: nanos(p99), p999: nanos(p999), max: nanos(max) }
    }
}
