//! The suite about the suites' own instruments: real servers start, fail and come back as the
//! test kit says, and the programs of `tests/interop` exclude each other without us.
//!
//! When this fails, no result of a suite with real peers means anything.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{
    Config, Mode, ZooKeeper, ZooKeeperEnsemble, shared, shared_chroot,
};
use lockkeeper_testkit::{java, python, scratch};

const LIMIT: Duration = Duration::from_secs(60);

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
    if !peers::ready(
        "peers: contenders, one server",
        &[Peer::ZooKeeper, Peer::Curator, Peer::Kazoo],
    ) {
        return Ok(());
    }
    let server = shared().await?;
    take_turns(&shared_chroot().await?, "/peers/lock").await?;
    leaves_no_session(server).await
}

#[tokio::test]
async fn curator_and_kazoo_take_turns_on_an_ensemble() -> Result<()> {
    if !peers::ready("peers: contenders, ensemble", &[Peer::ZooKeeper, Peer::Curator, Peer::Kazoo])
    {
        return Ok(());
    }
    let ensemble = ZooKeeperEnsemble::start(3).await?;
    take_turns(&ensemble.chroot("peers").await?, "/lock").await
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

/// Two programs of each kind, 20 rounds each, on one lock.
async fn take_turns(connect: &str, lock: &str) -> Result<()> {
    const ROUNDS: usize = 20;
    let folder = scratch::folder()?;
    let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
    let curator = java::Program::compile(&interop.join("CuratorContender.java"))?;
    let kazoo = || python::command(&interop.join("kazoo_contender.py"));

    let mut contenders = Vec::new();
    for (seed, (name, mut command)) in [
        ("curator-1", curator.command()),
        ("kazoo-1", kazoo()),
        ("curator-2", curator.command()),
        ("kazoo-2", kazoo()),
    ]
    .into_iter()
    .enumerate()
    {
        command.args([connect, lock, &ROUNDS.to_string()]).arg(folder.path());
        command.args(["10000", name, &seed.to_string(), "20"]);
        contenders.push((name, Process::spawn(name, &command, folder.path())?));
    }
    for (name, contender) in &mut contenders {
        contender.prints(&format!("DONE {ROUNDS}\n"), LIMIT).await?;
        let status = contender.end(LIMIT).await?;
        ensure!(status.success(), "{name}: {status}\n{}", contender.tail());
    }

    let entries = entries(&folder.path().join("log"))?;
    assert_eq!(entries.len(), contenders.len() * ROUNDS);
    let counts = entries.iter().map(|entry| entry.count);
    assert!(counts.eq(1..=entries.len()), "an update of the counter was lost: {entries:?}");
    assert!(
        entries.is_sorted_by(|earlier, later| earlier.czxid < later.czxid),
        "a later holder has an older node: {entries:?}"
    );
    let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names.len(), contenders.len());
    assert!(!folder.path().join("marker").exists());
    assert_eq!(children(connect, lock, &interop, folder.path()).await?, 0);
    Ok(())
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

async fn children(connect: &str, lock: &str, interop: &Path, folder: &Path) -> Result<usize> {
    let mut command: Command = python::command(&interop.join("kazoo_count.py"));
    command.args([connect, lock]);
    let mut count = Process::spawn("count", &command, folder)?;
    let status = count.end(LIMIT).await?;
    ensure!(status.success(), "{}", count.tail());
    Ok(count.stdout().trim().parse()?)
}

/// The word `dump` lists every session that owns ephemeral nodes.
async fn leaves_no_session(server: &ZooKeeper) -> Result<()> {
    let dump = server.four_letter("dump").await?;
    ensure!(dump.contains("Sessions with Ephemerals (0)"), "{dump}");
    Ok(())
}
