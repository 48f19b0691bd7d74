//! Which threads may poll before they sleep, and for how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::option_enum::option_enum;

/// Whether the engine's threads poll for more work before they sleep.
///
/// To sleep and to be woken takes a few times as long as to handle a request. Whoever polls instead
/// answers sooner, and uses processor time meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spin {
    /// Never: a thread without work sleeps at once. Least processor time.
    Off,
    /// For at most 300 us at a time, while requests follow each other that closely, and with any thread
    /// that has work to do going first. An idle engine does not spin.
    #[default]
    Adaptive,
}

option_enum!(Spin, UnknownSpin: "`{0}` is no way to spin: choose off or adaptive" {
    Off = "off",
    Adaptive = "adaptive",
});

/// How long the tree thread polls its sockets, if the last requests came so soon, or if replies have
/// just left.
const FOR_REQUESTS: Duration = Duration::from_micros(60);
/// The same for a client that asks again whenever it is answered, one thing after the other. Nobody
/// else wants the processor then, and on a slow machine it takes this long to ask again.
const FOR_ONE_CLIENT: Duration = Duration::from_micros(250);
/// How long the commit thread polls for the next group after it has released one, if that began so soon
/// after the one before: being woken would be a part of each.
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

    /// How long the tree thread polls for requests; zero for not at all.
    pub(crate) fn for_requests(&self, one_client: bool) -> Duration {
        match (self.spin, one_client) {
            (Spin::Off, _) => Duration::ZERO,
            (Spin::Adaptive, false) => FOR_REQUESTS,
            (Spin::Adaptive, true) => FOR_ONE_CLIENT,
        }
    }

    /// How long the commit thread polls for commits; zero for not at all.
    pub(crate) fn for_commits(&self) -> Duration {
        match self.spin {
            Spin::Off => Duration::ZERO,
            Spin::Adaptive => FOR_COMMITS,
        }
    }

    /// A poll has found nothing. Any thread that has work to do goes before the next.
    pub(crate) fn polled(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    }

    /// How often a poll has found nothing.
    #[cfg(test)]
    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_to_spin_is_spelled_as_it_is_shown() {
        for spin in [Spin::Off, Spin::Adaptive] {
            assert_eq!(spin.to_string().parse(), Ok(spin));
        }
        let error = "on".parse::<Spin>().unwrap_err();
        assert_eq!(error.to_string(), "`on` is no way to spin: choose off or adaptive");
    }
}
