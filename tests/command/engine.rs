//! The machine-local engine: it is found, started once, stopped, and does not affect others.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use serde_json::json;

use crate::killed::children;
use crate::support::{Ended, Home, LIMIT, eventually, is_alive};

#[tokio::test]
async fn commands_at_the_same_moment_start_one_engine() -> Result<()> {
    let home = Home::new()?;
    let mut commands = Vec::new();
    for n in 0..8 {
        let command = home.command(&format!("run lock{n} -- true"));
        commands.push(Process::spawn(&format!("command{n}"), &command, home.folder())?);
    }
    for command in &mut commands {
        assert_eq!(command.end(LIMIT).await?.code(), Some(0), "{}", command.tail());
    }
    let log = fs::read_to_string(home.engine().join("engine.log"))?;
    assert_eq!(log.matches(" started").count(), 1, "{log}");
    Ok(())
}

/// Symptom: the socket of a killed engine may be closed a moment before its data is free. Waiters for a
/// lock gave up then.
#[tokio::test]
async fn data_in_use_for_a_moment_is_waited_for() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    home.ends("local stop")?;
    let lock = fs::File::open(home.engine().join("data/LOCK"))?;
    lock.lock()?;

    let mut command = home.starts("command", "l", "echo mine")?;
    let start = Instant::now();
    let engine = loop {
        if let Some(engine) = children(command.id())?.first() {
            break *engine;
        }
        assert!(start.elapsed() < LIMIT, "no engine is started: {}", command.tail());
    };
    eventually("the end of an engine without data", || {
        Ok(!children(command.id())?.contains(&engine))
    })?;

    lock.unlock()?;
    assert_eq!(command.end(LIMIT).await?.code(), Some(0), "{}", command.tail());
    Ok(())
}

#[test]
fn status_start_and_stop() -> Result<()> {
    let home = Home::new()?;
    let none = home.ends("local status")?;
    assert_eq!(none.code, Some(1));
    assert!(none.stdout.contains("no engine is running"), "{none:?}");
    let status = home.json("local status")?;
    assert_eq!((&status["running"], &status["scope"]), (&json!(false), &json!("user")));
    assert!(home.ends("local stop")?.stdout.contains("no engine was running"));

    home.ends("local start --durability os")?.is_fine();
    let status = home.json("local status")?;
    assert_eq!(status["running"], true);
    assert_eq!(status["durability"], "os");
    assert_eq!(status["sessions"], 0);
    assert!(status["disk_free"].is_u64() && status["disk_reserve"].is_u64(), "{status}");
    let pid = home.engine_pid()?;
    assert!(is_alive(pid));
    let text = home.ends("local status")?.stdout;
    assert!(text.contains(&format!("pid {pid}")) && text.contains("engine.sock"), "{text}");
    assert!(home.ends("local start")?.stdout.contains("already running"));

    home.ends("local stop")?.is_fine();
    // Its files are closed, which stop waits for; the process itself is gone a moment later.
    eventually("it has ended", || Ok(!is_alive(pid)))?;
    assert_eq!(home.ends("local status")?.code, Some(1));
    Ok(())
}

/// A small file system at a directory, unmounted at the end. Only root can make one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(directory: PathBuf, megabytes: u64) -> Result<Option<Self>> {
        fs::create_dir(&directory)?;
        let size = format!("size={megabytes}m,mode=0700");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&directory)
            .output();
        let is_mounted = mount.is_ok_and(|output| output.status.success());
        Ok(is_mounted.then_some(Self(directory)))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its engine may be about to end, and has files open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Symptom: with a full disk, `run` reported a quota that was not set, and `local status` reported an engine that
/// runs. Fails without the line about the disk space, and without the advice.
#[test]
fn k44_a_full_disk_is_named() -> Result<()> {
    let home = Home::new()?;
    let Some(disk) = SmallDisk::mount(home.engine(), 64)? else {
        println!("skipped: this user cannot mount");
        return Ok(());
    };
    home.ends("local start")?.is_fine();
    let text = home.ends("local status")?.stdout;
    assert!(text.contains("MiB free on the disk"), "{text}");
    // Less than half of what is to stay free, a quarter of the file system.
    let free = home.json("local status")?["disk_free"].as_u64().context("a number")?;
    fs::write(disk.0.join("ballast"), vec![0; free as usize - (4 << 20)])?;
    eventually("it is full", || Ok(home.ends("local status")?.stdout.contains("disk full: ")))?;
    let ended = home.runs("new/lock", "true")?;
    ended.complains(73, &["quota exceeded", "its disk or its memory is full", "local status"]);

    fs::remove_file(disk.0.join("ballast"))?;
    eventually("it has room", || Ok(home.runs("new/lock", "true")?.code == Some(0)))?;
    home.ends("local stop")?.is_fine();
    Ok(())
}

