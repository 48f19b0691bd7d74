//! Where it happens: the servers, the programs, and the links between them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::network::{Host, Network};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::scratch;
use lockkeeper_testkit::zookeeper::{Config, ZooKeeperEnsemble};
use tempfile::TempDir;

use super::contender::{END, STOP, TROUBLE};
use super::diagnosis::{self, Disagreements, ROOT};
use super::programs::{PARTICIPANTS, Programs};
use super::recorder::Recorder;
use super::script::{Fault, FaultWay, Harm, Seat};
use crate::servers::{contenders, others};

/// How many servers there are; they are the first hosts of the network.
pub(super) const SERVERS: usize = 3;

/// How many hosts there are for programs.
pub(super) const SITES: usize = 3;

const HOSTS: u8 = 6;

/// Shorter than ZooKeeper's own, so that more happens in the same time. A server that is cut off
/// serves its clients on for longer than a session lasts, so that it matters what they believe.
pub(super) const TICK: Duration = Duration::from_secs(1);
const SYNC_LIMIT: &str = "10";
pub(super) const SESSION: Duration = Duration::from_secs(6);

/// Longer than anything takes that works, also on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(180);

/// How long programs of other libraries may take before the test intervenes.
const THEIR_LIMIT: Duration = Duration::from_secs(60);

/// All that runs.
pub(super) struct Field {
    // Before the network that they are on, and the folder that they write into.
    programs: Programs,
    servers: ZooKeeperEnsemble,
    network: Network,
    pub(super) recorder: Recorder,
    /// Set once a program was stuck, or nodes were left.
    pub(super) diagnosis: Option<String>,
    pub(super) disagreements: Disagreements,
    folder: TempDir,
}

impl Field {
    pub(super) async fn start(seed: u64) -> Result<Self> {
        let network = Network::start(HOSTS)?.with_wall_clocks()?;
        let hosts: Vec<_> = (0..SERVERS + SITES).map(|host| network.host(host).clone()).collect();
        let (hosts, sites) = hosts.split_at(SERVERS);
        let config =
            Config::new().tick(TICK).setting("syncLimit", SYNC_LIMIT).setting("initLimit", "20");
        let servers = config.ensemble_on(hosts).await?;
        let folder = scratch::folder()?;
        let recorder = Recorder::start(folder.path())?;

        let connect = servers.connect_string();
        run_to_its_end(&sites[0], "prepare", &[&connect], folder.path()).await?;
        let programs =
            Programs::start(seed, sites.to_vec(), connect, folder.path(), recorder.clone())?;
        let (diagnosis, disagreements) = (None, Disagreements::default());
        Ok(Self { programs, servers, network, recorder, diagnosis, disagreements, folder })
    }

    /// Does what is wrong, and returns at once, or when the part of it is over that ends by itself.
    pub(super) async fn strike(&mut self, fault: Fault) -> Result<()> {
        self.leave(TROUBLE)?;
        match fault {
            Fault::Server(seat, harm) => {
                let server = self.one_at(seat).await?;
                self.harm(server, harm)?;
                if (seat, harm) == (Seat::Leader, Harm::Isolate) {
                    let mut others = others(server).into_iter();
                    others.try_for_each(|other| self.network.reset(other, server))?;
                }
            }
            Fault::KillMajority => {
                let both = [self.one_at(Seat::Leader).await?, self.one_at(Seat::Follower).await?];
                both.into_iter().try_for_each(|server| self.harm(server, Harm::Kill))?;
            }
            Fault::RollingRestart => {
                let leader = self.one_at(Seat::Leader).await?;
                for server in others(leader).into_iter().chain([leader]) {
                    self.servers.server_mut(server).begin_restart()?;
                    self.settles().await?;
                }
            }
            Fault::PauseAndIsolateFollower(pause) => {
                let follower = self.one_at(Seat::Follower).await?;
                self.harm(follower, Harm::Pause)?;
                tokio::time::sleep(pause).await;
                self.servers.resume(follower)?;
                self.harm(follower, Harm::Isolate)?;
            }
            Fault::PauseParticipant(index) => self.programs.pause(index)?,
            Fault::KillParticipant(index) => self.programs.kill(index),
            Fault::CutSite(site, way) => self.cut_site(site, way)?,
            Fault::ExpireEverybody => {
                (0..SITES).try_for_each(|site| self.cut_site(site, FaultWay::Both))?;
            }
            Fault::Jump(clocks) => {
                for (host, seconds) in clocks.into_iter().enumerate() {
                    self.network.host(host).jump_to(seconds)?;
                }
            }
        }
        Ok(())
    }

    /// Ends all that is wrong; only the wall clocks stay where they are.
    pub(super) fn heal(&mut self) -> Result<()> {
        fs::remove_file(self.folder.path().join(TROUBLE))?;
        self.network.heal()?;
        self.start_dead_servers()?;
        (0..SERVERS).try_for_each(|server| self.servers.resume(server))?;
        self.programs.go_on()
    }

    /// Some end by themselves, and count on being started again.
    fn start_dead_servers(&mut self) -> Result<()> {
        for server in 0..SERVERS {
            let server = self.servers.server_mut(server);
            if server.has_ended()? {
                server.begin_restart()?;
            }
        }
        Ok(())
    }

