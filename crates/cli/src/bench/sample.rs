//! Latencies, and what is told of them.

use std::time::Duration;

use serde::Serialize;

/// What is told of the latencies of one row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) count: usize,
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
}

impl Figures {
    /// Those of all latencies that were seen in this time.
    pub(super) fn of(mut latencies: Vec<Duration>, time: Duration) -> Self {
        latencies.sort_unstable();
        let count = latencies.len();
        // The time within which this share of them was, in microseconds; 0 if there are none.
        let within = |share: f64| {
            let rank = (count as f64 * share).ceil() as usize;
            let latency = latencies.get(rank.saturating_sub(1)).copied().unwrap_or_default();
            latency.as_secs_f64() * 1e6
        };
        Self {
            count,
            per_second: count as f64 / time.as_secs_f64(),
            p50_us: within(0.5),
            p99_us: within(0.99),
            p999_us: within(0.999),
            max_us: within(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let latencies = (1..=1_000).rev().map(Duration::from_micros).collect();
        let figures = Figures::of(latencies, Duration::from_secs(2));
        assert_eq!((figures.count, figures.per_second), (1_000, 500.0));
        let rounded = [figures.p50_us, figures.p99_us, figures.p999_us, figures.max_us];
        assert_eq!(rounded.map(f64::round), [500.0, 990.0, 999.0, 1_000.0]);
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        assert_eq!(Figures::of(Vec::new(), Duration::from_secs(1)).max_us, 0.0);
    }
}
