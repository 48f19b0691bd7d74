//! Tests in a terminal: which process may read it, and Ctrl-Z. `script` of util-linux creates the terminal.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::support::{Ended, Home};

/// Runs a shell script in a terminal of its own, with job control, where `lockkeeper` is in the
/// PATH. Returns the contents of the screen.
fn in_terminal(home: &Home, script: &str) -> Result<Ended> {
    Ended::of(terminal(home, script)?.stdin(Stdio::null()))
}

/// What runs a shell script in a terminal of its own.
pub(crate) fn terminal(home: &Home, script: &str) -> Result<Command> {
    std::fs::write(home.folder().join("script.sh"), script)?;
    let mut command = with_lockkeeper(home, "script")?;
    command.args(["--quiet", "--return", "--command"]).arg("sh -m script.sh").arg("/dev/null");
    Ok(command)
}

/// A program that finds `lockkeeper` in its PATH.
pub(crate) fn with_lockkeeper(home: &Home, program: &str) -> Result<Command> {
    let lockkeeper = lockkeeper_testkit::command::lockkeeper()?;
    let folder = lockkeeper.parent().unwrap_or(&lockkeeper).display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{folder}:{path}")).env("LOCKKEEPER_HOME", home.engine());
    command.env("LOCKKEEPER_SYSTEM_HOME", "none").current_dir(home.folder());
    Ok(command)
}

/// K1: the command asked for the terminal just before it was lent, and was stopped for that; the
/// continuation did not come, as by then it had the terminal.
#[test]
fn k1_a_command_that_has_the_terminal_is_not_stopped_for_wanting_it() -> Result<()> {
    let home = Home::new()?;
    // It sends itself the signal that the kernel sends to a process that reads too early.
    let script = "lockkeeper run l -- sh -c 'kill -TTIN $$; echo went on'; echo code $?";
    let ended = in_terminal(&home, script)?;
    assert_eq!(ended.stdout, "went on\r\ncode 0\r\n", "{ended:?}");
    Ok(())
}

/// The shell gets the terminal back, and the command continues where it was.
#[test]
fn a_command_that_is_stopped_by_ctrl_z_goes_on_with_fg() -> Result<()> {
    let home = Home::new()?;
    // Ctrl-Z is this signal to the group that has the terminal.
    let script = "lockkeeper run l -- sh -c 'kill -TSTP 0; echo went on; exit 3'\n\
                  echo stopped; fg > /dev/null; echo code $?";
    let ended = in_terminal(&home, script)?;
    assert!(ended.stdout.ends_with("stopped\r\nwent on\r\ncode 3\r\n"), "{ended:?}");
    Ok(())
}

/// The session is over when the user continues the command: another program has held the lock since.
#[test]
fn a_command_that_is_stopped_by_ctrl_z_for_too_long_never_runs_again() -> Result<()> {
    let home = Home::new()?;
    let script = "lockkeeper run --session-timeout 2s --on-outage pause l -- \
                  sh -c 'kill -TSTP 0; echo went on; exit 3'\n\
                  lockkeeper run --quiet l -- echo another; fg > /dev/null; echo code $?";
    let ended = in_terminal(&home, script)?;
    let screen = &ended.stdout;
    assert!(screen.contains("another\r\n") && screen.ends_with("code 79\r\n"), "{ended:?}");
    // The shell shows the script when the command stops.
    assert!(!screen.contains("\r\nwent on"), "{ended:?}");
    Ok(())
}
