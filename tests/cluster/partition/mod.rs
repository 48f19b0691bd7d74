//! The value of exact leases: the server of a lock's holder is cut off from the others, but still
//! serves the holder, and the lock is granted to another client.
//!
//! Three real ZooKeeper servers and all clients are on hosts of their own (network namespaces).
//! A holds the lock through a server that is then cut off; B waits for it through the others. The
//! *overlap* is the time in which A had not yet learned of the loss although B had been granted the lock.
//! Lockkeeper's must always be zero.
//!
//! As a test, each form runs once, with our library only. The long form has Apache Curator and kazoo beside
//! ours, and Curator's `LeaderLatch` beside our `Election`, and writes `docs/guarantees/partition.md`.

mod report;

use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::ZooKeeperEnsemble;
use lockkeeper_testkit::{clock, python, scratch};
use lockkeeper_tests::{all, name};
use tempfile::TempDir;

use crate::programs::{Site, curator, first_said, interop};
use crate::servers::{LIMIT, Place, Servers, others, queued};

const SESSION: Duration = Duration::from_secs(6);

/// Where A and B are, after the servers.
const HOST_OF_A: usize = 3;
const HOST_OF_B: usize = 4;

/// Shorter than a client's patience with a silent server, and than what keeps a session alive.
const SHORT_PAUSE_MS: Range<u64> = 500..3_900;

#[derive(Args)]
pub(crate) struct PartitionOptions {
    /// How often each form runs; about 17 seconds each.
    #[arg(long, default_value_t = 20)]
    runs: u64,
    /// The seed of the first run; the following ones count up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = all::<CutForm>())]
    form: Vec<CutForm>,
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = all::<Library>())]
    peers: Vec<Library>,
}

/// One way in which a holder, or its server, leaves the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CutForm {
    /// A's follower is cut off from the other two servers.
    Follower,
    /// A's leader is cut off from its followers, which notice at once and elect another. The old
    /// leader does not know this and continues to serve.
    Leader,
    /// A's follower is paused for some seconds, and cut off as it resumes.
    Paused,
    /// A itself is paused for some seconds, and its follower is cut off as it resumes.
    ClientPaused,
    /// A's leader is paused until the others have elected another one, and for as long as it takes
    /// B to get the lock.
    LeaderPaused,
    /// The link between A and its follower is cut: both ways, or only one of them.
    Link,
    /// A is cut off from its follower for some seconds. As it is back, with the same session, its
    /// follower is cut off from the others.
    Returned,
}

impl CutForm {
    /// As in a headline.
    fn title(self) -> &'static str {
        match self {
            Self::Follower => "A follower is cut off from the others, not from its clients",
            Self::Leader => "A leader is deposed and does not know",
            Self::Paused => "A follower is paused, and cut off as it resumes",
            Self::ClientPaused => "A holder is paused, and its follower is cut off as it resumes",
            Self::LeaderPaused => "A leader is paused until the others have another",
            Self::Link => "The link between a holder and its follower is cut, or one way of it",
            Self::Returned => "A holder comes back after an outage, and its follower is cut off",
        }
    }

    /// The server of A, and those of B.
    async fn seats(self, servers: &ZooKeeperEnsemble) -> Result<(usize, Vec<usize>)> {
        let leader = servers.leader().await?;
        match self {
            Self::Leader | Self::LeaderPaused => Ok((leader, others(leader))),
            _ => Ok((servers.follower().await?, vec![leader])),
        }
    }

    /// Does it to `victim`, the server of A, or to A itself; returns when the cut is made.
    async fn strike(
        self,
        laboratory: &Laboratory,
        victim: usize,
        holders: &[&Process],
        random: &mut fastrand::Rng,
    ) -> Result<()> {
        let (servers, network) = (laboratory.servers.ensemble()?, &laboratory.network);
        match self {
            Self::Follower => {}
            Self::Leader => {
                network.isolate(victim, &others(victim))?;
                return others(victim).into_iter().try_for_each(|one| network.reset(one, victim));
            }
            Self::Paused => {
                servers.pause(victim)?;
                pause(random, SHORT_PAUSE_MS).await;
                servers.resume(victim)?;
                pause(random, 0..400).await;
            }
            Self::ClientPaused => {
                holders.iter().try_for_each(|holder| holder.pause())?;
                pause(random, SHORT_PAUSE_MS).await;
                holders.iter().try_for_each(|holder| holder.resume())?;
                pause(random, 0..400).await;
            }
            Self::LeaderPaused => return servers.pause(victim),
            Self::Link => {
                return match random.u8(0..3) {
                    0 => network.cut(HOST_OF_A, victim),
                    1 => network.cut_one_way(HOST_OF_A, victim),
                    _ => network.cut_one_way(victim, HOST_OF_A),
                };
            }
            Self::Returned => {
                network.cut(HOST_OF_A, victim)?;
                pause(random, SHORT_PAUSE_MS).await;
                network.heal()?;
                pause(random, 0..1_000).await;
            }
        }
        network.isolate(victim, &others(victim))
    }
}

