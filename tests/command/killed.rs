//! `lockkeeper` is killed, or its watchdog.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

use crate::serve::{in_memory, served};
use crate::support::{Home, LIMIT, eventually, is_alive};

/// Writes the time to a file again and again.
const BEATS: &str = "echo ready; while :; do date +%s%N > beat.new; mv beat.new beat; done";

/// Longer than a test takes, so that a wait for the expiry of a session fails the test.
const SESSION: &str = "--session-timeout 60s";

/// The next holder waited until the session of the one that was killed had expired.
///
/// Fails with a watchdog that does not close the session.
#[tokio::test]
async fn a_killed_holder_keeps_nobody_waiting() -> Result<()> {
    let home = Home::new()?;
    killed_holder_keeps_nobody_waiting(&home, SESSION).await
}

/// The same with a server that is named, and with credentials.
#[tokio::test]
async fn a_holder_of_a_server_that_is_killed_keeps_nobody_waiting() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --durability memory --tick 3s";
    let (_server, address) = served(&home, "s", options).await?;
    let options = format!("{SESSION} --server-tick 3s --digest me:secret --connect {address}");
    killed_holder_keeps_nobody_waiting(&home, &options).await
}

/// Also used where the connection needs more than an address.
pub(crate) async fn killed_holder_keeps_nobody_waiting(home: &Home, options: &str) -> Result<()> {
    let mut holder = home.says("ready", "holder", &format!("{options} l"), BEATS).await?;
    let script = "date +%s%N; cat beat; sleep 0.2; cat beat";
    let mut next = home.starts("next", &format!("{options} l"), script)?;
    home.in_line_at(options, "l", 2)?;

    holder.kill();
    assert_eq!(next.end(LIMIT).await?.code(), Some(0), "{}", next.tail());
    let times: Vec<u128> = next.stdout().lines().map(str::parse).collect::<Result<_, _>>()?;
    let [granted, last, later] = times[..] else { anyhow::bail!("{}", next.tail()) };
    assert!(last < granted && later == last, "the command went on: {}", next.tail());
    assert_eq!(holder.stderr(), "", "it is nobody's mistake");
    Ok(())
}

/// C6: processes that the command had started in another process group ran concurrently with the next holder.
///
/// Fails with a watchdog that kills the group alone.
#[tokio::test]
async fn what_has_left_the_group_does_not_outlive_the_lock() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    // One has a session of its own, one is a group of a shell's, one belongs to a run within the run.
    let script = format!(
        "setsid sh -c 'echo $$ >a; exec sleep 600' & \
         setsid sh -c 'sleep 600 & echo $! >b; wait' & \
         {} {SESSION} run -q inner -- setsid sh -c 'echo $$ >c; exec sleep 600' & \
         while [ ! -s a ] || [ ! -s b ] || [ ! -s c ]; do sleep 0.05; done; echo ready; wait",
        program.display()
    );
    let mut holder = home.says("ready", "holder", &format!("{SESSION} outer"), &script).await?;
    // A process that is not waited for still exists, as a zombie.
    let look =
        "for name in a b c; do grep -v ') [ZX] ' /proc/$(cat $name)/stat 2>/dev/null; done; true";
    let mut next = home.starts("next", &format!("{SESSION} outer"), look)?;
    home.in_line_at(SESSION, "outer", 2)?;

    holder.kill();
    assert_eq!(next.end(LIMIT).await?.code(), Some(0), "{}", next.tail());
    assert_eq!(next.stdout(), "", "{}", next.tail());
    // The run within had a watchdog of its own, which gives its lock back.
    home.runs("-w 30s inner", "true")?.is_fine();
    Ok(())
}

