//! `--max-run` and `--at-least`: how long a command may run, and how long a lock is held at least.

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process};

use crate::killed::watchdog;
use crate::support::{Home, LIMIT, eventually, is_alive};

/// Longer than any test takes.
const LONG: &str = "--at-least 10m l";

#[test]
fn a_command_that_runs_for_too_long_is_ended() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'echo ending; exit 0' TERM; while :; do sleep 0.05; done";
    let ended = home.runs("--max-run 2s l", script)?;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(124), "ending\n"), "{ended:?}");
    let told = "/l: the command has run for 2s (--max-run); ending it";
    assert!(ended.stderr.contains(told), "{ended:?}");
    home.ends("run -n l -- true")?.is_fine();

    let ended = home.runs("--max-run 10m l", "exit 5")?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(5), ""), "{ended:?}");
    home.ends("run --max-run 0 l -- true")?.complains(64, &["--max-run", "longer than zero"]);
    Ok(())
}

#[tokio::test]
async fn one_that_does_not_listen_is_killed_with_all_its_parts() -> Result<()> {
    let home = Home::new()?;
    let script = "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $!; \
                  trap '' TERM; while :; do :; done";
    let mut process =
        home.says("\n", "stubborn", "--max-run 2s --kill-after 100ms l", script).await?;
    let part: i32 = process.stdout().trim().parse().context("no process id")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(124), "{}", process.tail());
    assert!(process.stderr().contains("did not end in time; sending KILL"), "{}", process.stderr());
    assert!(!is_alive(part), "it was ended before the lock was released");
    Ok(())
}

/// Processes that a command leaves behind, and that end at TERM, must end like the command.
#[test]
fn what_is_left_behind_is_ended_too() -> Result<()> {
    let home = Home::new()?;
    let script = "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' > /dev/null 2>&1 & \
                  echo $!; trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let ended = home.runs("--max-run 2s l", script)?;
    assert_eq!(ended.code, Some(124), "{ended:?}");
    let part: i32 = ended.stdout.trim().parse().context("no process id")?;
    assert!(!is_alive(part));
    Ok(())
}

/// A stopped command would otherwise hold the lock for good.
#[tokio::test]
async fn a_command_that_is_stopped_is_ended_too() -> Result<()> {
    let home = Home::new()?;
    let mut process = home.starts("stopped", "--max-run 1s l", "kill -STOP $$; echo on")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(124), "{}", process.tail());
    assert_eq!(process.stdout(), "");
    Ok(())
}

/// In an outage nothing of a command that is paused may run, so it gets no TERM.
#[tokio::test]
async fn a_command_that_is_paused_is_killed_where_it_stands() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'echo TERM' TERM; echo ready; while :; do sleep 0.01; done";
    let options = "--session-timeout 2s --on-outage pause --max-run 6s l";
    let mut process = home.says("ready", "paused", options, script).await?;
    let engine = home.signal_engine(Signal::STOP)?;
    let code = process.end(LIMIT).await?.code();
    kill_process(engine, Signal::CONT)?;
    assert_eq!(code, Some(124), "{}", process.tail());
    assert_eq!(process.stdout(), "ready\n");
    assert!(process.stderr().contains("(--max-run); killing it"), "{}", process.stderr());
    Ok(())
}

/// The loss of the lock is worse than a command that ran for too long, so the loss is reported.
#[tokio::test]
async fn a_loss_goes_over_a_command_that_ran_for_too_long() -> Result<()> {
    let home = Home::new()?;
    let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    let options = "--session-timeout 2s --on-lost kill --kill-after 10m --max-run 2s l";
    let mut process = home.says("ready", "lost", options, script).await?;
    eventually("it is to end", || Ok(process.stderr().contains("--max-run")))?;
    let engine = home.signal_engine(Signal::STOP)?;
    let code = process.end(LIMIT).await?.code();
    kill_process(engine, Signal::CONT)?;
    assert_eq!(code, Some(79), "{}", process.tail());
    Ok(())
}

/// Starts a run whose command ends at once, and waits until it rests.
async fn resting(home: &Home, name: &str, options: &str, script: &str) -> Result<Process> {
    let process = home.says("done", name, options, script).await?;
    eventually("a notice", || {
        Ok(process.stderr().contains("the command has ended; holding /l for"))
    })?;
    Ok(process)
}

