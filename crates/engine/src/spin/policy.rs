//! Which threads may poll before they sleep, and for how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::option_enum::option_enum;

/// Whether the engine's threads poll for more work before they sleep.
///
/// Sleeping and being woken takes several times as long as handling a request. A thread that polls answers sooner, and
/// uses processor time for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spin {
    /// Never: a thread without work sleeps at once. This uses the least processor time.
    Off,
    /// For at most 300 us at a time, while requests follow each other that closely; threads with work to do run first.
    /// An idle engine does not poll.
    #[default]
    Adaptive,
}

option_enum!(Spin, UnknownSpin: "`{0}` is not a spin mode: choose off or adaptive" {
    Off = "off",
    Adaptive = "adaptive",
});

/// How long the tree thread polls its sockets, if the last requests came in quick succession, or if replies were just
/// sent.
const FOR_REQUESTS: Duration = Duration::from_micros(60);
/// The same for a client that sends its next request as soon as it is answered. No other task needs the
/// processor then, and on a slow machine the next request takes this long.
const FOR_ONE_CLIENT: Duration = Duration::from_micros(250);
/// How long the commit thread polls for the next group after it has released one, if that began soon after
/// the previous one: waking the thread would delay each.
const FOR_COMMITS: Duration = Duration::from_micros(300);

/// The policy of one engine, and how often its threads have polled.
#[derive(Debug)]
pub(crate) struct SpinPolicy {
    spin: Spin,
    polls: AtomicU64,
}

impl SpinPolicy {
    pub(crate) fn new(spin: Spin) -> Self {
        Self { spin, polls: AtomicU64::new(0) }
    }

    /// How long the tree thread polls for requests; zero disables polling.
    pub(crate) fn for_requests(&self, one_client: bool) -> Duration {
        match (self.spin, one_client) {
            (Spin::Off, _) => Duration::ZERO,
            (Spin::Adaptive, false) => FOR_REQUESTS,
            (Spin::Adaptive, true) => FOR_ONE_CLIENT,
        }
    }

    /// How long the commit thread polls for commits; zero disables polling.
    pub(crate) fn for_commits(&self) -> Duration {
        match self.spin {
            Spin::Off => Duration::ZERO,
            Spin::Adaptive => FOR_COMMITS,
        }
    }

    /// Records a poll that has found nothing. Threads with work to do run before the next one.
    pub(crate) fn polled(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    }

    /// How many polls have found nothing.
    #[cfg(test)]
    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_mode_is_parsed_as_it_is_printed() {
        for spin in [Spin::Off, Spin::Adaptive] {
            assert_eq!(spin.to_string().parse(), Ok(spin));
        }
        let error = "on".parse::<Spin>().unwrap_err();
        assert_eq!(error.to_string(), "`on` is not a spin mode: choose off or adaptive");
    }
}
