//! `-c`, a script that runs itself under a lock, and the options of `flock(1)`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::support::{Ended, Home, LIMIT, eventually, is_alive};

#[test]
fn a_line_is_run_by_the_shell() -> Result<()> {
    let home = Home::new()?;
    let run = |arguments: &[&str]| {
        let mut command = home.command_of(arguments);
        // The line means the same for every user.
        Ended::of(command.env("SHELL", "/bin/false"))
    };
    for arguments in [
        ["run", "l", "-c", "echo one && echo $LOCKKEEPER_LOCK; exit 3"],
        ["run", "-c", "echo one && echo $LOCKKEEPER_LOCK; exit 3", "l"],
        ["run", "l", "--command", "echo one && echo $LOCKKEEPER_LOCK; exit 3"],
    ] {
        let ended = run(&arguments)?;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), "one\n/l\n"), "{ended:?}");
    }
    run(&["run", "l", "-c", ""])?.complains(64, &["the command is empty"]);
    run(&["run", "l", "-c", "true", "--", "true"])?.complains(64, &["--command", "CMD"]);
    // flock takes a command without a --.
    for shell in ["sh", "bash", "/bin/bash"] {
        run(&["run", "l", shell, "-c", "touch ran"])?
            .complains(64, &["would be the name of a lock", "--"]);
    }
    assert!(!home.folder().join("ran").exists());
    run(&["run", "l"])?.complains(64, &["<CMD>", "--"]);
    run(&["run", "l", "-c", "no-such-command"])?;
    Ok(())
}

/// All parts of a line are of one process group.
#[tokio::test]
async fn all_parts_of_a_line_end_with_lockkeeper() -> Result<()> {
    let home = Home::new()?;
    let line = "sh -c 'echo $$; while :; do sleep 0.05; done' | cat && true";
    let command = home.command_of(&["run", "l", "-c", line]);
    let mut process = lockkeeper_testkit::process::Process::spawn("line", &command, home.folder())?;
    process.prints("\n", LIMIT).await?;
    let part: i32 = process.stdout().trim().parse().context("no process id")?;
    assert!(is_alive(part));
    process.signal(Signal::KILL)?;
    eventually("all parts are dead", || Ok(!is_alive(part)))
}

/// The arguments of a line may be secret.
#[tokio::test]
async fn a_line_is_not_shown_to_others() -> Result<()> {
    let home = Home::new()?;
    let command = home.command_of(&["run", "l", "-c", "PASSWORD=secret; echo held; sleep 60"]);
    let mut process =
        lockkeeper_testkit::process::Process::spawn("secret", &command, home.folder())?;
    process.prints("held", LIMIT).await?;
    let shown = home.json("show l")?.to_string();
    assert!(shown.contains("sh") && !shown.contains("secret"), "{shown}");
    process.kill();
    Ok(())
}

/// The script of `docs/choosing.md`, word for word.
#[test]
fn a_script_runs_itself_under_its_lock() -> Result<()> {
    let home = Home::new()?;
    let page = include_str!("../../docs/choosing.md");
    let (_, script) = page.split_once("```sh\n#!/bin/sh\n").context("no script")?;
    let (script, _) = script.split_once("```").context("no end")?;
    let file = home.folder().join("backup.sh");
    fs::write(&file, format!("#!/bin/sh\n{script}echo \"$LOCKKEEPER_LOCK\" \"$@\"\nexit 4\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700))?;

    let program = lockkeeper_testkit::command::lockkeeper()?;
    let folder = program.parent().context("no folder")?.display();
    let path = format!("{folder}:{}", std::env::var("PATH")?);
    let model = home.command("ls");
    let mut command = std::process::Command::new(&file);
    for (name, value) in model.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PATH", path).current_dir(home.folder()).args(["a b", "c"]);
    let ended = Ended::of(&mut command)?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(4), ""), "{ended:?}");
    assert!(ended.stdout.ends_with("/backups/nightly a b c\n"), "{ended:?}");

    // A lock of another run around the script is not its own.
    command.env("LOCKKEEPER_LOCK", "/else");
    let ended = Ended::of(&mut command)?;
    assert!(ended.stdout.ends_with("/backups/nightly a b c\n"), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn options_of_flock_mean_the_same_or_say_what_does() -> Result<()> {
    let home = Home::new()?;
    for options in ["-x", "-e", "--exclusive", "-o", "--close", "-x -n", "--nb", "--nonblock"] {
        home.ends(&format!("run {options} l -- true"))?.is_fine();
    }
    for (options, parts) in [
        ("-u", ["'-u'", "lockkeeper revoke"]),
        ("--unlock", ["--unlock", "lockkeeper revoke"]),
        ("-F", ["'-F'", "renew the lock"]),
        ("--no-fork", ["--no-fork", "renew the lock"]),
        ("-x -s", ["--exclusive", "--shared"]),
    ] {
        home.ends(&format!("run {options} l -- true"))?.complains(64, &parts);
    }

    let mut holder = home.holds("holder", "-e l").await?;
    for options in ["--nb", "--timeout 0.2", "-w 0.2"] {
        home.ends(&format!("run {options} -E 9 l -c true"))?.complains(9, &["held by"]);
    }
    holder.kill();
    Ok(())
}