async fn pause(random: &mut fastrand::Rng, milliseconds: Range<u64>) {
    tokio::time::sleep(Duration::from_millis(random.u64(milliseconds))).await;
}

/// A lock library, by its mutex or by its leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Library {
    Curator,
    CuratorLatch,
    Kazoo,
    Lockkeeper,
    LockkeeperElection,
}

impl Library {
    /// Those that may not have two holders.
    const OURS: [Self; 2] = [Self::Lockkeeper, Self::LockkeeperElection];

    fn title(self) -> &'static str {
        match self {
            Self::Curator => "Curator",
            Self::CuratorLatch => "Curator's LeaderLatch",
            Self::Kazoo => "kazoo",
            Self::Lockkeeper => "Lockkeeper",
            Self::LockkeeperElection => "Lockkeeper's Election",
        }
    }

    fn start(self, site: &Site, name: &str, lock: &str) -> Result<Process> {
        let session = SESSION.as_millis().to_string();
        let mut theirs = match self {
            Self::Curator => curator("CuratorHolder")?,
            Self::CuratorLatch => curator("CuratorLeader")?,
            Self::Kazoo => python::command(&interop().join("kazoo_holder.py")),
            Self::Lockkeeper | Self::LockkeeperElection => {
                let way = if self == Self::Lockkeeper { "lock" } else { "lead" };
                let rest = ["--session-ms", &session, "--way", way];
                return site.ours(name, "hold", lock, &rest);
            }
        };
        site.start(name, Command::args(&mut theirs, [&site.connect, lock, &session]))
    }

    /// What tells a holder not to go on: the peers' first warning, which their documentation asks
    /// to react to, or the end of our lease. A `LeaderLatch` takes that warning itself.
    fn end_of_belief(self) -> &'static str {
        match self {
            Self::Curator | Self::Kazoo => "SUSPENDED",
            _ => "GONE",
        }
    }
}

/// What one library's A and B said. Times are seconds since the fault began.
struct Belief {
    library: Library,
    /// When A learned, or decided, that it must stop.
    a_ended: f64,
    /// When B was granted the lock.
    b_held: f64,
    /// Whether A's library still said "held" when asked at the end of the run.
    a_still_says_held: bool,
}

impl Belief {
    /// For how long both believed to hold, in seconds.
    fn overlap(&self) -> f64 {
        (self.a_ended - self.b_held).max(0.0)
    }
}

/// One run.
struct CutRun {
    form: CutForm,
    seed: u64,
    /// When the cut was complete, in seconds since the fault began.
    cut: f64,
    beliefs: Vec<Belief>,
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    PartitionOptions { runs: 1, seed: 1, form: all(), peers: Library::OURS.to_vec() }.run().await
}