/// Symptom: a home was removed under its engine and a new one started there. The old engine went on,
/// and when it ended it took away the socket at which the new one was to be asked.
#[test]
fn an_engine_whose_home_was_removed_ends_and_leaves_the_next_one_alone() -> Result<()> {
    let home = Home::new()?;
    home.ends("local start")?.is_fine();
    let old = home.engine_pid()?;
    fs::remove_dir_all(home.engine())?;
    home.ends("local start")?.is_fine();
    let new = home.engine_pid()?;
    eventually("the old engine has ended", || Ok(!is_alive(old)))?;
    assert_eq!(home.engine_pid()?, new);
    home.runs("l", "true")?.is_fine();
    Ok(())
}

#[test]
fn it_is_for_this_user_alone() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let mode = |file: &str| -> Result<u32> {
        Ok(fs::metadata(home.engine().join(file))?.permissions().mode() & 0o777)
    };
    assert_eq!(mode("")?, 0o700);
    assert_eq!(mode("engine.sock")?, 0o600);
    assert_eq!(mode("admin.sock")?, 0o600);
    assert_eq!(mode("data")?, 0o700);
    Ok(())
}

/// A command found an engine that was just about to end for want of sessions.
#[test]
fn an_engine_that_ends_when_unneeded_is_in_nobodys_way() -> Result<()> {
    let home = Home::new()?;
    for n in 0..30 {
        let ended = Ended::of(home.command("run l -- true").env("LOCKKEEPER_LOCAL_IDLE", "1ms"))?;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "command {n}");
    }
    eventually("it has ended", || Ok(home.ends("local status")?.code == Some(1)))
}

#[tokio::test]
async fn an_engine_with_a_session_stays() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command("run l -- sh");
    command.args(["-c", "echo held; while [ ! -e go ]; do sleep 0.05; done"]);
    command.env("LOCKKEEPER_LOCAL_IDLE", "1ms");
    let mut holder = Process::spawn("holder", &command, home.folder())?;
    holder.prints("held", LIMIT).await?;
    let pid = home.engine_pid()?;
    for _ in 0..5 {
        home.ends("run -n l -- true")?.complains(1, &["not free"]);
    }
    assert_eq!(home.engine_pid()?, pid);
    fs::write(home.folder().join("go"), "")?;
    assert_eq!(holder.end(LIMIT).await?.code(), Some(0));
    eventually("it has ended", || Ok(!is_alive(pid)))
}

#[test]
fn a_home_that_is_too_long_is_refused_with_the_limit() -> Result<()> {
    let home = Home::new()?;
    let long = home.folder().join("x".repeat(90));
    let ended = Ended::of(home.command("run l -- true").env("LOCKKEEPER_HOME", &long))?;
    ended.complains(64, &["LOCKKEEPER_HOME", "95", "xxxx"]);
    Ok(())
}

/// Symptom: a service whose account does not have a home (`/nonexistent`) created one if root ran it.
#[test]
fn k47_a_home_directory_that_does_not_exist_is_not_made() -> Result<()> {
    let home = Home::new()?;
    let missing = home.folder().join("missing");
    let run = |variables: &[(&str, &str)]| {
        let mut command = home.command("run l -- true");
        command.env_remove("LOCKKEEPER_HOME").env_remove("XDG_STATE_HOME").env("HOME", &missing);
        Ended::of(command.envs(variables.iter().copied()))
    };
    run(&[])?.complains(73, &["missing does not exist", "set LOCKKEEPER_HOME"]);
    assert!(!missing.exists());
    let named = home.engine();
    run(&[("LOCKKEEPER_HOME", named.to_str().context("text")?)])?.is_fine();
    assert!(!missing.exists());
    Ok(())
}

/// Symptom: the lines of several runs on one standard error were mixed, as each was written in pieces.
#[test]
fn k47_a_line_is_written_with_one_call() -> Result<()> {
    let home = Home::new()?;
    // To which each call is one message.
    let (ours, theirs) = UnixDatagram::pair()?;
    let mut command = home.command("show a//b");
    assert_eq!(command.stderr(OwnedFd::from(theirs)).status()?.code(), Some(64));
    let mut line = [0; 1024];
    let len = ours.recv(&mut line)?;
    let line = std::str::from_utf8(&line[..len])?;
    assert!(line.starts_with("lockkeeper: ") && line.ends_with('\n'), "{line:?}");
    Ok(())
}

