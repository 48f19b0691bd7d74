//! Many processes, one lock, one file, and a process that kills holders: no update may be lost.
//!
//! Each of fifty workers runs `lockkeeper run` until twenty of its runs have succeeded. Meanwhile
//! `kill -9` hits runs at random, half of the time the one that holds the lock.
//!
//! In another scenario, `lockkeeper run`, a Java program with Curator and a Python program with kazoo are on
//! one path: never two at once, and everyone gets a turn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{Client, FencingToken, ZnodePath};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{ZooKeeperEnsemble, shared_chroot};
use lockkeeper_testkit::{command, python, scratch};
use rustix::process::{Pid, Signal, kill_process};

use crate::programs::{curator, interop, plain};

const WORKERS: usize = 50;
const UPDATES: usize = 20;
const LOCK: &str = "locks/shared";
const LIMIT: Duration = Duration::from_secs(300);

/// Each killed holder costs a session timeout, so there is an end to it.
const KILLS: usize = 30;

/// Exit codes of a run that did not get, or did not keep, the lock: what a busy machine may cause.
/// They are counted, and must stay exceptions.
const NO_SERVER: i32 = 75;
const LOCK_LOST: i32 = 79;

/// For how long three languages take turns, and how many each must have had at least: far fewer than on an
/// idle machine.
const TIME: Duration = Duration::from_secs(15);
const TURNS: usize = 10;

pub(crate) async fn fifty_processes_on_the_machine_local_engine() -> Result<()> {
    let home = scratch::folder()?;
    let mut run = plain(&command::lockkeeper()?);
    run.env("LOCKKEEPER_HOME", home.path()).env("LOCKKEEPER_SYSTEM_HOME", "none");
    run.args(["--session-timeout", "2s"]);
    let mut stop = clone(&run, &["local", "stop"]);
    let result = hammer(run, &format!("unix:{}/engine.sock", home.path().display())).await;
    ensure!(stop.status()?.success(), "the engine does not stop");
    result
}

