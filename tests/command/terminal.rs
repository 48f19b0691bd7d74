//! Tests in a terminal: which process may read it, and Ctrl-Z. `script` of util-linux creates the terminal.

use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::Value;

use crate::support::{Ended, Home};

/// Runs a shell script in a terminal of its own, with job control, where `lockkeeper` is in the
/// PATH. Returns the contents of the screen.
fn in_terminal(home: &Home, script: &str) -> Result<Ended> {
    Ended::of(terminal(home, script)?.stdin(Stdio::null()))
}

/// What runs a shell script in a terminal of its own.
pub(crate) fn terminal(home: &Home, script: &str) -> Result<Command> {
    std::fs::write(home.folder().join("script.sh"), script)?;
    // A shell ignores some signals in what it starts in the background, as it may have started these tests.
    let mut command = with_lockkeeper(home, "env")?;
    command.args(["--default-signal=HUP,INT,QUIT,TERM", "--", "script"]);
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

/// Sends what Ctrl-C in the terminal sends: INT to the group that has it. Waits until that ends this process.
const CTRL_C: &str =
    "read -r _ _ _ _ _ _ _ group _ </proc/$$/stat; kill -INT -$group; exec sleep 60";

/// K58: Ctrl-C reached the command alone, as its group had the terminal although its input was the item: each one was
/// a failed try, and the worker went on.
#[test]
fn k58_ctrl_c_ends_a_worker_and_gives_its_item_back() -> Result<()> {
    let home = Home::new()?;
    // The second command asks for the terminal, as one that reads from /dev/tty.
    for (queue, interrupted) in [("a", CTRL_C), ("b", &format!("kill -TTIN $$; {CTRL_C}"))] {
        std::fs::write(home.folder().join("interrupted.sh"), interrupted)?;
        home.ends(&format!("queue put {queue} item"))?.is_fine();
        let work = format!(
            "lockkeeper queue work {queue} --until-empty --max-tries 2 --retry-after 10ms -- \
             sh interrupted.sh; echo code $?\n"
        );
        let ended = in_terminal(&home, &work.repeat(2))?;
        assert_eq!(ended.stdout, "code 130\r\n".repeat(2), "{ended:?}");
        let shown = home.json(&format!("queue ls {queue}"))?;
        let item = &shown["items"][0];
        assert_eq!((&item["state"], &item["reason"]), (&"waiting".into(), &Value::Null), "{shown}");
        assert_eq!(shown["dead"], 0, "{shown}");
    }
    Ok(())
}

#[test]
fn ctrl_c_ends_whatever_runs_a_command() -> Result<()> {
    let home = Home::new()?;
    home.ends("queue put jobs a")?.is_fine();
    std::fs::write(home.folder().join("interrupted.sh"), CTRL_C)?;
    for command in [
        "run l",
        "run --at-least 2s l",
        "run --once-per key l",
        "run --one-of p/1 p/2",
        "elect e",
        "queue work jobs --until-empty",
        "members join g",
        "service register s/web --address localhost --port 80",
        "watch w",
    ] {
        let ended = in_terminal(
            &home,
            &format!("lockkeeper {command} -- sh interrupted.sh; echo code $?"),
        )?;
        assert!(ended.stdout.ends_with("code 130\r\n"), "{command}: {ended:?}");
        assert!(!ended.stdout.contains("holding"), "{command}: {ended:?}");
    }
    Ok(())
}
