//! The suite about the suites' own instruments: real servers start, fail and come back as the
//! test kit says, and the programs of `tests/interop` exclude each other without us.
//!
//! When this fails, no result of a suite with real peers means anything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{
    Config, Mode, ZooKeeper, ZooKeeperEnsemble, shared, shared_chroot,
};
use lockkeeper_testkit::{java, python, scratch};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const SESSION_MS: &str = "10000";
const HOLD_MS: &str = "20";
const ALL: &[Peer] = &[Peer::ZooKeeper, Peer::Curator, Peer::Kazoo];

#[tokio::test]
async fn a_server_alone_starts_stops_and_keeps_its_data() -> Result<()> {
    if !peers::ready("peers: a server alone", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let mut server = Config::new().extended_types().standalone().await?;
    assert_eq!(server.mode().await?, Mode::Standalone);
    let address = server.connect_string();

    server.pause()?;
    assert!(server.four_letter("ruok").await.is_err(), "a stopped process answers nothing");
    server.resume()?;
    assert_eq!(server.four_letter("ruok").await?, "imok");

    server.kill();
    assert!(server.four_letter("ruok").await.is_err());
    server.restart().await?;
    assert_eq!(server.connect_string(), address);
    assert_eq!(server.mode().await?, Mode::Standalone);
    Ok(())
}

#[tokio::test]
async fn an_ensemble_elects_and_takes_back_a_follower_and_a_leader() -> Result<()> {
    if !peers::ready("peers: an ensemble", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let mut ensemble = ZooKeeperEnsemble::start(3).await?;
    assert_eq!(
        modes(&ensemble).await,
        [Some(Mode::Leader), Some(Mode::Follower), Some(Mode::Follower)]
    );

    let follower = ensemble.follower().await?;
    ensemble.kill(follower);
    assert_eq!(modes(&ensemble).await, [Some(Mode::Leader), Some(Mode::Follower), None]);
    ensemble.restart(follower).await?;
    assert_eq!(ensemble.server(follower).mode().await?, Mode::Follower);

    let leader = ensemble.leader().await?;
    ensemble.kill(leader);
    let new = another_leader(&ensemble).await?;
    assert_ne!(new, leader);
    ensemble.restart(leader).await?;
    assert_eq!(ensemble.server(leader).mode().await?, Mode::Follower);
    ensemble.serves().await
}

#[tokio::test]
async fn curator_and_kazoo_take_turns_on_one_server() -> Result<()> {
    if !peers::ready("peers: contenders, one server", ALL) {
        return Ok(());
    }
    let rounds = Contest::start(shared_chroot().await?, "/peers/lock", "20")?.finish().await?;
    assert_eq!(rounds, [20; 4]);
    leaves_no_session(shared().await?).await
}

#[tokio::test]
async fn curator_and_kazoo_take_turns_on_an_ensemble() -> Result<()> {
    if !peers::ready("peers: contenders, an ensemble", ALL) {
        return Ok(());
    }
    let ensemble = ZooKeeperEnsemble::start(3).await?;
    let rounds = Contest::start(ensemble.chroot("peers").await?, "/lock", "20")?.finish().await?;
    assert_eq!(rounds, [20; 4]);
    Ok(())
}

#[tokio::test]
async fn curator_and_kazoo_go_on_when_the_leader_dies() -> Result<()> {
    if !peers::ready("peers: contenders, a leader's death", ALL) {
        return Ok(());
    }
    let mut ensemble = ZooKeeperEnsemble::start(3).await?;
    let mut contest = Contest::start(ensemble.chroot("peers").await?, "/lock", "8s")?;
    contest.everyone_is_inside_once().await?;
    let leader = ensemble.leader().await?;
    ensemble.kill(leader);
    another_leader(&ensemble).await?;
    ensemble.restart(leader).await?;
    contest.finish().await?;
    Ok(())
}

/// Leader first, dead last.
async fn modes(ensemble: &ZooKeeperEnsemble) -> Vec<Option<Mode>> {
    let mut modes = Vec::new();
    for index in 0..ensemble.size() {
        modes.push(ensemble.server(index).mode().await.ok());
    }
    modes.sort_by_key(|mode| match mode {
        Some(Mode::Leader) => 0,
        Some(_) => 1,
        None => 2,
    });
    modes
}

async fn another_leader(ensemble: &ZooKeeperEnsemble) -> Result<usize> {
    let start = Instant::now();
    loop {
        match ensemble.leader().await {
            Err(_) if start.elapsed() < LIMIT => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            leader => return leader,
        }
    }
}

/// Two programs of each kind on one lock.
struct Contest {
    connect: String,
    lock: &'static str,
    interop: PathBuf,
    // Before the folder, so that no process still writes when the folder is removed.
    contenders: Vec<(&'static str, Process)>,
    folder: TempDir,
}

impl Contest {
    /// `rounds` as the programs take it: a number, or seconds such as `6s`.
    fn start(connect: String, lock: &'static str, rounds: &str) -> Result<Self> {
        let folder = scratch::folder()?;
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let curator = java::Program::compile(&interop.join("CuratorContender.java"))?;
        let kazoo = || python::command(&interop.join("kazoo_contender.py"));

        let mut contenders = Vec::new();
        for (seed, name, mut command) in [
            ("1", "curator-1", curator.command()),
            ("2", "kazoo-1", kazoo()),
            ("3", "curator-2", curator.command()),
            ("4", "kazoo-2", kazoo()),
        ] {
            command.args([&connect, lock, rounds]).arg(folder.path());
            command.args([SESSION_MS, name, seed, HOLD_MS]);
            contenders.push((name, Process::spawn(name, &command, folder.path())?));
        }
        Ok(Self { connect, lock, interop, contenders, folder })
    }

    async fn everyone_is_inside_once(&mut self) -> Result<()> {
        for (_, contender) in &mut self.contenders {
            contender.prints("ROUND 1\n", LIMIT).await?;
        }
        Ok(())
    }

    /// Waits for the end and checks that all went well; returns how often each one was inside.
    async fn finish(mut self) -> Result<Vec<usize>> {
        let mut rounds = Vec::new();
        for (name, contender) in &mut self.contenders {
            let status = contender.end(LIMIT).await?;
            ensure!(status.success(), "{name}: {status}\n{}", contender.tail());
            let output = contender.stdout();
            let done = output.lines().find_map(|line| line.strip_prefix("DONE "));
            rounds.push(done.with_context(|| format!("{name} was never done"))?.parse()?);
        }
        self.check_log(rounds.iter().sum())?;
        ensure!(!self.folder.path().join("marker").exists(), "somebody is still inside");
        ensure!(self.children().await? == 0, "a contender's node is left below {}", self.lock);
        Ok(rounds)
    }

    fn check_log(&self, rounds: usize) -> Result<()> {
        let entries = entries(&self.folder.path().join("log"))?;
        let counts = entries.iter().map(|entry| entry.count);
        ensure!(counts.eq(1..=rounds), "an update of the counter was lost: {entries:?}");
        ensure!(
            entries.is_sorted_by(|earlier, later| earlier.czxid < later.czxid),
            "a later holder has an older node: {entries:?}"
        );
        let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        ensure!(names.len() == self.contenders.len(), "only {names:?} were ever inside");
        Ok(())
    }

    async fn children(&self) -> Result<usize> {
        let mut command = python::command(&self.interop.join("kazoo_count.py"));
        command.args([&self.connect, self.lock]);
        let mut count = Process::spawn("count", &command, self.folder.path())?;
        let status = count.end(LIMIT).await?;
        ensure!(status.success(), "{}", count.tail());
        Ok(count.stdout().trim().parse()?)
    }
}

/// A line that a contender wrote while it held the lock.
#[derive(Debug)]
struct Entry {
    name: String,
    count: usize,
    czxid: i64,
}

fn entries(log: &Path) -> Result<Vec<Entry>> {
    let text = fs::read_to_string(log).context("no contender was ever inside")?;
    text.lines().map(|line| entry(line).with_context(|| format!("odd line {line:?}"))).collect()
}

fn entry(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    Some(Entry {
        name: words.next()?.to_owned(),
        count: words.next()?.parse().ok()?,
        czxid: words.next()?.parse().ok()?,
    })
}

/// The word `dump` lists every session that owns ephemeral nodes.
async fn leaves_no_session(server: &ZooKeeper) -> Result<()> {
    let dump = server.four_letter("dump").await?;
    ensure!(dump.contains("Sessions with Ephemerals (0)"), "{dump}");
    Ok(())
}
