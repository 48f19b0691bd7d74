//! `lockkeeper run`, a Java program with Curator and a Python program with kazoo on one path of a
//! real ZooKeeper: never two at once, and everyone gets a turn.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use lockkeeper::{Client, FencingToken, ZnodePath};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{command, java, python, scratch};

const LOCK: &str = "/locks/shared";
const TIME: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(120);

/// How many turns each must have had at least: far fewer than on an idle machine.
const TURNS: usize = 10;

pub(crate) async fn the_command_takes_turns_with_curator_and_kazoo() -> Result<()> {
    let peers = &[Peer::ZooKeeper, Peer::Curator, Peer::Kazoo];
    if !peers::ready("hammer: the command with Curator and kazoo", peers) {
        return Ok(());
    }
    // Built before the others start: that can take longer than the whole contest.
    let program = command::lockkeeper()?;
    let (servers, folder) = (shared_chroot().await?, scratch::folder()?);
    let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
    let curator = java::Program::compile(&interop.join("CuratorContender.java"))?.command();
    let kazoo = python::command(&interop.join("kazoo_contender.py"));
    let time = format!("{}s", TIME.as_secs());
    let mut others = Vec::new();
    for (name, mut command) in [("curator", curator), ("kazoo", kazoo)] {
        command.args([&servers, LOCK, &time]).arg(folder.path());
        command.args(["10000", name, "1", "10"]);
        others.push(Process::spawn(name, &command, folder.path())?);
    }
    for other in &mut others {
        other.prints("ROUND 1\n", LIMIT).await?;
    }
    let runs = tokio::task::spawn_blocking({
        let (servers, folder) = (servers.clone(), folder.path().to_owned());
        move || run_again_and_again(&program, &servers, &folder)
    });
    runs.await??;
    for other in &mut others {
        let status = other.end(LIMIT).await?;
        ensure!(status.success(), "{status}: {}", other.tail());
    }
    let log = std::fs::read_to_string(folder.path().join("log"))?;
    let turns = judge(&log)?;
    println!("{turns:?}");
    for name in ["lockkeeper", "curator", "kazoo"] {
        let had = turns.get(name).copied().unwrap_or_default();
        ensure!(had >= TURNS, "{name} had {had} turns: {turns:?}");
    }
    let client = Client::connect(&servers).await?;
    tokio::time::timeout(LIMIT, children_reach(&client, &ZnodePath::new(LOCK)?, 0)).await?
}

fn run_again_and_again(program: &Path, servers: &str, folder: &Path) -> Result<()> {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/hammer/shared_critical_section.sh");
    let started = Instant::now();
    while started.elapsed() < TIME * 3 / 4 {
        let mut run = Command::new(program);
        run.args([
            "--connect",
            servers,
            "--server-tick",
            "500ms",
            "run",
            "--quiet",
            LOCK,
            "--",
            "sh",
        ]);
        let output = run.arg(&script).arg(folder).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}: {said}{complained}", output.status);
    }
    Ok(())
}

/// Each line is `NAME COUNT TOKEN`; returns how many turns each has had.
fn judge(log: &str) -> Result<BTreeMap<&str, usize>> {
    let mut turns = BTreeMap::new();
    let mut newest: Option<FencingToken> = None;
    for (index, line) in log.lines().enumerate() {
        let [name, count, token] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("line {}: {line:?}", index + 1);
        };
        ensure!(count.parse() == Ok(index + 1), "a turn is lost at line {}: {line}", index + 1);
        let token: FencingToken = token.parse()?;
        ensure!(newest < Some(token), "the token of line {} does not grow: {line}", index + 1);
        newest = Some(token);
        *turns.entry(name).or_default() += 1;
    }
    Ok(turns)
}
