//! The lock is lost while the command runs.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use lockkeeper::ZnodePath;
use lockkeeper::inspect::LockQueue;
use rustix::process::{Pid, Signal, kill_process};

use crate::serve::served;
use crate::support::{Home, LIMIT, eventually, is_alive};

/// What a session of 2 s is worth at most. Others may hold the lock when it is over.
const LEASE: Duration = Duration::from_secs(2);

/// Writes the time to a file again and again, and does not listen to TERM.
const STUBBORN: &str =
    "trap '' TERM; echo ready; while :; do date +%s%N > beat.new; mv beat.new beat; done";

/// A command that ignored TERM ran on when the next holder had the lock.
#[tokio::test]
async fn the_command_is_dead_before_the_deadline() -> Result<()> {
    let home = Home::new()?;
    let mut process = home.says("ready", "stubborn", "--session-timeout 2s l", STUBBORN).await?;
    let killed = kill_engine(&home)?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    let ended = now()?;
    let last: u64 = fs::read_to_string(home.folder().join("beat"))?.trim().parse()?;
    assert!(Duration::from_nanos(last) < killed + LEASE, "{}", process.tail());
    assert!(ended < killed + LEASE + Duration::from_secs(2), "release was given up too late");
    assert!(process.stderr().contains("ending the command"), "{}", process.stderr());
    Ok(())
}

#[tokio::test]
async fn the_command_may_end_by_itself_and_the_code_is_79() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'echo ending; kill $job; exit 0' TERM; sleep 60 & job=$!; echo ready; wait";
    let mut process = home.says("ready", "polite", "--session-timeout 2s l", script).await?;
    kill_engine(&home)?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    assert_eq!(process.stdout(), "ready\nending\n");
    Ok(())
}

/// After the command, lockkeeper went on for up to 2.5 s, waiting for servers that were gone.
///
/// Fails when it waits for the end of a session that no server can end.
#[tokio::test]
async fn nothing_is_waited_for_after_a_loss() -> Result<()> {
    /// How long a session may take to end where there is a server.
    const CLOSE: Duration = Duration::from_secs(2);
    let home = Home::new()?;
    let script = "trap 'date +%s%N > ended; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = home.says("ready", "polite", "--session-timeout 4s l", script).await?;
    kill_engine(&home)?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    let over = now()?;
    let ended: u64 = fs::read_to_string(home.folder().join("ended"))?.trim().parse()?;
    let longer = over.checked_sub(Duration::from_nanos(ended)).context("it ended first")?;
    assert!(longer < CLOSE, "{longer:?}: {}", process.tail());
    Ok(())
}

#[tokio::test]
async fn on_lost_kill_asks_nobody() -> Result<()> {
    let home = Home::new()?;
    let options = "--session-timeout 2s --on-lost kill l";
    let script = "trap 'echo TERM' TERM; echo ready; while :; do :; done";
    let mut process = home.says("ready", "killed", options, script).await?;
    kill_engine(&home)?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    assert_eq!(process.stdout(), "ready\n");
    Ok(())
}

#[tokio::test]
async fn on_lost_warn_lets_the_command_finish() -> Result<()> {
    let home = Home::new()?;
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let mut process = home.says("ready", "warned", "--on-lost warn l", script).await?;
    delete_holder(&home).await?;
    crate::support::eventually("the warning", || Ok(process.stderr().contains("continues")))?;
    fs::write(home.folder().join("go"), "")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(5), "{}", process.tail());
    Ok(())
}

/// An operator repairs a queue: a holder whose node was deleted must stop.
#[tokio::test]
async fn a_deleted_node_ends_the_command_at_once() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'echo ending; kill $job; exit 0' TERM; sleep 60 & job=$!; echo ready; wait";
    let mut process = home.says("ready", "deleted", "l", script).await?;
    delete_holder(&home).await?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    assert_eq!(process.stdout(), "ready\nending\n");
    assert!(process.stderr().contains("deleted by another client"), "{}", process.stderr());
    Ok(())
}