/// From each working directory it would be another engine, with other locks.
#[test]
fn a_relative_home_is_refused() -> Result<()> {
    let home = Home::new()?;
    let ended = Ended::of(home.command("run l -- true").env("LOCKKEEPER_HOME", "relative"))?;
    ended.complains(64, &["LOCKKEEPER_HOME", "relative", "absolute path"]);
    Ok(())
}

/// A user who meant other servers would hold a lock that other programs do not see.
#[test]
fn an_empty_list_of_servers_is_not_the_local_engine() -> Result<()> {
    let home = Home::new()?;
    let mut by_option = home.command_of(&["--connect", "", "run", "l", "--", "true"]);
    Ended::of(&mut by_option)?.complains(64, &["names no server"]);
    let ended = Ended::of(home.command("run l -- true").env("LOCKKEEPER_CONNECT", ""))?;
    ended.complains(64, &["LOCKKEEPER_CONNECT", "names no server"]);
    Ok(())
}

/// Whoever may write there could put a socket of their own in the engine's place.
#[test]
fn a_home_that_others_may_write_to_is_refused() -> Result<()> {
    let home = Home::new()?;
    for mode in [0o777, 0o1777, 0o770] {
        let path = home.folder().join(format!("{mode:o}"));
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        let ended = Ended::of(home.command("run l -- true").env("LOCKKEEPER_HOME", &path))?;
        ended.complains(73, &["other users can write", "chmod go-w", "LOCKKEEPER_HOME"]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let status = Ended::of(home.command("local status").env("LOCKKEEPER_HOME", &path))?;
        assert_eq!((status.code, status.stderr.as_str()), (Some(1), ""), "to read is no harm");
    }
    Ok(())
}

/// A file at this path blocks every user, including root.
#[test]
fn a_home_that_cannot_be_made_is_refused() -> Result<()> {
    let home = Home::new()?;
    let file = home.folder().join("file");
    fs::write(&file, "")?;
    for path in [file.clone(), file.join("below")] {
        let ended = Ended::of(home.command("run l -- true").env("LOCKKEEPER_HOME", &path))?;
        ended.complains(73, &["LOCKKEEPER_HOME", "file"]);
    }
    Ok(())
}

#[test]
fn data_that_cannot_be_read_is_told_on_the_users_terminal() -> Result<()> {
    for (format, parts) in [
        ("lockkeeper-engine 99\n", ["newer version", "upgrade"]),
        ("something else\n", ["damaged", "backup"]),
    ] {
        let home = Home::new()?;
        home.runs("l", "true")?.is_fine();
        home.ends("local stop")?.is_fine();
        fs::write(home.engine().join("data/FORMAT"), format)?;
        let ended = home.ends("run l -- true")?;
        ended.complains(65, &parts);
        ended.complains(65, &["did not start", "data"]);
    }
    Ok(())
}

/// Symptom: code 74, of a disk that failed, when an engine ran on the directory.
///
/// Fails when only the engine says why.
#[test]
fn a_backup_within_the_data_is_the_users_mistake() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let data = home.engine().join("data");
    let within = format!("engine backup {0} {0}/copy", data.display());
    home.ends(&within)?.complains(73, &["is inside", "outside"]);
    home.ends("local stop")?.is_fine();
    home.ends(&within)?.complains(73, &["is inside", "outside"]);
    Ok(())
}

/// Failed when the unit for backups copied the default directory, whatever the server used.
#[test]
fn a_backup_is_of_the_directory_that_the_servers_configuration_names() -> Result<()> {
    let home = Home::new()?;
    home.runs("l", "true")?.is_fine();
    let data = home.engine().join("data");
    let file = |text: &str| fs::write(home.folder().join("zoo.cfg"), text);
    file(&format!("clientPort=2181\ndataDir={}\n", data.display()))?;
    let copied = home.ends("engine backup zoo.cfg copy")?;
    copied.is_fine();
    assert!(copied.stdout.contains(&*data.to_string_lossy()), "{copied:?}");
    home.ends("engine check copy")?.is_fine();
    file("clientPort=2181\n")?;
    home.ends("engine backup zoo.cfg copy2")?.complains(78, &["zoo.cfg", "dataDir"]);
    Ok(())
}

#[test]
fn a_wrong_durability_is_told() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command("run l -- true");
    let ended = Ended::of(command.env("LOCKKEEPER_LOCAL_DURABILITY", "forever"))?;
    ended.complains(64, &["LOCKKEEPER_LOCAL_DURABILITY", "forever", "sync"]);
    Ok(())
}