impl PartitionOptions {
    pub(crate) async fn run(&self) -> Result<()> {
        let mut needed = vec![Peer::ZooKeeper, Peer::Network];
        needed.extend(self.peers.contains(&Library::Kazoo).then_some(Peer::Kazoo));
        needed.extend((self.peers != Library::OURS).then_some(Peer::Curator));
        if !peers::ready("partition", &needed) {
            return Ok(());
        }
        let is_whole = self.form == all() && self.peers == all();
        let laboratory = Laboratory::start().await?;
        let mut runs = Vec::new();
        for seed in self.seed..self.seed + self.runs {
            for &form in &self.form {
                let run = laboratory.run(form, &self.peers, seed).await;
                let run = run.with_context(|| format!("form {}, seed {seed}", name(form)))?;
                print!("{}", report::lines(&run));
                runs.push(run);
                // After each, so that an experiment that is stopped leaves what it has measured.
                if is_whole {
                    report::write(&runs)?;
                }
            }
        }
        println!("\n{}", report::table(&runs));
        runs.iter().try_for_each(judge)
    }
}

/// The peers' figures are only reported; Lockkeeper's must be zero.
fn judge(run: &CutRun) -> Result<()> {
    for belief in run.beliefs.iter().filter(|belief| Library::OURS.contains(&belief.library)) {
        let (form, seed, overlap) = (name(run.form), run.seed, belief.overlap());
        ensure!(
            overlap == 0.0,
            "two holders for {overlap:.3} s. Again: cargo xtask partition --runs 1 --form {form} \
             --seed {seed}"
        );
    }
    Ok(())
}

/// The servers and the network, for many runs.
struct Laboratory {
    // Before the network that they are on.
    servers: Servers,
    network: Network,
    folder: TempDir,
}

impl Laboratory {
    async fn start() -> Result<Self> {
        let network = Network::start(5)?;
        let servers = Servers::start(Place::Ensemble, &network).await?;
        Ok(Self { servers, network, folder: scratch::folder()? })
    }

    /// One run with each of the libraries at the same time, on a lock each.
    async fn run(&self, form: CutForm, libraries: &[Library], seed: u64) -> Result<CutRun> {
        self.servers.settle().await?;
        let servers = self.servers.ensemble()?;
        let mut random = fastrand::Rng::with_seed(seed);
        let (a, b) = form.seats(servers).await?;
        let mut pairs = Vec::new();
        for &library in libraries {
            let lock = format!("/partition-{}-{seed}-{}", name(form), name(library));
            pairs.push((library, self.holder(library, HOST_OF_A, &[a], &lock)?, lock));
        }
        let mut contenders = Vec::new();
        for (library, mut a, lock) in pairs {
            a.prints("HELD", LIMIT).await?;
            let waits = self.holder(library, HOST_OF_B, &b, &lock)?;
            contenders.push((library, a, waits));
            queued(servers, &format!("{lock}/"), 2).await?;
        }
        // Anywhere in a tick, and in the clients' own intervals.
        tokio::time::sleep(Duration::from_millis(random.u64(1_000..4_000))).await;

        let fault = clock::now();
        let holders: Vec<&Process> = contenders.iter().map(|(_, a, _)| a).collect();
        form.strike(self, a, &holders, &mut random).await?;
        let cut = (clock::now() - fault).as_secs_f64();
        let mut beliefs = Vec::new();
        for (library, a, b) in &mut contenders {
            let end = library.end_of_belief();
            a.prints(end, LIMIT).await?;
            b.prints("HELD", LIMIT).await?;
            let since = |process: &Process, word| {
                let time = first_said(&process.stdout(), word).context("a line without a time")?;
                anyhow::Ok(time - fault.as_secs_f64())
            };
            beliefs.push(Belief {
                library: *library,
                a_ended: since(a, end)?,
                b_held: since(b, "HELD")?,
                a_still_says_held: !a.stdout().contains("GONE"),
            });
        }
        drop(contenders);
        self.servers.resume()?;
        self.network.heal()?;
        Ok(CutRun { form, seed, cut, beliefs })
    }

    fn holder(
        &self,
        library: Library,
        host: usize,
        seats: &[usize],
        lock: &str,
    ) -> Result<Process> {
        let servers = self.servers.ensemble()?;
        let connect: Vec<_> =
            seats.iter().map(|one| servers.server(*one).connect_string()).collect();
        let site = Site {
            connect: connect.join(","),
            host: Some(self.network.host(host).clone()),
            folder: self.folder.path().to_owned(),
        };
        library.start(&site, &format!("{}-{host}", &lock[1..]), lock)
    }
}