/// Symptom: the engine died, and was not restarted because no program waited. A command that could have
/// continued was ended with its lease.
#[tokio::test]
async fn a_holder_starts_its_engine_again() -> Result<()> {
    let home = Home::new()?;
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let mut process = home.says("ready", "holder", "l", script).await?;
    let before = home.signal_engine(Signal::KILL)?;
    eventually("another engine", || Ok(home.json("local status")?["running"] == true))?;
    assert_ne!(home.engine_pid()?, before.as_raw_nonzero().get());
    home.in_line("l", 1)?;
    fs::write(home.folder().join("go"), "")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(5), "{}", process.tail());
    assert!(process.stderr().contains("restarting it"), "{}", process.stderr());
    home.in_line("l", 0)
}

/// The engine died just before the command ended: the release hung for five seconds, and the node
/// stayed until its session expired.
#[test]
fn an_engine_that_dies_at_the_end_is_started_again_for_the_release() -> Result<()> {
    let home = Home::new()?;
    home.ends("local start")?.is_fine();
    let pid = home.engine_pid()?;
    let ended = home.runs("--session-timeout 300s l", &format!("kill -9 {pid}; exit 3"))?;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("restarting it"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert_eq!(home.json("show l")?["contenders"], serde_json::json!([]));
    Ok(())
}

#[test]
fn a_release_that_nobody_confirms_is_told_with_its_end() -> Result<()> {
    let home = Home::new()?;
    home.ends("local start")?.is_fine();
    let pid = home.engine_pid()?;
    let format = home.engine().join("data/FORMAT");
    let script = format!("echo broken > {}; kill -9 {pid}; exit 3", format.display());
    let ended = home.runs("--session-timeout 30s l", &script)?;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let told = "/l may stay held until its session expires, within 30s: ";
    assert!(ended.stderr.contains(told) && ended.stderr.contains("damaged"), "{ended:?}");
    Ok(())
}

/// Symptom: the lease was not renewed and the command was not ended, so it ran concurrently with the next holder.
#[tokio::test]
async fn the_command_is_dead_before_the_deadline_although_lockkeeper_is_stopped() -> Result<()> {
    let home = Home::new()?;
    let mut process = home.says("ready", "stopped", "--session-timeout 6s l", STUBBORN).await?;
    let stopped = now()?;
    process.pause()?;
    // Others get the lock when the session has expired.
    home.runs("--quiet l", "true")?.is_fine();
    let last: u64 = fs::read_to_string(home.folder().join("beat"))?.trim().parse()?;
    assert!(Duration::from_nanos(last) < stopped + Duration::from_secs(6), "{}", process.tail());
    // The watchdog writes it when the command has ended, and the test reads it from a pipe.
    eventually("the notice", || Ok(process.stderr().contains("the command was killed")))?;
    process.resume()?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    Ok(())
}

/// The same with `--on-lost warn`.
#[tokio::test]
async fn on_lost_warn_lets_the_command_go_on_although_lockkeeper_is_stopped() -> Result<()> {
    let home = Home::new()?;
    let script = "echo $$; while :; do sleep 0.05; done";
    let mut process =
        home.says("\n", "warned", "--session-timeout 1s --on-lost warn l", script).await?;
    let child = process.stdout().trim().parse()?;
    process.pause()?;
    home.runs("--quiet l", "true")?.is_fine();
    assert!(is_alive(child));
    process.resume()?;
    eventually("the warning", || Ok(process.stderr().contains("continues")))?;
    assert!(is_alive(child));
    process.kill();
    eventually("it dies with lockkeeper", || Ok(!is_alive(child)))
}

/// Whoever wants to be warned only gets the command continued as well, however late.
///
/// Fails when `Loss::leaves_time` looks at the lease alone: it stays stopped.
#[tokio::test]
async fn on_lost_warn_lets_a_stopped_command_go_on_after_the_lease() -> Result<()> {
    let home = Home::new()?;
    let script = "echo $$; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let mut process =
        home.says("\n", "warned", "--session-timeout 1s --on-lost warn l", script).await?;
    let child = Pid::from_raw(process.stdout().trim().parse()?).context("no process id")?;
    process.pause()?;
    kill_process(child, Signal::STOP)?;
    home.runs("--quiet l", "true")?.is_fine();
    process.resume()?;
    fs::write(home.folder().join("go"), "")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(5), "{}", process.tail());
    Ok(())
}

