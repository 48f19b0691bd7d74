//! One run: A holds, its server leaves the others, B gets the lock. For how long did both believe?

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lockkeeper_testkit::java::Program;
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::peers::Peer;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{Config, ZooKeeperEnsemble};
use lockkeeper_testkit::{clock, python, scratch};
use tempfile::TempDir;

use crate::partition::forms::{self, Form, HOST_OF_A, HOST_OF_B, SERVERS};

/// ZooKeeper's own defaults, written out because the figures depend on them.
pub(crate) const TICK: Duration = Duration::from_secs(2);
pub(crate) const SYNC_LIMIT: u32 = 5;
pub(crate) const SESSION: Duration = Duration::from_secs(6);

const HOSTS: u8 = 5;

/// Longer than anything takes that works.
const LIMIT: Duration = Duration::from_secs(60);

/// A lock library, by its mutex or by its leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Curator,
    CuratorLatch,
    Kazoo,
    Lockkeeper,
    LockkeeperElection,
}

impl Library {
    pub(crate) const ALL: [Self; 5] = [
        Self::Curator,
        Self::CuratorLatch,
        Self::Kazoo,
        Self::Lockkeeper,
        Self::LockkeeperElection,
    ];

    /// Those that may not have two holders.
    pub(crate) const OURS: [Self; 2] = [Self::Lockkeeper, Self::LockkeeperElection];

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Curator => "curator",
            Self::CuratorLatch => "curator-latch",
            Self::Kazoo => "kazoo",
            Self::Lockkeeper => "lockkeeper",
            Self::LockkeeperElection => "lockkeeper-election",
        }
    }

    pub(crate) fn peer(self) -> Option<Peer> {
        match self {
            Self::Curator | Self::CuratorLatch => Some(Peer::Curator),
            Self::Kazoo => Some(Peer::Kazoo),
            Self::Lockkeeper | Self::LockkeeperElection => None,
        }
    }

    fn command(self) -> Result<Command> {
        let programs = crate::interop();
        Ok(match self {
            Self::Curator => Program::compile(&programs.join("CuratorHolder.java"))?.command(),
            Self::CuratorLatch => Program::compile(&programs.join("CuratorLeader.java"))?.command(),
            Self::Kazoo => python::command(&programs.join("kazoo_holder.py")),
            Self::Lockkeeper | Self::LockkeeperElection => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg(if self == Self::Lockkeeper { "holder" } else { "leader" });
                command
            }
        })
    }

    /// What tells a holder not to go on: the peers' first warning, which their documentation asks
    /// to react to, or the end of our lease. A `LeaderLatch` takes that warning itself.
    fn end_of_belief(self) -> &'static str {
        match self {
            Self::Curator | Self::Kazoo => "SUSPENDED",
            Self::CuratorLatch | Self::Lockkeeper | Self::LockkeeperElection => "GONE",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Curator => "Curator",
            Self::CuratorLatch => "Curator's LeaderLatch",
            Self::Kazoo => "kazoo",
            Self::Lockkeeper => "Lockkeeper",
            Self::LockkeeperElection => "Lockkeeper's Election",
        })
    }
}

/// What one library's A and B said. Times are seconds since the fault began.
#[derive(Clone, Debug)]
pub(crate) struct Belief {
    pub(crate) library: Library,
    /// When A was told, or decided, not to go on.
    pub(crate) a_ended: f64,
    /// When B was told that it holds.
    pub(crate) b_held: f64,
    /// Whether A's library still said "held" when asked at the end of the run.
    pub(crate) a_still_says_held: bool,
}

impl Belief {
    /// For how long both believed to hold, in seconds.
    pub(crate) fn overlap(&self) -> f64 {
        (self.a_ended - self.b_held).max(0.0)
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) form: Form,
    pub(crate) seed: u64,
    /// When the cut was complete, in seconds since the fault began.
    pub(crate) cut: f64,
    pub(crate) beliefs: Vec<Belief>,
}

/// The servers and the network, for many runs.
pub(crate) struct Laboratory {
    // Before the network that they are on.
    servers: ZooKeeperEnsemble,
    network: Network,
    folder: TempDir,
}