pub(crate) async fn fifty_processes_on_an_ensemble() -> Result<()> {
    if !peers::ready("hammer: an ensemble", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let ensemble = ZooKeeperEnsemble::start(3).await?;
    let servers = ensemble.connect_string();
    let mut run = plain(&command::lockkeeper()?);
    run.args(["--connect", &servers, "--session-timeout", "4s", "--server-tick", "500ms"]);
    hammer(run, &servers).await
}

/// What the workers, the killer and the judge share.
struct HammerField {
    run: Command,
    folder: PathBuf,
    live: Mutex<BTreeSet<u32>>,
    killed: AtomicUsize,
    passing: AtomicUsize,
    over: AtomicBool,
}

impl HammerField {
    fn live(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.live.lock().expect("no panic")
    }
}

fn kill(pid: u32) -> bool {
    let pid = Pid::from_raw(pid.cast_signed());
    pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

async fn hammer(run: Command, servers: &str) -> Result<()> {
    let seed = std::env::var("LOCKKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("LOCKKEEPER_SEED={seed}");
    let folder = scratch::folder()?;
    let field = Arc::new(HammerField {
        run,
        folder: folder.path().to_owned(),
        live: Mutex::default(),
        killed: AtomicUsize::new(0),
        passing: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    });
    std::fs::write(field.folder.join("log"), "")?;
    let killer = thread::spawn({
        let field = Arc::clone(&field);
        move || kill_at_random(&field, fastrand::Rng::with_seed(seed))
    });
    let workers = (0..WORKERS).map(|number| {
        let field = Arc::clone(&field);
        thread::spawn(move || work(&field, number))
    });
    let workers: Vec<_> = workers.collect();
    let joined = tokio::task::spawn_blocking(move || {
        let results: Vec<_> = workers.into_iter().map(|w| w.join().expect("no panic")).collect();
        results.into_iter().collect::<Result<Vec<_>>>()
    });
    let joined = tokio::time::timeout(LIMIT, joined).await;
    field.over.store(true, Ordering::SeqCst);
    for pid in field.live().iter() {
        kill(*pid);
    }
    killer.join().expect("no panic");
    judge(&field, &joined.context("the workers do not come to an end")???.concat())?;
    nothing_is_left(servers).await
}

/// Runs until enough of the runs have succeeded; returns their names.
fn work(field: &HammerField, number: usize) -> Result<Vec<String>> {
    let mut succeeded = Vec::new();
    for attempt in 0.. {
        if succeeded.len() == UPDATES {
            break;
        }
        ensure!(!field.over.load(Ordering::SeqCst), "worker {number} has not finished");
        let name = format!("{number}-{attempt}");
        let mut child = under_lock(&field.run, "critical_section.sh", &field.folder)
            .arg(&name)
            .stdin(Stdio::null())
            .spawn()?;
        field.live().insert(child.id());
        let status = child.wait()?;
        field.live().remove(&child.id());
        match status.code() {
            Some(0) => succeeded.push(name),
            Some(NO_SERVER | LOCK_LOST) => drop(field.passing.fetch_add(1, Ordering::SeqCst)),
            // It was killed.
            None => {}
            Some(code) => bail!("run {name} ended with {code}"),
        }
    }
    Ok(succeeded)
}

fn kill_at_random(field: &HammerField, mut random: fastrand::Rng) {
    while !field.over.load(Ordering::SeqCst) && field.killed.load(Ordering::SeqCst) < KILLS {
        thread::sleep(Duration::from_millis(random.u64(100..1500)));
        let holder = std::fs::read_to_string(field.folder.join("holder")).unwrap_or_default();
        let live = field.live();
        let any = live.iter().nth(random.usize(0..WORKERS)).copied();
        let holder = holder.trim().parse().ok().filter(|pid| live.contains(pid));
        let victim = if random.bool() { holder.or(any) } else { any };
        if victim.is_some_and(kill) {
            field.killed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn judge(field: &HammerField, succeeded: &[String]) -> Result<()> {
    let log = std::fs::read_to_string(field.folder.join("log"))?;
    let runs = turns(&log)?;
    ensure!(runs.values().all(|times| *times == 1), "a run made two updates");
    let missing = succeeded.iter().find(|run| !runs.contains_key(run.as_str()));
    ensure!(missing.is_none(), "the update of {missing:?} is lost");
    let (updates, killed) = (runs.len(), field.killed.load(Ordering::SeqCst));
    let passing = field.passing.load(Ordering::SeqCst);
    println!("{updates} updates, {killed} runs killed, {passing} without server or lock in time");
    ensure!(succeeded.len() == WORKERS * UPDATES && updates <= succeeded.len() + killed + passing);
    ensure!(killed > 0, "no process was killed, so the test is inconclusive");
    ensure!(passing <= WORKERS, "too many runs without a server or a lock");
    Ok(())
}

/// How often each name is in a log of lines `NAME NUMBER TOKEN`, of which none may be lost and none may have
/// an older token than the one before.
fn turns(log: &str) -> Result<BTreeMap<&str, usize>> {
    let mut turns = BTreeMap::new();
    let mut newest: Option<FencingToken> = None;
    for (index, line) in log.lines().enumerate() {
        let [name, number, token] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("line {}: {line:?}", index + 1);
        };
        ensure!(number.parse() == Ok(index + 1), "a turn is lost at line {}: {line}", index + 1);
        let token: FencingToken = token.parse()?;
        ensure!(newest < Some(token), "the token of line {} does not grow: {line}", index + 1);
        newest = Some(token);
        *turns.entry(name).or_default() += 1;
    }
    Ok(turns)
}

/// The sessions of those that were killed last are still to expire.
async fn nothing_is_left(servers: &str) -> Result<()> {
    let client = Client::connect(servers).await?;
    let lock = ZnodePath::new(&format!("/{LOCK}"))?;
    let left = children_reach(&client, &lock, 0);
    tokio::time::timeout(Duration::from_secs(30), left).await.context("a contender is left")?
}

/// The same command with arguments of its own.
fn clone(command: &Command, arguments: &[&str]) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args()).args(arguments);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    copy
}

/// A command that runs a script of ours under the lock.
fn under_lock(lockkeeper: &Command, script: &str, folder: &Path) -> Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/hammer");
    let mut run = clone(lockkeeper, &["run", "--quiet", LOCK, "--", "sh"]);
    run.arg(scripts.join(script)).arg(folder);
    run
}

// ----- three languages ------------------------------------------------------------------------

pub(crate) async fn three_languages() -> Result<()> {
    let peers = &[Peer::ZooKeeper, Peer::Curator, Peer::Kazoo];
    if !peers::ready("hammer: the command with Curator and kazoo", peers) {
        return Ok(());
    }
    // Built before the others start: that can take longer than the whole contest.
    let mut run = plain(&command::lockkeeper()?);
    let (servers, folder) = (shared_chroot().await?, scratch::folder()?);
    run.args(["--connect", &servers, "--server-tick", "500ms"]);
    let kazoo = python::command(&interop().join("kazoo_contender.py"));
    let (path, time) = (format!("/{LOCK}"), format!("{}s", TIME.as_secs()));
    let mut others = Vec::new();
    for (name, mut command) in [("curator", curator("CuratorContender")?), ("kazoo", kazoo)] {
        command.args([&servers, &path, &time]).arg(folder.path());
        command.args(["10000", name, "1", "10"]);
        others.push(Process::spawn(name, &command, folder.path())?);
    }
    for other in &mut others {
        other.prints("ROUND 1\n", LIMIT).await?;
    }
    let place = folder.path().to_owned();
    tokio::task::spawn_blocking(move || run_again_and_again(&run, &place)).await??;
    for other in &mut others {
        let status = other.end(LIMIT).await?;
        ensure!(status.success(), "{status}: {}", other.tail());
    }
    let log = std::fs::read_to_string(folder.path().join("log"))?;
    let turns = turns(&log)?;
    println!("{turns:?}");
    for name in ["lockkeeper", "curator", "kazoo"] {
        let had = turns.get(name).copied().unwrap_or_default();
        ensure!(had >= TURNS, "{name} had {had} turns: {turns:?}");
    }
    nothing_is_left(&servers).await
}

fn run_again_and_again(lockkeeper: &Command, folder: &Path) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < TIME * 3 / 4 {
        let mut run = under_lock(lockkeeper, "shared_critical_section.sh", folder);
        let output = run.stdin(Stdio::null()).output()?;
        let said = [output.stdout, output.stderr].concat();
        ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&said));
    }
    Ok(())
}