/// An engine that is stopped and restarted in time does not cost a holder its lock.
#[tokio::test]
async fn a_restart_of_the_engine_is_survived() -> Result<()> {
    let home = Home::new()?;
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let mut process = home.says("ready", "survivor", "l", script).await?;
    home.ends("local stop")?.is_fine();
    home.ends("run -n l -- true")?.complains(1, &["/l is not free"]);
    fs::write(home.folder().join("go"), "")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(5), "{}", process.tail());
    home.runs("-n l", "true")?.is_fine();
    Ok(())
}

/// Its server told it that its node was gone before it told that its session was over: it gave up, "deleted
/// by another client".
#[tokio::test]
async fn a_waiter_that_was_stopped_for_too_long_queues_again() -> Result<()> {
    let home = Home::new()?;
    let script = "echo ready; while [ ! -e go ]; do sleep 0.05; done";
    let mut first = home.says("ready", "first", "l", script).await?;
    let mut waiter = home.starts("waiter", "--session-timeout 1s l", "echo mine")?;
    home.in_line("l", 2)?;
    // A wait that is long enough for a look at its own node.
    eventually("it tells whom it waits for", || Ok(waiter.stderr().contains("waiting for /l")))?;

    waiter.pause()?;
    home.in_line("l", 1)?;
    waiter.resume()?;
    home.in_line("l", 2)?;
    fs::write(home.folder().join("go"), "")?;
    assert_eq!(first.end(LIMIT).await?.code(), Some(0), "{}", first.tail());
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    assert!(
        waiter.stderr().contains("lost with its session; joining again"),
        "{}",
        waiter.stderr()
    );
    Ok(())
}

async fn delete_holder(home: &Home) -> Result<()> {
    let client = home.client().await?;
    let queue = LockQueue::inspect(&client, &ZnodePath::new("/l")?).await?.context("no queue")?;
    let holder = queue.holders().next().context("no holder")?;
    client.delete(&holder.node, None).await?;
    client.close().await;
    Ok(())
}

/// Kills the engine for good, as a disk that dies; gives the time before that.
fn kill_engine(home: &Home) -> Result<Duration> {
    let pid = Pid::from_raw(home.engine_pid()?).context("no process id")?;
    fs::write(home.engine().join("data/FORMAT"), "something else\n")?;
    let before = now()?;
    kill_process(pid, Signal::KILL)?;
    Ok(before)
}

fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// K59: a worker that had been cut off for an hour looked like one that had nothing to do.
#[tokio::test]
async fn k59_an_outage_and_its_end_are_told_by_what_outlasts_it() -> Result<()> {
    let home = Home::new()?;
    let options = "--data-dir d --tick 500ms --quiet-time 0s";
    let (mut server, address) =
        served(&home, "first", &format!("--listen 127.0.0.1:0 {options}")).await?;
    let global = format!("--connect {address} --server-tick 500ms --session-timeout 1s");
    let mut all = Vec::new();
    for (name, what) in [
        ("work", "queue work jobs -- true"),
        ("join", "members join g"),
        ("register", "service register s/web --address localhost --port 80"),
        ("watch", "watch w -- echo ran"),
    ] {
        all.push(home.spawns(name, &format!("{global} {what}"))?);
    }
    let begun = |what: &str| home.json(&format!("{global} {what}"));
    eventually("one works", || Ok(begun("queue ls jobs")?["idle"] == 1))?;
    eventually("one is a member", || Ok(begun("members ls g")?["members"][0].is_object()))?;
    eventually("one is registered", || Ok(begun("service ls s/web")?["instances"][0].is_object()))?;

    all[3].prints("ran", LIMIT).await?;

    server.kill();
    let (cut_off, again) =
        ("lockkeeper: no server has been reachable", "lockkeeper: reconnected\n");
    for process in &all {
        eventually("the outage is told", || Ok(process.stderr().contains(cut_off)))?;
        assert!(!process.stderr().contains(again), "{}", process.tail());
    }
    let _server = served(&home, "second", &format!("--listen {address} {options}")).await?;
    for process in &mut all {
        eventually("its end is told", || Ok(process.stderr().contains(again)))?;
        assert_eq!(process.stderr().matches(cut_off).count(), 1, "{}", process.tail());
        assert!(process.status()?.is_none(), "{}", process.tail());
    }
    Ok(())
}