#[test]
fn the_lock_is_held_for_as_long_as_was_asked_for() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    // The second run begins when the first command has ended, and finds the lock held.
    let script = "date +%s%N > first; exit 3";
    let first = home.runs("-q --at-least 2s l", script)?;
    assert_eq!((first.code, first.stderr.as_str()), (Some(3), ""), "{first:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let began: u128 = std::fs::read_to_string(home.folder().join("first"))?.trim().parse()?;
    assert!(now - began > 1_900_000_000, "the rest of two seconds was left out");
    // Nothing is added to a command that takes longer.
    let line = format!("{} run -n l -- true", program.display());
    let ended = home.ends("run --at-least 1ms l -- sleep 0.05")?;
    ended.is_fine();
    let ended =
        home.runs("--at-least 10m other", &format!("{line}; kill -TERM $PPID; sleep 60"))?;
    assert_eq!(ended.code, Some(143), "a signal that was passed on leaves no rest: {ended:?}");
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_the_rest_and_the_code_is_the_commands() -> Result<()> {
    let home = Home::new()?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut process = resting(&home, "resting", LONG, "echo done; exit 7").await?;
        home.ends("run -n l -- true")?.complains(1, &["held by"]);
        process.signal(signal)?;
        assert_eq!(process.end(LIMIT).await?.code(), Some(7), "{}", process.tail());
        home.ends("run -n l -- true")?.is_fine();
    }
    Ok(())
}

#[tokio::test]
async fn a_request_ends_the_rest() -> Result<()> {
    let home = Home::new()?;
    let mut process = resting(&home, "asked", LONG, "echo done").await?;
    home.ends("revoke l")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(0), "{}", process.tail());
    assert!(process.stderr().contains("before --at-least has passed"), "{}", process.stderr());
    home.ends("run -n l -- true")?.is_fine();
    Ok(())
}

#[tokio::test]
async fn the_loss_of_the_lock_in_the_rest_is_no_failure() -> Result<()> {
    let home = Home::new()?;
    let script = "echo $LOCKKEEPER_NODE; echo done";
    let mut process = resting(&home, "lost", LONG, script).await?;
    let node = process.stdout().lines().next().context("a node")?.to_owned();
    let client = home.client().await?;
    client.delete(&lockkeeper::ZnodePath::new(&node)?, None).await?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(0), "{}", process.tail());
    assert!(process.stderr().contains("/l is lost"), "{}", process.stderr());
    client.close().await;
    Ok(())
}

/// The watchdog closes the session, and ends nothing that the command has left behind on purpose.
#[tokio::test]
async fn the_lock_is_free_when_lockkeeper_is_killed_in_the_rest() -> Result<()> {
    let home = Home::new()?;
    let script = "sh -c 'echo $$; exec sleep 60' & echo done";
    let options = "--session-timeout 40s --at-least 10m l";
    let mut process = resting(&home, "killed", options, script).await?;
    let left = process.stdout().lines().find_map(|line| line.parse::<i32>().ok());
    let left = left.context("no process id")?;
    process.kill();
    home.ends("run -w 20s l -- true")?.is_fine();
    assert!(is_alive(left));
    kill_process(Pid::from_raw(left).context("a process id")?, Signal::KILL)?;
    Ok(())
}

/// A watchdog that replaces one killed during the rest does not have a command to end.
///
/// Fails with a watchdog that gets the process group of the command.
#[tokio::test]
async fn a_watchdog_that_is_killed_in_the_rest_is_replaced() -> Result<()> {
    let home = Home::new()?;
    let options = "--session-timeout 40s --at-least 10m l";
    let script = "sh -c 'echo $$; exec sleep 60' & echo done";
    let mut process = resting(&home, "replaced", options, script).await?;
    let left = process.stdout().lines().find_map(|line| line.parse::<i32>().ok());
    let left = left.context("no process id")?;
    let lockkeeper = process.id();
    let first = watchdog(lockkeeper)?;
    kill_process(first, Signal::KILL)?;
    eventually("another one", || Ok(watchdog(lockkeeper).is_ok_and(|now| now != first)))?;
    process.kill();
    home.ends("run -w 20s l -- true")?.is_fine();
    assert!(is_alive(left));
    kill_process(Pid::from_raw(left).context("a process id")?, Signal::KILL)?;
    Ok(())
}