/// Processes that a command leaves behind when it ends by itself continue. An engine that it has started does
/// not belong to a run, and outlives it.
#[tokio::test]
async fn a_command_that_overruns_takes_its_processes_with_it_and_not_the_engine() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let runs = |name: &str| -> Result<bool> {
        let id = fs::read_to_string(home.folder().join(name))?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", id.trim()));
        Ok(stat.is_ok_and(|stat| !stat.contains(") Z ")))
    };
    let start = |name: &str| {
        format!(
            "setsid sh -c 'echo $$ >{name}; exec sleep 600' >/dev/null 2>&1 & \
             while [ ! -s {name} ]; do sleep 0.05; done;"
        )
    };

    home.runs(&format!("--connect {address} l"), &start("kept"))?.is_fine();
    let engine = format!("env -u LOCKKEEPER_CONNECT {} run -q own -- true;", program.display());
    let script = format!("{} {engine} touch started; exec sleep 600", start("ended"));
    let overrun = home.runs(&format!("--connect {address} --max-run 8s l"), &script)?;
    assert_eq!(overrun.code, Some(124), "{overrun:?}");
    assert!(!runs("ended")?, "it has outlived the lock");
    assert!(runs("kept")?, "a process of another run was ended");
    assert!(home.folder().join("started").exists(), "it took too long: {overrun:?}");
    assert_eq!(home.json("local status")?["running"], true);

    let kept = fs::read_to_string(home.folder().join("kept"))?;
    let kept = Pid::from_raw(kept.trim().parse()?).context("no process id")?;
    Ok(kill_process(kept, Signal::KILL)?)
}

/// Symptom: the command got TERM twice, once as a member of its group and once by its environment; some programs
/// take the second one for an order to end at once.
#[test]
fn a_command_is_asked_to_end_once() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'echo asked' TERM; while :; do sleep 0.05; done";
    let overrun = home.runs("--max-run 1s --kill-after 2s l", script)?;
    assert_eq!((overrun.code, &*overrun.stdout), (Some(124), "asked\n"), "{overrun:?}");
    Ok(())
}

/// C7: the watchdog had the credentials in its environment for as long as the command ran.
#[tokio::test]
async fn the_watchdog_shows_no_credentials() -> Result<()> {
    let home = Home::new()?;
    let script = "echo ready; exec sleep 600";
    let mut command = home.command_of(&["run", "l", "--", "sh", "-c", script]);
    command.env("LOCKKEEPER_DIGEST", "me:secret");
    let mut process = Process::spawn("holder", &command, home.folder())?;
    process.prints("ready", LIMIT).await?;
    let mut found = None;
    eventually("a watchdog", || {
        found = watchdog(process.id()).ok();
        Ok(found.is_some())
    })?;
    let id = found.context("no watchdog")?.as_raw_nonzero();
    let environment = fs::read_to_string(format!("/proc/{id}/environ"))?;
    assert!(!environment.contains("secret"), "{environment:?}");
    process.kill();
    Ok(())
}

/// Who was behind a run that was killed in line waited until its session had expired; and a run that
/// was killed just as it got the lock kept it as long, because its watchdog was started only then.
///
/// Fails with a watchdog that is started when the lock is held.
#[tokio::test]
async fn a_killed_waiter_leaves_the_line() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "l").await?;
    let mut waiter = home.starts("waiter", &format!("{SESSION} l"), "true")?;
    home.in_line("l", 2)?;
    waiter.kill();
    home.in_line("l", 1)?;
    assert_eq!(waiter.stderr(), "", "it is nobody's mistake");
    holder.kill();
    Ok(())
}

/// The same wherever on the way to the command it is killed: five of 62 kept the lock.
///
/// Fails with a watchdog that is started when the lock is held.
#[test]
fn a_run_that_is_killed_on_the_way_keeps_nobody_waiting() -> Result<()> {
    const KILLS: u32 = 40;
    let home = Home::new()?;
    let start = Instant::now();
    home.runs("l", "true")?.is_fine();
    let whole = start.elapsed();
    for kill in 0..KILLS {
        let script = "trap '' TERM INT HUP; while :; do :; done";
        let options = format!("{SESSION} --lock-delay 1ms l");
        let mut process = home.starts("killed", &options, script)?;
        std::thread::sleep(whole * kill / KILLS);
        process.kill();
        home.runs("-q -w 30s --lock-delay 1ms l", "true")?.is_fine();
    }
    Ok(())
}