    async fn settles(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.start_dead_servers()?;
            match self.servers.settles(Duration::from_secs(10)).await {
                Err(error) if start.elapsed() > LIMIT => return Err(error),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    fn harm(&mut self, server: usize, harm: Harm) -> Result<()> {
        let mut others = others(server).into_iter();
        match harm {
            Harm::Kill => self.servers.kill(server),
            Harm::Isolate => self.network.isolate(server, others.as_slice())?,
            Harm::Mute => others.try_for_each(|other| self.network.cut_one_way(server, other))?,
            Harm::Pause => self.servers.pause(server)?,
        }
        Ok(())
    }

    fn cut_site(&self, site: usize, way: FaultWay) -> Result<()> {
        let site = SERVERS + site;
        (0..SERVERS).try_for_each(|server| match way {
            FaultWay::Both => self.network.cut(site, server),
            FaultWay::Requests => self.network.cut_one_way(site, server),
            FaultWay::Replies => self.network.cut_one_way(server, site),
        })
    }

    /// They may still be choosing, after what went wrong before.
    async fn one_at(&self, seat: Seat) -> Result<usize> {
        let start = Instant::now();
        loop {
            let found = match seat {
                Seat::Leader => self.servers.leader().await,
                Seat::Follower => self.servers.follower().await,
            };
            match found {
                Err(error) if start.elapsed() > LIMIT => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                found => return found,
            }
        }
    }

    /// Waits until every worker has held once more than before. Otherwise the history shows
    /// which worker has not.
    pub(super) async fn everybody_goes_on(&mut self) -> Result<bool> {
        self.settles().await?;
        let before = self.recorder.turns();
        let start = Instant::now();
        let mut helped = false;
        loop {
            let stuck = without_turn(&before, &self.recorder.turns());
            if stuck.is_empty() {
                return Ok(true);
            }
            if start.elapsed() > LIMIT {
                for who in stuck {
                    self.recorder.note(&who, What::Stuck("gets no turn any more".into()));
                }
                self.diagnose().await;
                return Ok(false);
            }
            self.programs.all_run()?;
            if start.elapsed() > THEIR_LIMIT && !helped {
                helped = true;
                self.programs.help(&stuck)?;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Makes all programs release what they hold, and checks for remains. Lockkeeper programs stay connected until
    /// then. Before that, the nodes of waiters show servers that disagree.
    pub(super) async fn end(&mut self) -> Result<()> {
        let disagreements = diagnosis::compare(&self.servers).await;
        disagreements.found.iter().for_each(|what| println!("THE SERVERS DISAGREE: {what}"));
        self.servers_disagree(disagreements);
        self.leave(STOP)?;
        self.programs.theirs_end(THEIR_LIMIT).await;
        let start = Instant::now();
        loop {
            let left = match contenders(&self.servers, "/locks/").await {
                Ok(left) if left.is_empty() => break,
                Ok(left) => left.join(", "),
                Err(error) => format!("unknown: {error:#}"),
            };
            if start.elapsed() > LIMIT {
                self.recorder.note("world", What::Left(left));
                self.diagnose().await;
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.leave(END)?;
        self.programs.ours_end(LIMIT).await;
        // Nobody writes any more.
        let folder = self.folder.path();
        let arguments = [&self.servers.connect_string(), &folder.display().to_string()];
        run_to_its_end(self.network.host(SERVERS), "look", &arguments, folder).await
    }

    async fn diagnose(&mut self) {
        let sessions = self.recorder.sessions();
        let (text, disagreements) = diagnosis::diagnose(&self.servers, &sessions).await;
        self.servers_disagree(disagreements);
        self.diagnosis = Some(text);
    }

    /// Whether servers with different trees are behind all that got stuck and all that was left. One that says
    /// so itself does not say what it lost.
    pub(super) fn is_explained(&self) -> bool {
        let lost = &self.disagreements.lost;
        if lost.is_empty() {
            return !self.disagreements.found.is_empty();
        }
        let history = self.recorder.history();
        history.entries().iter().all(|entry| match &entry.what {
            What::Stuck(_) => {
                let lock = entry.who.rsplit('/').next().unwrap_or_default();
                lost.iter().any(|path| path.starts_with(&format!("{ROOT}/{lock}")))
            }
            What::Left(nodes) => nodes.split(", ").all(|path| lost.contains(path)),
            _ => true,
        })
    }

    fn servers_disagree(&mut self, Disagreements { found, lost }: Disagreements) {
        for what in &found {
            let what = What::Note(format!("THE SERVERS DISAGREE: {what}"));
            self.recorder.note("world", what);
        }
        self.disagreements.found.extend(found);
        self.disagreements.lost.extend(lost);
    }

    /// Where servers and programs leave what they write, each with a name for it.
    pub(super) fn folders(&self) -> Vec<(String, &Path)> {
        let servers = (0..SERVERS)
            .map(|server| (format!("server-{}", server + 1), self.servers.server(server).folder()));
        servers.chain([("programs".to_owned(), self.folder.path())]).collect()
    }

    /// Leaves a word for all programs.
    fn leave(&self, word: &str) -> Result<()> {
        Ok(fs::write(self.folder.path().join(word), "")?)
    }
}

/// Runs this program on a host, in a role that ends by itself.
async fn run_to_its_end(
    host: &Host,
    role: &str,
    arguments: &[&String],
    folder: &Path,
) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", role]).args(arguments);
    let mut process = Process::spawn(role, &host.command(&command), folder)?;
    ensure!(process.end(LIMIT).await?.success(), "cannot {role}: {}", process.tail());
    Ok(())
}

/// The workers that have not held since then.
fn without_turn(before: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> Vec<String> {
    let workers = PARTICIPANTS.iter().flat_map(|participant| participant.workers());
    workers.filter(|who| now.get(who) <= before.get(who)).collect()
}
