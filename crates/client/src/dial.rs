//! Which server is tried next, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::Host;
use crate::world::{Transport, World};

/// Why there is no session with a server.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) why: String,
    pub(crate) nature: Nature,
}

/// Whether it helps to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It may.
    Passing,
    /// Client and server do not trust each other.
    Distrust,
    /// What answers is no ZooKeeper server.
    Foreign,
}

impl Fault {
    pub(crate) fn passing(why: impl std::fmt::Display) -> Self {
        Self { why: why.to_string(), nature: Nature::Passing }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        #[cfg(feature = "tls")]
        let nature = crate::tls::nature(&error);
        #[cfg(not(feature = "tls"))]
        let nature = Nature::Passing;
        Self { why: error.to_string(), nature }
    }
}

/// What has come of the servers that were tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    /// What was wrong with each the last time.
    pub(crate) reasons: Vec<(Host, String)>,
    /// Set when all were tried, and none is worth another try: the worst that is wrong with all.
    pub(crate) hopeless: Option<Nature>,
}

/// The pause after the first round in which no server could be reached; it doubles from round to
/// round. Each pause is shortened by up to half at random, so that clients which lost the same
/// server do not come back in step.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Tries the servers in turn, in an order of its own.
#[derive(Debug)]
pub(crate) struct Dialer {
    hosts: Vec<Host>,
    next: usize,
    attempt_timeout: Duration,
    world: Arc<dyn World>,
    /// How many servers in a row were tried without a session.
    failures: u32,
    /// What was wrong with each server the last time.
    faults: BTreeMap<String, (Host, Fault)>,
}

impl Dialer {
    pub(crate) fn new(
        mut hosts: Vec<Host>,
        attempt_timeout: Duration,
        world: Arc<dyn World>,
    ) -> Self {
        fastrand::shuffle(&mut hosts);
        Self { hosts, next: 0, attempt_timeout, world, failures: 0, faults: BTreeMap::new() }
    }

    /// Connects to the next server, after a pause if a whole round has failed.
    pub(crate) async fn dial(&mut self) -> Result<(Host, Transport), (Host, Fault)> {
        sleep(self.pause()).await;
        let host = self.hosts[self.next % self.hosts.len()].clone();
        self.next = (self.next + 1) % self.hosts.len();
        match timeout(self.attempt_timeout, self.world.connect(&host)).await {
            Ok(Ok(transport)) => Ok((host, transport)),
            Ok(Err(error)) => Err((host, error.into())),
            Err(_) => {
                let why = format!("no answer within {:.1} s", self.attempt_timeout.as_secs_f64());
                Err((host, Fault::passing(why)))
            }
        }
    }

    /// A server took the session.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.faults.clear();
    }

    pub(crate) fn failed(&mut self, host: Host, fault: Fault) {
        self.failures = self.failures.saturating_add(1);
        self.faults.insert(host.to_string(), (host, fault));
    }

    pub(crate) fn tried(&self) -> Tried {
        let faults = || self.faults.values();
        let reasons = faults().map(|(host, fault)| (host.clone(), fault.why.clone())).collect();
        let all = usize::try_from(self.failures).is_ok_and(|tried| tried >= self.hosts.len());
        let is = |nature| faults().all(|(_, fault)| fault.nature == nature);
        let passing = faults().any(|(_, fault)| fault.nature == Nature::Passing);
        let hopeless = match all && !passing {
            true if is(Nature::Foreign) => Some(Nature::Foreign),
            true => Some(Nature::Distrust),
            false => None,
        };
        Tried { reasons, hopeless }
    }

    fn pause(&self) -> Duration {
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        if self.failures == 0 || !self.failures.is_multiple_of(hosts) {
            return Duration::ZERO;
        }
        let doublings = (self.failures / hosts - 1).min(10);
        let pause = (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Reality;

    fn dialer(hosts: usize) -> Dialer {
        let host = |n| Host::Tcp { name: format!("h{n}"), port: 1 };
        Dialer::new((0..hosts).map(host).collect(), Duration::from_secs(1), Arc::new(Reality))
    }

    #[test]
    fn each_round_is_tried_without_a_pause_and_pauses_grow_between_rounds() {
        let mut dialer = dialer(3);
        let host = dialer.hosts[0].clone();
        let mut pauses = Vec::new();
        for _ in 0..60 {
            pauses.push(dialer.pause());
            dialer.failed(host.clone(), Fault::passing(""));
        }
        for (tried, pause) in pauses.iter().enumerate() {
            let starts_round = tried > 0 && tried % 3 == 0;
            assert_eq!(*pause > Duration::ZERO, starts_round, "{tried}");
            assert!(*pause <= LONGEST_PAUSE);
        }
        assert!(pauses[57] >= LONGEST_PAUSE / 2 && pauses[3] <= FIRST_PAUSE);
        dialer.succeeded();
        assert_eq!(dialer.pause(), Duration::ZERO);
    }

    #[test]
    fn only_when_all_were_tried_and_none_may_get_better_there_is_no_hope() {
        use Nature::{Distrust, Foreign, Passing};
        for (natures, hopeless) in [
            (&[Foreign][..], None),
            (&[Foreign, Passing], None),
            (&[Foreign, Foreign], Some(Foreign)),
            (&[Foreign, Distrust], Some(Distrust)),
            (&[Foreign, Passing, Foreign, Foreign], Some(Foreign)),
        ] {
            let mut dialer = dialer(2);
            for (turn, nature) in natures.iter().enumerate() {
                let host = dialer.hosts[turn % 2].clone();
                dialer.failed(host, Fault { why: String::new(), nature: *nature });
            }
            assert_eq!(dialer.tried().hopeless, hopeless, "{natures:?}");
        }
    }
}
