//! Warm-up, then the time that counts.

use std::time::{Duration, Instant};

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What happens in this time first is not counted.
    pub(crate) warm_up: Duration,
    /// Then this long is.
    pub(crate) measure: Duration,
}

/// The time that counts, once a measurement has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    opens: Instant,
    closes: Instant,
}

impl Plan {
    /// For what is done once, however long it takes.
    pub(crate) const ONCE: Self = Self { warm_up: Duration::ZERO, measure: Duration::ZERO };

    /// The window of a measurement that begins now.
    pub(crate) fn begin(self) -> Window {
        let opens = Instant::now() + self.warm_up;
        Window { opens, closes: opens + self.measure }
    }
}

impl Window {
    /// Whether something that ended at `end` counts.
    pub(crate) fn counts(&self, end: Instant) -> bool {
        self.opens <= end && end < self.closes
    }

    /// Whether it is over at `now`.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.closes
    }

    /// How long it is.
    pub(crate) fn length(&self) -> Duration {
        self.closes - self.opens
    }
}
