//! A place with servers and hosts for holders, where outages are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::{clock, scratch};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::OutageForm;
use crate::programs::Site;
use crate::servers::{Place, Servers};

/// Servers, and hosts for their users.
pub(super) struct Stand {
    // Before the network that they are on.
    pub(super) servers: Servers,
    network: Network,
    pub(super) place: Place,
    pub(super) folder: TempDir,
}

/// How long an outage was, and how much of it came after the end of the fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) length: Duration,
    pub(super) lag: Duration,
}

impl Stand {
    pub(super) async fn start(place: Place, hosts: usize) -> Result<Self> {
        let network = Network::start(u8::try_from(place.servers() + hosts)?)?;
        let servers = Servers::start(place, &network).await?;
        Ok(Self { servers, network, place, folder: scratch::folder()? })
    }

    /// One of the hosts for programs, counted from 0; the machine itself where the engine is local.
    pub(super) fn site(&self, host: usize) -> Site {
        let host = self.network.host(self.place.servers() + host).clone();
        Site {
            connect: self.servers.connect_string(),
            host: (self.place != Place::Local).then_some(host),
            folder: self.folder.path().to_owned(),
        }
    }

    /// Begins and ends an outage. Where links are cut, each host has one of its own; else there is one
    /// for all, of the first of these lengths.
    pub(super) async fn strike(
        &mut self,
        form: OutageForm,
        lengths: &[Duration],
    ) -> Result<Vec<Outage>> {
        let start = clock::now();
        let end = start + lengths.first().copied().unwrap_or_default();
        match form {
            OutageForm::Link => return tokio::task::block_in_place(|| self.cut_links(lengths)),
            OutageForm::Leader => {
                let leader = self.servers.ensemble()?.leader().await?;
                let length = self.kill(leader).await?;
                self.servers.ensemble_mut()?.server_mut(leader).begin_restart()?;
                return Ok(vec![Outage { length, lag: Duration::ZERO }]);
            }
            OutageForm::Stopped => {
                self.servers.pause()?;
                tokio::time::sleep(end.saturating_sub(clock::now())).await;
                self.servers.resume()?;
            }
            OutageForm::Restarted => {
                self.servers.kill();
                tokio::time::sleep(end.saturating_sub(clock::now())).await;
                self.servers.begin_restart()?;
            }
        }
        let back = clock::now();
        let end = self.servers.commit(self.network.host(0)).await?;
        Ok(vec![Outage { length: end - start, lag: end - back }])
    }

    /// Kills a server of an ensemble; from then until the others commit.
    pub(super) async fn kill(&mut self, server: usize) -> Result<Duration> {
        let start = clock::now();
        self.servers.ensemble_mut()?.kill(server);
        Ok(self.servers.commit(self.network.host(0)).await? - start)
    }

    /// Cuts the link of each host for a time of its own, all at once.
    fn cut_links(&self, lengths: &[Duration]) -> Result<Vec<Outage>> {
        let runtime = Handle::current();
        thread::scope(|scope| {
            let cut = |(host, length): (usize, &Duration)| {
                let (length, runtime) = (*length, runtime.clone());
                scope.spawn(move || self.cut_link(self.place.servers() + host, length, &runtime))
            };
            let cuts: Vec<_> = lengths.iter().enumerate().map(cut).collect();
            cuts.into_iter().map(|cut| cut.join().ok().context("a thread has panicked")?).collect()
        })
    }

    fn cut_link(&self, host: usize, length: Duration, runtime: &Handle) -> Result<Outage> {
        let servers: Vec<usize> = (0..self.place.servers()).collect();
        let start = clock::now();
        self.network.isolate(host, &servers)?;
        thread::sleep((start + length).saturating_sub(clock::now()));
        let back = clock::now();
        self.network.rejoin(host, &servers)?;
        let end = runtime.block_on(self.servers.commit(self.network.host(host)))?;
        Ok(Outage { length: end - start, lag: end - back })
    }
}

// ----- pauses of this machine itself, which are outages that the test has not caused ----------

/// How often the machine is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A machine where programs are late for more than this share of the time has other work to do:
/// a lease passes through several of them, and each adds to what it loses.
const BUSY: f64 = 0.2;

/// Looks at the machine until it is dropped.
pub(super) struct Stalls {
    start: Instant,
    late: Arc<Late>,
}

/// By how much programs were late that wanted to run.
#[derive(Default)]
struct Late {
    longest_ns: AtomicU64,
    total_ns: AtomicU64,
}

impl Stalls {
    pub(super) fn watch() -> Self {
        let late = Arc::<Late>::default();
        let looking = Arc::downgrade(&late);
        thread::spawn(move || {
            while let Some(late) = looking.upgrade() {
                let start = Instant::now();
                thread::sleep(LOOK);
                let ns = start.elapsed().saturating_sub(LOOK).as_nanos() as u64;
                late.longest_ns.fetch_max(ns, Ordering::Relaxed);
                late.total_ns.fetch_add(ns, Ordering::Relaxed);
            }
        });
        Self { start: Instant::now(), late }
    }

    /// The longest time by which a program that wanted to run was late.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.late.longest_ns.load(Ordering::Relaxed))
    }

    /// Whether programs were late for so much of the time that no holder could be judged by it.
    pub(super) fn is_busy(&self) -> bool {
        let late = Duration::from_nanos(self.late.total_ns.load(Ordering::Relaxed));
        late > self.start.elapsed().mul_f64(BUSY)
    }
}
