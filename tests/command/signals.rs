//! Signals: passed on to the command, and the end of a wait.

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::support::{Home, LIMIT, eventually, is_alive};

const ALL: [(Signal, &str); 6] = [
    (Signal::INT, "INT"),
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

#[tokio::test]
async fn the_command_gets_every_signal() -> Result<()> {
    let home = Home::new()?;
    for (signal, name) in ALL {
        let script = format!(
            "trap 'echo got {name}; kill $job; exit 7' {name}; sleep 60 & job=$!; echo ready; wait"
        );
        let mut process = home.says("ready", name, "l", &script).await?;
        process.signal(signal)?;
        assert_eq!(process.end(LIMIT).await?.code(), Some(7), "{}", process.tail());
        assert_eq!(process.stdout(), format!("ready\ngot {name}\n"));
    }
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_a_wait_and_leaves_nothing() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "l").await?;
    for (signal, name) in ALL {
        let mut waiter = home.starts(name, "l", "echo mine")?;
        home.in_line("l", 2)?;
        waiter.signal(signal)?;
        assert_eq!(waiter.end(LIMIT).await?.code(), Some(128 + signal.as_raw()), "{name}");
        assert_eq!(waiter.stdout(), "");
        home.in_line("l", 1)?;
    }
    holder.kill();
    Ok(())
}

/// A signal that the parent process ignored is ignored by the command, too.
#[tokio::test]
async fn nohup_reaches_the_command() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let line = format!(
        "trap '' HUP; exec {} run l -- sh -c 'echo ready; read -r line < go; echo $line'",
        program.display()
    );
    let go = home.folder().join("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &go, 0o600.into())?;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &line]).env("LOCKKEEPER_HOME", home.engine()).current_dir(home.folder());
    command.env("LOCKKEEPER_SYSTEM_HOME", "none");
    let mut process =
        lockkeeper_testkit::process::Process::spawn("nohup", &command, home.folder())?;
    process.prints("ready", LIMIT).await?;
    process.signal(Signal::HUP)?;
    // The signal is there before anything that happens after it.
    std::fs::write(&go, "went on\n")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(0), "{}", process.tail());
    assert_eq!(process.stdout(), "ready\nwent on\n");
    Ok(())
}

/// An orphan that continues without its lock would be a second holder.
#[tokio::test]
async fn the_command_dies_with_lockkeeper() -> Result<()> {
    let home = Home::new()?;
    let mut process =
        home.says("\n", "killed", "l", "echo $$; trap '' TERM INT; while :; do :; done").await?;
    let child: i32 = process.stdout().trim().parse().context("no process id")?;
    assert!(is_alive(child));
    process.kill();
    eventually("the command is dead", || Ok(!is_alive(child)))
}

/// The kernel's death signal reaches the command alone, and not what it has started.
#[tokio::test]
async fn what_the_command_has_started_dies_with_lockkeeper() -> Result<()> {
    let home = Home::new()?;
    let script = "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $!; wait";
    let mut process = home.says("\n", "killed", "l", script).await?;
    let grandchild: i32 = process.stdout().trim().parse().context("no process id")?;
    assert!(is_alive(grandchild));
    process.kill();
    eventually("the whole group is dead", || Ok(!is_alive(grandchild)))
}

/// What the command leaves behind on purpose is not killed: only its own end ends the lock.
#[tokio::test]
async fn what_the_command_leaves_behind_goes_on() -> Result<()> {
    let home = Home::new()?;
    let script = "sh -c 'while [ ! -e go ]; do sleep 0.05; done; : > done' > /dev/null 2>&1 &";
    home.runs("l", script)?.is_fine();
    std::fs::write(home.folder().join("go"), "")?;
    eventually("it went on", || Ok(home.folder().join("done").exists()))
}

/// A stopped command has not ended, and runs again when it is continued.
#[tokio::test]
async fn a_command_that_is_stopped_from_elsewhere_keeps_the_lock() -> Result<()> {
    let home = Home::new()?;
    let mut process = home.says("\n", "stopped", "l", "echo $$; kill -STOP $$; echo on").await?;
    let child: i32 = process.stdout().trim().parse().context("no process id")?;
    let stat = format!("/proc/{child}/stat");
    eventually("it is stopped", || Ok(std::fs::read_to_string(&stat)?.contains(") T ")))?;
    home.in_line("l", 1)?;
    let child = rustix::process::Pid::from_raw(child).context("no process id")?;
    rustix::process::kill_process(child, Signal::CONT)?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(0));
    assert!(process.stdout().ends_with("on\n"));
    Ok(())
}
