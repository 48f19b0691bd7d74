//! Which server is tried next, and when.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockkeeper_session::Timing;
use tokio::time::{Instant, sleep_until, timeout};

use crate::connect_string::Host;
use crate::fault::{Fault, FaultKind};
use crate::runtime::{Boxed, Runtime, Transport};

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        #[cfg(feature = "tls")]
        let kind = crate::tls::fault_kind(&error);
        #[cfg(not(feature = "tls"))]
        let kind = FaultKind::Transient;
        Self { why: error.to_string(), kind }
    }
}

/// The results of the connection attempts so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    /// The last error of each server.
    pub(crate) reasons: Vec<(Host, String)>,
    /// Set when all servers were tried and a retry cannot help: the most serious kind of error.
    pub(crate) hopeless: Option<FaultKind>,
}

/// The pause after the first round in which no server was reachable. It doubles from round to round. Each
/// pause is shortened at random by up to half, so that clients which lost the same server do not reconnect in
/// step.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The number of rounds during which a pause is at most a [retry interval](Timing::retry_interval), because a
/// lease may depend on it. Together these rounds last longer than any lease.
const HURRIED_ROUNDS: u32 = 64;

/// A connection attempt.
type Attempt = Boxed<'static, (Host, io::Result<Transport>)>;

/// Tries the servers in turn, in random order.
///
/// A slow attempt does not delay the others: the next one starts a retry interval later, in parallel. An
/// attempt whose packets were lost succeeds only seconds after the end of an outage; a new attempt succeeds
/// at once.
pub(crate) struct Dialer {
    hosts: Vec<Host>,
    next: usize,
    runtime: Arc<dyn Runtime>,
    attempts: Vec<Attempt>,
    next_attempt: Instant,
    /// The number of servers that were tried in a row without success.
    failures: u32,
    /// The last error of each server.
    faults: BTreeMap<String, (Host, Fault)>,
}

impl Dialer {
    pub(crate) fn new(mut hosts: Vec<Host>, runtime: Arc<dyn Runtime>) -> Self {
        fastrand::shuffle(&mut hosts);
        let (attempts, faults) = (Vec::new(), BTreeMap::new());
        let next_attempt = Instant::now();
        Self { hosts, next: 0, runtime, attempts, next_attempt, failures: 0, faults }
    }

    /// Connects to the first server that answers, or returns the server whose attempt failed. Call it again
    /// after a failure: other attempts may be in progress.
    pub(crate) async fn dial(
        &mut self,
        timing: Timing,
    ) -> Result<(Host, Transport), (Host, Fault)> {
        if self.attempts.is_empty() {
            self.next_attempt = Instant::now() + self.pause(timing);
        }

        loop {
            let (host, result) = tokio::select! {
                // A due attempt starts even if another one fails at the same moment.
                biased;
                () = sleep_until(self.next_attempt) => {
                    self.begin(timing);
                    self.next_attempt = Instant::now() + timing.retry_interval();
                    continue;
                }
                ended = first_of(&mut self.attempts) => ended,
            };

            return match result {
                Ok(transport) => {
                    self.attempts.clear();
                    Ok((host, transport))
                }
                Err(error) => Err((host, error.into())),
            };
        }
    }