/// A command that was started just before lockkeeper was killed was not known to the watchdog, which
/// then had to leave the lock to the session timeout.
///
/// Fails when lockkeeper tells the watchdog about the command, and not the process itself.
#[test]
fn a_command_is_known_to_the_watchdog_before_it_runs() -> Result<()> {
    let home = Home::new()?;
    let wrapped = home.command_of(&["__exec", &std::process::id().to_string(), "5"]);
    // Only this process inherits the pipe. Other processes started at the same time would keep it open.
    let mut command = Command::new("sh");
    command.args(["-c", "exec 5>&1 >ran; exec \"$@\"", "sh"]).arg(wrapped.get_program());
    command.args(wrapped.get_args()).args(["sh", "-c", "echo it runs; exec sleep 60"]);
    command.current_dir(home.folder()).process_group(0).stdout(Stdio::piped());
    let mut child = command.spawn()?;

    // The pipe ends although the command runs: it is only open in lockkeeper.
    let mut told = String::new();
    child.stdout.take().context("no pipe")?.read_to_string(&mut told)?;
    let ran = home.folder().join("ran");
    eventually("it runs", || Ok(fs::read_to_string(&ran)? == "it runs\n"))?;
    child.kill()?;
    child.wait()?;
    assert_eq!(told.trim(), format!("{{\"Group\":{}}}", child.id()));
    Ok(())
}

/// Without a watchdog, the command of a stopped `lockkeeper` was not ended.
///
/// Fails when `Watchdog::keep` does nothing.
#[tokio::test]
async fn a_killed_watchdog_is_replaced() -> Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(6);
    let home = Home::new()?;
    let mut process = home.says("ready", "stopped", "--session-timeout 6s l", BEATS).await?;
    // The list of children may miss some while others end.
    let mut first = None;
    eventually("a watchdog", || {
        first = watchdog(process.id()).ok();
        Ok(first.is_some())
    })?;
    let first = first.context("no watchdog")?;
    kill_process(first, Signal::KILL)?;
    eventually("another watchdog", || Ok(watchdog(process.id()).is_ok_and(|pid| pid != first)))?;

    let stopped = SystemTime::now().duration_since(UNIX_EPOCH)?;
    process.pause()?;
    home.runs("--quiet l", "true")?.is_fine();
    let last: u64 = fs::read_to_string(home.folder().join("beat"))?.trim().parse()?;
    assert!(Duration::from_nanos(last) < stopped + TIMEOUT, "{}", process.tail());
    process.resume()?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    Ok(())
}

/// Fails when `Watchdog::keep` does nothing.
#[tokio::test]
async fn without_a_watchdog_the_command_is_ended() -> Result<()> {
    let home = Home::new()?;
    let mut process = home.says("ready", "unwatched", "l", BEATS).await?;
    eventually("the end", || {
        if let Ok(pid) = watchdog(process.id()) {
            // It may have ended in the meantime.
            let _ = kill_process(pid, Signal::KILL);
        }
        Ok(process.status()?.is_some())
    })?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(71), "{}", process.tail());
    let told = "the watchdog process was killed 5 times in a row; ending the command";
    assert!(process.stderr().contains(told), "{}", process.tail());
    home.in_line("l", 0)
}

/// The living watchdog of a `lockkeeper run`.
pub(crate) fn watchdog(parent: u32) -> Result<Pid> {
    let found = children(parent)?.into_iter().find(|child| {
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        // A zombie does not have any.
        line.split(|byte| *byte == 0).any(|word| word == b"__watchdog")
    });
    found.and_then(Pid::from_raw).context("no watchdog")
}

/// The child processes of a process, of whichever of its threads.
pub(crate) fn children(parent: u32) -> Result<Vec<i32>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{parent}/task"))? {
        let list = fs::read_to_string(task?.path().join("children"))?;
        children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(children)
}

/// Says to the test below that it runs in a process of its own.
const INNER: &str = "LOCKKEEPER_TEST_ADOPTS_ORPHANS";

/// Symptom: each run left a zombie to process 1, which in containers often does not wait for its children.
///
/// This test does not wait for them either: it runs again in a process that adopts all orphans, and
/// checks which it got.
///
/// Fails when `Watchdog::dismiss` does not wait.
#[test]
fn a_run_leaves_no_zombie() -> Result<()> {
    if std::env::var_os(INNER).is_none() {
        let mut again = Command::new(std::env::current_exe()?);
        again.args(["--exact", "killed::a_run_leaves_no_zombie", "--nocapture"]).env(INNER, "1");
        let output = again.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return Ok(());
    }

    set_child_subreaper(Some(getpid()))?;
    let home = Home::new()?;
    for script in ["true", "exit 3", "kill -9 $$"] {
        home.runs("l", script)?;
    }
    let all = children(std::process::id())?;
    let left: Vec<_> = all.into_iter().filter(|pid| !is_alive(*pid)).collect();
    assert!(left.is_empty(), "zombies: {left:?}");
    home.engine_pid()?;
    Ok(())
}