impl Laboratory {
    pub(crate) async fn start() -> Result<Self> {
        let network = Network::start(HOSTS)?;
        let hosts: Vec<_> = (0..SERVERS).map(|index| network.host(index).clone()).collect();
        let config = Config::new()
            .tick(TICK)
            .setting("syncLimit", &SYNC_LIMIT.to_string())
            .setting("initLimit", "10");
        let servers = config.ensemble_on(&hosts).await?;
        Ok(Self { servers, network, folder: scratch::folder()? })
    }

    /// One run with each of the libraries at the same time, on a lock each.
    pub(crate) async fn run(&self, form: Form, libraries: &[Library], seed: u64) -> Result<Run> {
        self.servers.settles(LIMIT).await?;
        let mut random = fastrand::Rng::with_seed(seed);
        let (a, b) = form.seats(&self.servers).await?;
        let leader = self.servers.leader().await?;
        let mut pairs = Vec::new();
        for library in libraries {
            let lock = format!("/partition-{}-{seed}-{}", form.name(), library.name());
            let a = self.holder(*library, HOST_OF_A, &[a], &lock)?;
            pairs.push((*library, lock, a));
        }
        let mut contenders = Vec::new();
        for (library, lock, mut a) in pairs {
            a.prints("HELD", LIMIT).await?;
            let b = self.holder(library, HOST_OF_B, &b, &lock)?;
            contenders.push((library, lock, a, b));
        }
        for (_, lock, ..) in &contenders {
            self.queued(leader, lock, 2).await?;
        }
        // Anywhere in a tick, and in the clients' own intervals.
        tokio::time::sleep(Duration::from_millis(random.u64(1_000..4_000))).await;

        let fault = clock::now();
        let holders: Vec<&Process> = contenders.iter().map(|(_, _, a, _)| a).collect();
        form.strike(&self.servers, &self.network, a, &holders, &mut random).await?;
        let cut = (clock::now() - fault).as_secs_f64();
        let mut beliefs = Vec::new();
        for (library, _, a, b) in &mut contenders {
            a.prints(library.end_of_belief(), LIMIT).await?;
            b.prints("HELD", LIMIT).await?;
            let since = |process: &Process, word| {
                Ok::<_, anyhow::Error>(first(&process.stdout(), word)? - fault.as_secs_f64())
            };
            beliefs.push(Belief {
                library: *library,
                a_ended: since(a, library.end_of_belief())?,
                b_held: since(b, "HELD")?,
                a_still_says_held: !a.stdout().contains("GONE"),
            });
        }
        drop(contenders);
        forms::heal(&self.servers, &self.network)?;
        Ok(Run { form, seed, cut, beliefs })
    }

    fn holder(
        &self,
        library: Library,
        host: usize,
        servers: &[usize],
        lock: &str,
    ) -> Result<Process> {
        let servers: Vec<String> =
            servers.iter().map(|server| self.servers.server(*server).connect_string()).collect();
        let mut command = library.command()?;
        command.arg(servers.join(",")).arg(lock).arg(SESSION.as_millis().to_string());
        let name = format!("{}-{host}", &lock[1..]);
        Process::spawn(&name, &self.network.host(host).command(&command), self.folder.path())
    }

    /// Waits until there are as many contenders for a lock.
    async fn queued(&self, leader: usize, lock: &str, wanted: usize) -> Result<()> {
        let start = Instant::now();
        let prefix = format!("{lock}/");
        loop {
            let dump = self.servers.server(leader).four_letter("dump").await.unwrap_or_default();
            if dump.matches(&prefix).count() >= wanted {
                return Ok(());
            }
            if start.elapsed() > LIMIT {
                bail!("not {wanted} contenders in {lock} after {LIMIT:?}:\n{dump}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// When a contender first said a word, in seconds of the shared clock.
fn first(output: &str, word: &str) -> Result<f64> {
    let line = output.lines().find_map(|line| {
        let (time, said) = line.split_once(' ')?;
        said.starts_with(word).then_some(time)
    });
    let nanos: u64 = line.with_context(|| format!("no {word} in:\n{output}"))?.parse()?;
    Ok(Duration::from_nanos(nanos).as_secs_f64())
}
