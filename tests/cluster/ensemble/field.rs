//! Where it happens: the servers, the programs, and the links between them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lockkeeper_testkit::history::What;
use lockkeeper_testkit::network::Network;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::scratch;
use lockkeeper_testkit::zookeeper::{Config, Mode, ZooKeeperEnsemble};
use tempfile::TempDir;

use crate::ensemble::contender::{END, STOP, TROUBLE};
use crate::ensemble::diagnosis::{self, Diagnosis, Disagreements, ROOT};
use crate::ensemble::programs::{PARTICIPANTS, Programs};
use crate::ensemble::recorder::Recorder;
use crate::ensemble::script::{Fault, Way};

/// How many servers there are; they are the first hosts of the network.
pub(crate) const SERVERS: usize = 3;

/// How many hosts there are for programs.
pub(crate) const SITES: usize = 3;

const HOSTS: u8 = 6;

/// Shorter than ZooKeeper's own, so that more happens in the same time. A server that is cut off
/// serves its clients on for longer than a session lasts, so that it matters what they believe.
pub(crate) const TICK: Duration = Duration::from_secs(1);
const SYNC_LIMIT: &str = "10";
pub(crate) const SESSION: Duration = Duration::from_secs(6);

/// Longer than anything takes that works, also on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(180);

/// How long programs of other libraries may take, before somebody helps.
const THEIR_LIMIT: Duration = Duration::from_secs(60);

/// All that runs.
pub(crate) struct Field {
    // Before the network that they are on, and the folder that they write into.
    programs: Programs,
    servers: ZooKeeperEnsemble,
    network: Network,
    pub(crate) recorder: Recorder,
    /// Once somebody was stuck, or something was left.
    pub(crate) diagnosis: Option<Diagnosis>,
    pub(crate) disagreements: Disagreements,
    folder: TempDir,
}

impl Field {
    pub(crate) async fn start(seed: u64) -> Result<Self> {
        let network = Network::start(HOSTS)?.with_wall_clocks()?;
        let hosts: Vec<_> = (0..SERVERS + SITES).map(|host| network.host(host).clone()).collect();
        let (hosts, sites) = hosts.split_at(SERVERS);
        let config =
            Config::new().tick(TICK).setting("syncLimit", SYNC_LIMIT).setting("initLimit", "20");
        let servers = config.ensemble_on(hosts).await?;
        let folder = scratch::folder()?;
        let recorder = Recorder::start(folder.path())?;

        let mut prepare = Command::new(std::env::current_exe()?);
        prepare.arg("prepare").arg(servers.connect_string());
        let prepare = sites[0].command(&prepare);
        let mut prepare = Process::spawn("prepare", &prepare, folder.path())?;
        ensure!(prepare.end(LIMIT).await?.success(), "cannot prepare: {}", prepare.tail());

        let connect = servers.connect_string();
        let programs =
            Programs::start(seed, sites.to_vec(), connect, folder.path(), recorder.clone())?;
        let (diagnosis, disagreements) = (None, Disagreements::default());
        Ok(Self { programs, servers, network, recorder, diagnosis, disagreements, folder })
    }

    /// Does what is wrong, and returns at once, or when the part of it is over that ends by itself.
    pub(crate) async fn strike(&mut self, fault: Fault) -> Result<()> {
        self.leave(TROUBLE)?;
        match fault {
            Fault::KillLeader => self.servers.kill(self.leader().await?),
            Fault::KillFollower => self.servers.kill(self.follower().await?),
            Fault::KillMajority => {
                let (leader, follower) = (self.leader().await?, self.follower().await?);
                self.servers.kill(leader);
                self.servers.kill(follower);
            }
            Fault::RollingRestart => self.rolling_restart().await?,
            Fault::IsolateLeader => {
                let leader = self.leader().await?;
                self.isolate(leader)?;
                others(leader).try_for_each(|other| self.network.reset(other, leader))?;
            }
            Fault::IsolateFollower => self.isolate(self.follower().await?)?,
            Fault::MuteLeader => self.mute(self.leader().await?)?,
            Fault::MuteFollower => self.mute(self.follower().await?)?,
            Fault::PauseLeader => self.servers.pause(self.leader().await?)?,
            Fault::PauseFollower => self.servers.pause(self.follower().await?)?,
            Fault::PauseAndIsolateFollower { pause } => {
                let follower = self.follower().await?;
                self.servers.pause(follower)?;
                tokio::time::sleep(pause).await;
                self.servers.resume(follower)?;
                self.isolate(follower)?;
            }
            Fault::PauseParticipant(index) => self.programs.pause(index)?,
            Fault::KillParticipant(index) => self.programs.kill(index),
            Fault::CutSite(site, way) => self.cut_site(site, way)?,
            Fault::ExpireEverybody => {
                (0..SITES).try_for_each(|site| self.cut_site(site, Way::Both))?;
            }
            Fault::Jump { clocks } => {
                for (host, seconds) in clocks.into_iter().enumerate() {
                    self.network.host(host).jump_to(seconds)?;
                }
            }
        }
        Ok(())
    }

