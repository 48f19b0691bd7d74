//! In a terminal: who may read it, and Ctrl-Z. `script` of util-linux makes the terminal.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::support::{Ended, Home};

/// Runs a shell script in a terminal of its own, with job control, where `lockkeeper` is in the
/// PATH; gives what is on the screen.
fn in_terminal(home: &Home, script: &str) -> Result<Ended> {
    let file = home.folder().join("script.sh");
    std::fs::write(&file, script)?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let folder = program.parent().unwrap_or(&program).display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command"]).arg("sh -m script.sh").arg("/dev/null");
    command.env("PATH", format!("{folder}:{path}")).env("LOCKKEEPER_HOME", home.engine());
    command.env("LOCKKEEPER_SYSTEM_HOME", "none");
    command.current_dir(home.folder()).stdin(Stdio::null());
    Ended::of(&mut command)
}

/// K1: the command asked for the terminal just before it was lent, and was stopped for that; the
/// continuation did not come, as by then it had the terminal.
#[test]
fn k1_a_command_that_has_the_terminal_is_not_stopped_for_wanting_it() -> Result<()> {
    let home = Home::new()?;
    // It says itself what the kernel says to whoever reads too early.
    let script = "lockkeeper run l -- sh -c 'kill -TTIN $$; echo went on'; echo code $?";
    let ended = in_terminal(&home, script)?;
    assert_eq!(ended.stdout, "went on\r\ncode 0\r\n", "{ended:?}");
    Ok(())
}

/// The shell gets the terminal back, and the command goes on where it was.
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

/// Its lease runs out while the user has stopped it: the outage is over before the user goes on.
#[test]
fn a_command_that_is_stopped_by_ctrl_z_stays_stopped_over_an_outage() -> Result<()> {
    let home = Home::new()?;
    let script = "lockkeeper run --session-timeout 2s --on-outage pause l -- \
                  sh -c 'kill -TSTP 0; echo went on; exit 3'\n\
                  engine=$(lockkeeper --json local status | grep -o '\"pid\": *[0-9]*' | grep -o '[0-9]*')\n\
                  kill -STOP $engine; sleep 3; kill -CONT $engine\n\
                  echo stopped; fg > /dev/null; echo code $?";
    let ended = in_terminal(&home, script)?;
    let screen = &ended.stdout;
    assert!(screen.ends_with("went on\r\ncode 3\r\n"), "{ended:?}");
    let stopped = screen.find("stopped\r\n").expect("the shell had the terminal");
    assert!(stopped < screen.find("went on").expect("it went on"), "{ended:?}");
    Ok(())
}
