//! Histograms of times and sizes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the buckets for times, in microseconds.
const TIMES: &[u64] = &[
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 5_000_000,
];
/// The upper ends of the buckets for sizes.
const SIZES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096];

/// Counts values in buckets; any thread may add to it and read it.
#[derive(Debug)]
pub(crate) struct Histogram {
    ends: &'static [u64],
    /// One more than `ends`: the last counts the values above all of them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

/// The content of a histogram at one moment; times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The upper end of each bucket, and how many values are at most that large.
    pub(crate) buckets: Vec<(u64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Histogram {
    pub(crate) fn of_times() -> Self {
        Self::with(TIMES)
    }

    pub(crate) fn of_sizes() -> Self {
        Self::with(SIZES)
    }

    fn with(ends: &'static [u64]) -> Self {
        Self {
            ends,
            buckets: (0..=ends.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }

    /// Adds a time, `count` times.
    pub(crate) fn add_time(&self, time: Duration, count: u64) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), count);
    }

    /// Adds a value, `count` times.
    pub(crate) fn add(&self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        let bucket = self.ends.partition_point(|end| *end < value);
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.sum.fetch_add(value.saturating_mul(count), Ordering::Relaxed);
        self.min.fetch_min(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Reading {
        let mut count = 0;
        let mut add = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let buckets = self.ends.iter().zip(&self.buckets).map(|(end, b)| (*end, add(b))).collect();
        add(&self.buckets[self.ends.len()]);

        let min = self.min.load(Ordering::Relaxed);
        Reading {
            buckets,
            count,
            sum: self.sum.load(Ordering::Relaxed),
            min: if count == 0 { 0 } else { min },
            max: self.max.load(Ordering::Relaxed),
        }
    }

    /// Resets all counts.
    pub(crate) fn reset(&self) {
        self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
        self.sum.store(0, Ordering::Relaxed);
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.max.store(0, Ordering::Relaxed);
    }
}

impl Reading {
    /// Merges several readings of the same kind.
    pub(crate) fn merge(readings: impl IntoIterator<Item = Reading>) -> Option<Reading> {
        readings.into_iter().filter(|reading| reading.count > 0).reduce(|mut all, next| {
            for (bucket, more) in all.buckets.iter_mut().zip(&next.buckets) {
                bucket.1 += more.1;
            }
            all.count += next.count;
            all.sum += next.sum;
            all.min = all.min.min(next.min);
            all.max = all.max.max(next.max);
            all
        })
    }

    /// The mean value.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_the_end_of_their_bucket() {
        let histogram = Histogram::of_sizes();
        for value in [1, 2, 2, 3, 5_000] {
            histogram.add(value, 1);
        }
        let reading = histogram.read();
        assert_eq!(reading.buckets[..3], [(1, 1), (2, 3), (4, 4)]);
        assert_eq!(reading.buckets.last(), Some(&(4_096, 4)));
        assert_eq!((reading.count, reading.sum), (5, 5_008));
        assert_eq!((reading.min, reading.max), (1, 5_000));
        assert!((reading.mean() - 1001.6).abs() < 0.01);
        histogram.reset();
        assert_eq!((histogram.read().count, histogram.read().min), (0, 0));
    }

    #[test]
    fn times_are_in_microseconds_and_readings_add_up() {
        let (one, other) = (Histogram::of_times(), Histogram::of_times());
        one.add_time(Duration::from_millis(3), 2);
        other.add_time(Duration::from_micros(70), 1);
        let empty = Histogram::of_times().read();
        let all = Reading::merge([one.read(), other.read(), empty]).unwrap();
        assert_eq!((all.count, all.sum, all.min, all.max), (3, 6_070, 70, 3_000));
        assert_eq!(all.buckets[1], (100, 1));
        assert_eq!(Reading::merge([]), None);
    }
}