    /// Starts an attempt with the next server.
    fn begin(&mut self, timing: Timing) {
        let host = self.hosts[self.next % self.hosts.len()].clone();
        self.next = (self.next + 1) % self.hosts.len();
        let (runtime, limit) = (Arc::clone(&self.runtime), timing.connect_limit());
        self.attempts.push(Box::pin(async move {
            let connected = timeout(limit, runtime.connect(&host, None)).await;
            let late = || format!("no answer within {:.1} s", limit.as_secs_f64());
            let result =
                connected.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, late())));
            (host, result)
        }));
    }

    /// A server accepted the session.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.faults.clear();
    }

    /// An attempt failed, or the connection was lost. Returns whether the error differs from the server's
    /// last one.
    pub(crate) fn failed(&mut self, host: Host, fault: Fault) -> bool {
        self.failures = self.failures.saturating_add(1);
        let why = fault.why.clone();
        let last = self.faults.insert(host.to_string(), (host, fault));
        last.is_none_or(|(_, last)| last.why != why)
    }

    pub(crate) fn tried(&self) -> Tried {
        let faults = || self.faults.values();
        let reasons = faults().map(|(host, fault)| (host.clone(), fault.why.clone())).collect();
        let all = usize::try_from(self.failures).is_ok_and(|tried| tried >= self.hosts.len());
        let is = |kind| faults().all(|(_, fault)| fault.kind == kind);
        let transient = faults().any(|(_, fault)| fault.kind == FaultKind::Transient);
        let hopeless = match all && !transient {
            true if is(FaultKind::NotZooKeeper) => Some(FaultKind::NotZooKeeper),
            true => Some(FaultKind::Untrusted),
            false => None,
        };
        Tried { reasons, hopeless }
    }

    fn pause(&self, timing: Timing) -> Duration {
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        if self.failures == 0 || !self.failures.is_multiple_of(hosts) {
            return Duration::ZERO;
        }

        let rounds = self.failures / hosts;
        let longest = match rounds <= HURRIED_ROUNDS {
            true => timing.retry_interval(),
            false => LONGEST_PAUSE,
        };
        let pause = (FIRST_PAUSE * 2_u32.pow((rounds - 1).min(10))).min(longest);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// Waits for the first of these futures to complete, and removes it. Pending forever if there are none.
pub(crate) async fn first_of<T>(futures: &mut Vec<Boxed<'static, T>>) -> T {
    poll_fn(|context| {
        for index in 0..futures.len() {
            if let Poll::Ready(ended) = futures[index].as_mut().poll(context) {
                drop(futures.remove(index));
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use lockkeeper_session::LeaseMode;

    use super::*;
    use crate::runtime::TokioRuntime;

    fn timing() -> Timing {
        let (timeout, tick) = (Duration::from_secs(15), Duration::from_secs(2));
        Timing::new(LeaseMode::Quorum, timeout, tick)
    }

    fn dialer(hosts: usize) -> Dialer {
        let host = |n| Host::Tcp { name: format!("h{n}"), port: 1 };
        Dialer::new((0..hosts).map(host).collect(), Arc::new(TokioRuntime::default()))
    }

    #[test]
    fn each_round_is_tried_without_a_pause_and_pauses_grow_between_rounds() {
        let mut dialer = dialer(3);
        let host = dialer.hosts[0].clone();
        let mut pauses = Vec::new();
        for _ in 0..3 * (HURRIED_ROUNDS + 2) {
            pauses.push(dialer.pause(timing()));
            dialer.failed(host.clone(), Fault::transient(""));
        }

        for (tried, pause) in pauses.iter().enumerate() {
            let starts_round = tried > 0 && tried % 3 == 0;
            assert_eq!(*pause > Duration::ZERO, starts_round, "{tried}");
            assert!(*pause <= LONGEST_PAUSE);
        }
        assert!(pauses[3] <= FIRST_PAUSE && *pauses.iter().max().unwrap() >= LONGEST_PAUSE / 2);
        dialer.succeeded();
        assert_eq!(dialer.pause(timing()), Duration::ZERO);
    }

    #[test]
    fn a_reason_is_news_once_in_an_outage() {
        let mut dialer = dialer(1);
        let host = dialer.hosts[0].clone();
        let mut is_news = |why| dialer.failed(host.clone(), Fault::transient(why));
        assert_eq!([is_news("a"), is_news("a"), is_news("b")], [true, false, true]);
        dialer.succeeded();
        assert!(dialer.failed(dialer.hosts[0].clone(), Fault::transient("b")));
    }

    /// An outage ended, and the holder's lease with it: the pauses had grown to two seconds.
    #[test]
    fn while_a_lease_may_depend_on_it_no_pause_is_longer_than_a_retry_interval() {
        let mut dialer = dialer(1);
        let host = dialer.hosts[0].clone();
        let mut waited = Duration::ZERO;
        while waited < timing().timeout() {
            let pause = dialer.pause(timing());
            assert!(pause <= timing().retry_interval(), "{pause:?} after {waited:?}");
            waited += pause;
            dialer.failed(host.clone(), Fault::transient(""));
        }
    }

    #[test]
    fn only_when_all_were_tried_and_none_may_get_better_there_is_no_hope() {
        use FaultKind::{NotZooKeeper, Transient, Untrusted};
        for (kinds, hopeless) in [
            (&[NotZooKeeper][..], None),
            (&[NotZooKeeper, Transient], None),
            (&[NotZooKeeper, NotZooKeeper], Some(NotZooKeeper)),
            (&[NotZooKeeper, Untrusted], Some(Untrusted)),
            (&[NotZooKeeper, Transient, NotZooKeeper, NotZooKeeper], Some(NotZooKeeper)),
        ] {
            let mut dialer = dialer(2);
            for (turn, kind) in kinds.iter().enumerate() {
                let host = dialer.hosts[turn % 2].clone();
                dialer.failed(host, Fault { why: String::new(), kind: *kind });
            }
            assert_eq!(dialer.tried().hopeless, hopeless, "{kinds:?}");
        }
    }

    /// A runtime whose first connection never completes, as if its packets were lost.
    #[derive(Debug, Default)]
    struct LosesTheFirst(std::sync::atomic::AtomicBool);

    impl Runtime for LosesTheFirst {
        fn now(&self) -> crate::Instant {
            crate::clock::Clock.now()
        }

        fn connect<'a>(
            &'a self,
            _: &'a Host,
            _: Option<std::net::IpAddr>,
        ) -> Boxed<'a, io::Result<Transport>> {
            let is_first = !self.0.swap(true, std::sync::atomic::Ordering::Relaxed);
            Box::pin(async move {
                match is_first {
                    true => std::future::pending().await,
                    false => Ok(Transport::Other(Box::new(tokio::io::duplex(1).0), None)),
                }
            })
        }

        fn unique_id(&self) -> uuid::Uuid {
            uuid::Uuid::nil()
        }

        fn spawn(&self, _: crate::runtime::Boxed<'static, ()>) {}
    }

    /// A connection attempt started during an outage, and its packets were retransmitted so late that the
    /// lease ended although the outage was over.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hears_nothing_does_not_keep_others_waiting() {
        let host = Host::Tcp { name: "h".to_owned(), port: 1 };
        let mut dialer = Dialer::new(vec![host], Arc::new(LosesTheFirst::default()));
        let start = tokio::time::Instant::now();
        assert!(dialer.dial(timing()).await.is_ok());
        assert!(start.elapsed() <= timing().retry_interval() + Duration::from_millis(1));
        assert!(dialer.attempts.is_empty(), "the lost attempt is dropped");
    }
}