    /// Ends all that is wrong; only the wall clocks stay where they are.
    pub(crate) fn heal(&mut self) -> Result<()> {
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

    fn isolate(&self, server: usize) -> Result<()> {
        others(server).try_for_each(|other| self.network.cut(server, other))
    }

    fn mute(&self, server: usize) -> Result<()> {
        others(server).try_for_each(|other| self.network.cut_one_way(server, other))
    }

    fn cut_site(&self, site: usize, way: Way) -> Result<()> {
        let site = SERVERS + site;
        (0..SERVERS).try_for_each(|server| match way {
            Way::Both => self.network.cut(site, server),
            Way::Requests => self.network.cut_one_way(site, server),
            Way::Replies => self.network.cut_one_way(server, site),
        })
    }

    async fn rolling_restart(&mut self) -> Result<()> {
        let leader = self.leader().await?;
        for server in others(leader).chain([leader]) {
            self.servers.server_mut(server).begin_restart()?;
            self.settles().await?;
        }
        Ok(())
    }

    async fn leader(&self) -> Result<usize> {
        self.one_that_is(Mode::Leader).await
    }

    async fn follower(&self) -> Result<usize> {
        self.one_that_is(Mode::Follower).await
    }

    /// They may still be choosing, after what went wrong before.
    async fn one_that_is(&self, mode: Mode) -> Result<usize> {
        let start = Instant::now();
        loop {
            let found = match mode {
                Mode::Leader => self.servers.leader().await,
                _ => self.servers.follower().await,
            };
            match found {
                Ok(server) => return Ok(server),
                Err(error) if start.elapsed() > LIMIT => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Waits until every worker has held once more than before. If that is not so, the history says
    /// who has not.
    pub(crate) async fn everybody_goes_on(&mut self) -> Result<bool> {
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

    /// Has everybody give back what he has, and looks for what is left. Ours stay connected until
    /// then. Before, servers that disagree are told by the nodes of those who wait.
    pub(crate) async fn end(&mut self) -> Result<()> {
        let disagreements = diagnosis::compare(&self.servers).await;
        self.servers_disagree(&disagreements);
        disagreements.found.iter().for_each(|what| println!("THE SERVERS DISAGREE: {what}"));
        self.leave(STOP)?;
        self.programs.theirs_end(THEIR_LIMIT).await;
        let start = Instant::now();
        loop {
            let left = match self.contenders().await {
                Ok(left) if left.is_empty() => break,
                Ok(left) => left.join(", "),
                Err(error) => format!("nobody knows what: {error:#}"),
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
        let mut look = Command::new(std::env::current_exe()?);
        look.arg("look").arg(self.servers.connect_string()).arg(self.folder.path());
        self.run_on_a_site("look", &look).await
    }

    /// Runs a program of ours on the first site, to its end.
    async fn run_on_a_site(&self, name: &str, command: &Command) -> Result<()> {
        let command = self.network.host(SERVERS).command(command);
        let mut process = Process::spawn(name, &command, self.folder.path())?;
        ensure!(process.end(LIMIT).await?.success(), "cannot {name}: {}", process.tail());
        Ok(())
    }

    async fn diagnose(&mut self) {
        let diagnosis = diagnosis::diagnose(&self.servers, &self.recorder.sessions()).await;
        self.servers_disagree(&diagnosis.disagreements);
        self.diagnosis = Some(diagnosis);
    }

    /// Whether servers with different trees are behind all that got stuck and all that was left. One that says
    /// so itself does not say what it lost.
    pub(crate) fn is_explained(&self) -> bool {
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

    fn servers_disagree(&mut self, disagreements: &Disagreements) {
        self.disagreements.add(disagreements);
        for disagreement in &disagreements.found {
            self.recorder
                .note("world", What::Note(format!("THE SERVERS DISAGREE: {disagreement}")));
        }
    }

    /// Where servers and programs leave what they write, each with a name for it.
    pub(crate) fn folders(&self) -> Vec<(String, &Path)> {
        let servers = (0..SERVERS)
            .map(|server| (format!("server-{}", server + 1), self.servers.server(server).folder()));
        servers.chain([("programs".to_owned(), self.folder.path())]).collect()
    }

    /// The nodes of all that hold or wait, which are all ephemeral ones below the locks.
    async fn contenders(&self) -> Result<Vec<String>> {
        let leader = self.leader().await?;
        let dump = self.servers.server(leader).four_letter("dump").await?;
        let paths = dump.lines().map(str::trim).filter(|line| line.starts_with("/locks/"));
        Ok(paths.map(str::to_owned).collect())
    }

    /// Leaves a word for all programs.
    fn leave(&self, word: &str) -> Result<()> {
        Ok(fs::write(self.folder.path().join(word), "")?)
    }
}

fn others(one: usize) -> impl Iterator<Item = usize> {
    (0..SERVERS).filter(move |other| *other != one)
}

/// The workers that have not held since then.
fn without_turn(before: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> Vec<String> {
    let workers = PARTICIPANTS.iter().flat_map(|participant| participant.workers());
    workers.filter(|who| now.get(who) <= before.get(who)).collect()
}
