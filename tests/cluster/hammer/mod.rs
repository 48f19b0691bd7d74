//! Many processes, one lock, one file, and somebody who kills holders: no update may be lost.
//!
//! Each of fifty workers runs `lockkeeper run` until twenty of its runs have succeeded. Meanwhile
//! `kill -9` hits runs at random, half of the time the one that holds the lock.

mod languages;

pub(crate) use languages::the_command_takes_turns_with_curator_and_kazoo as languages;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{Client, FencingToken, ZnodePath};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::zookeeper::ZooKeeperEnsemble;
use lockkeeper_testkit::{command, scratch};
use rustix::process::{Pid, Signal, kill_process};

const WORKERS: usize = 50;
const UPDATES: usize = 20;
const LOCK: &str = "hammer/file";
const LIMIT: Duration = Duration::from_secs(300);

/// Each killed holder costs a session timeout, so there is an end to it.
const KILLS: usize = 30;

/// Exit codes of a run that did not get, or did not keep, the lock: what a busy machine may cause.
/// They are counted, and must stay exceptions.
const NO_SERVER: i32 = 75;
const LOCK_LOST: i32 = 79;

pub(crate) async fn on_the_machine_local_engine() -> Result<()> {
    let home = scratch::folder()?;
    let mut run = Command::new(command::lockkeeper()?);
    run.env("LOCKKEEPER_HOME", home.path()).env_remove("LOCKKEEPER_CONNECT");
    run.env("LOCKKEEPER_SYSTEM_HOME", "none");
    run.args(["--session-timeout", "2s"]);
    let stop = clone(&run, &["local", "stop"]);
    let result = hammer(run, &format!("unix:{}/engine.sock", home.path().display())).await;
    ensure!({ stop }.status()?.success(), "the engine does not stop");
    result
}

pub(crate) async fn on_an_ensemble() -> Result<()> {
    if !peers::ready("hammer: an ensemble", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let ensemble = ZooKeeperEnsemble::start(3).await?;
    let servers = ensemble.connect_string();
    let mut run = Command::new(command::lockkeeper()?);
    run.args(["--connect", &servers, "--session-timeout", "4s", "--server-tick", "500ms"]);
    hammer(run, &servers).await
}

/// What the workers, the killer and the judge share.
struct Field {
    run: Command,
    script: PathBuf,
    folder: PathBuf,
    live: Mutex<BTreeSet<u32>>,
    killed: AtomicUsize,
    passing: AtomicUsize,
    over: AtomicBool,
}

impl Field {
    fn live(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.live.lock().expect("no panic")
    }

    /// Ends whatever still runs.
    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        for pid in self.live().iter() {
            kill(*pid);
        }
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
    let field = Arc::new(Field {
        run,
        script: Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/hammer/critical_section.sh"),
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
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let field = Arc::clone(&field);
            thread::spawn(move || work(&field, number))
        })
        .collect();
    let joined = tokio::task::spawn_blocking(move || {
        let results: Vec<_> = workers.into_iter().map(|w| w.join().expect("no panic")).collect();
        results.into_iter().collect::<Result<Vec<_>>>()
    });
    let joined = tokio::time::timeout(LIMIT, joined).await;
    field.end();
    killer.join().expect("no panic");
    let succeeded = joined.context("the workers do not come to an end")???.concat();
    judge(&field, &succeeded)?;
    nothing_is_left(servers).await
}

/// Runs until enough of the runs have succeeded; returns their names.
fn work(field: &Field, number: usize) -> Result<Vec<String>> {
    let mut succeeded = Vec::new();
    for attempt in 0.. {
        if succeeded.len() == UPDATES {
            break;
        }
        ensure!(!field.over.load(Ordering::SeqCst), "worker {number} has not finished");
        let name = format!("{number}-{attempt}");
        match update(field, &name)? {
            Some(0) => succeeded.push(name),
            Some(NO_SERVER | LOCK_LOST) => drop(field.passing.fetch_add(1, Ordering::SeqCst)),
            None => {}
            Some(code) => bail!("run {name} ended with {code}"),
        }
    }
    Ok(succeeded)
}

/// One run; its exit code, or `None` if it was killed.
fn update(field: &Field, name: &str) -> Result<Option<i32>> {
    let mut command = clone(&field.run, &["run", "--quiet", LOCK, "--", "sh"]);
    command.arg(&field.script).arg(&field.folder).arg(name).stdin(Stdio::null());
    let mut child = command.spawn()?;
    field.live().insert(child.id());
    let status = child.wait()?;
    field.live().remove(&child.id());
    Ok(status.code())
}

fn kill_at_random(field: &Field, mut random: fastrand::Rng) {
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

fn judge(field: &Field, succeeded: &[String]) -> Result<()> {
    let log = std::fs::read_to_string(field.folder.join("log"))?;
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    let mut newest: Option<FencingToken> = None;
    for (index, line) in log.lines().enumerate() {
        let [token, number, run] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("line {}: {line:?}", index + 1);
        };
        ensure!(number.parse() == Ok(index + 1), "an update is lost at line {}: {line}", index + 1);
        let token: FencingToken = token.parse()?;
        ensure!(newest < Some(token), "the token of line {} does not grow: {line}", index + 1);
        newest = Some(token);
        *runs.entry(run).or_default() += 1;
    }
    ensure!(runs.values().all(|times| *times == 1), "a run made two updates");
    let missing = succeeded.iter().find(|run| !runs.contains_key(run.as_str()));
    ensure!(missing.is_none(), "the update of {missing:?} is lost");
    let (updates, killed) = (runs.len(), field.killed.load(Ordering::SeqCst));
    let passing = field.passing.load(Ordering::SeqCst);
    println!("{updates} updates, {killed} runs killed, {passing} without server or lock in time");
    ensure!(succeeded.len() == WORKERS * UPDATES && updates <= succeeded.len() + killed + passing);
    ensure!(killed > 0, "nobody was killed: the test shows nothing");
    ensure!(passing <= WORKERS, "too many runs without a server or a lock");
    Ok(())
}

async fn nothing_is_left(servers: &str) -> Result<()> {
    let client = Client::connect(servers).await?;
    let lock = ZnodePath::new(&format!("/{LOCK}"))?;
    // The sessions of those that were killed last are still to expire.
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
