//! Two users of one machine: with an engine for both they exclude each other, and without one they
//! get a warning that they do not.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow};
use lockkeeper_testkit::process::{self, Process};
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use serde_json::Value;

use crate::machine::{Machine, NOBODY, Who};
use crate::support::{Ended, LIMIT, eventually, is_alive};

const WAY_OUT: &str = "sudo lockkeeper local enable --system --group";

/// Symptom: both held one lock at once, each on its own engine, without a warning. Later, the second user
/// was warned by each command, and got a mail for each cron job.
#[tokio::test]
async fn k46_whoever_comes_second_is_warned_once() -> Result<()> {
    for first in Who::BOTH {
        let Some(machine) = Machine::new("a warning for the second user")? else { return Ok(()) };
        let second = first.other();
        let mut holder = machine.holds(first, "deploy").await?;
        let told = holder.stderr();
        let start = format!("started an engine for {}", first.name());
        assert!(told.contains(&start) && told.contains(WAY_OUT), "{told}");

        let place = machine.own(first);
        let place = format!("{} of {}", place.display(), first.name());
        // The first one of all starts an engine.
        machine.ends(second, "ls")?.complains(0, &["started an engine"]);
        machine.ends(second, "run -q deploy -- true")?.is_fine();
        let told = machine.ends(second, "run -n deploy -- true")?;
        told.complains(0, &["warning", &place, "do not exclude yours", WAY_OUT]);
        for line in ["run -n deploy -- true", "ls", "show l", "wait l"] {
            machine.ends(second, line)?.is_fine();
        }
        let status = machine.does(second, "local status")?;
        assert!(status.contains(&format!("other       {place}\n")), "{status}");
        let mut declined = machine.command(second, "run deploy -- true");
        Ended::of(declined.env("LOCKKEEPER_SYSTEM_HOME", "none"))?.is_fine();

        machine.let_go(&mut holder).await?;
        machine.does(first, "local stop")?;
        machine.ends(second, "run deploy -- true")?.is_fine();
    }
    Ok(())
}

/// B2, B7: without HOME, as in a service, the command ended with wrong usage; and a home directory that is not
/// meant to exist was made.
#[test]
fn a_home_directory_is_looked_up_and_not_made() -> Result<()> {
    let Some(machine) = Machine::new("a home that does not exist")? else { return Ok(()) };
    let entry = Command::new("getent").args(["passwd", "nobody"]).output()?;
    let entry = String::from_utf8(entry.stdout)?;
    let home = entry.split(':').nth(5).context("nobody is unknown")?;
    if Path::new(home).exists() {
        eprintln!("SKIPPED: a home that does not exist: that of nobody does");
        return Ok(());
    }
    let parts = [home, "does not exist", "LOCKKEEPER_HOME"];
    for line in ["run l -- true", "local status"] {
        let mut command = machine.command(Who::Nobody, line);
        Ended::of(command.env_remove("HOME"))?.complains(73, &parts);
    }
    let missing = machine.folder().join("missing");
    let mut command = machine.command(Who::Root, "run l -- true");
    Ended::of(command.env("HOME", &missing))?.complains(73, &["missing", "does not exist"]);
    assert!(!missing.exists() && !Path::new(home).exists());
    Ok(())
}

/// Symptom: the locks of a user's jobs with different values of `HOME` did not exclude each other, without a word.
#[tokio::test]
async fn k46_another_engine_of_the_same_user_is_warned_of() -> Result<()> {
    let Some(machine) = Machine::new("two homes of one user")? else { return Ok(()) };
    let mut holder = machine.holds(Who::Root, "deploy").await?;
    let elsewhere = machine.folder().join("elsewhere");
    fs::create_dir(&elsewhere)?;
    let run = || {
        let mut command = machine.command(Who::Root, "run -n deploy -- true");
        Ended::of(command.env("LOCKKEEPER_HOME", elsewhere.join("home")))
    };
    let place = machine.own(Who::Root).display().to_string();
    run()?.complains(0, &["warning", &place, "do not exclude yours", "set LOCKKEEPER_HOME"]);
    run()?.is_fine();
    let mut stop = machine.command(Who::Root, "local stop");
    Ended::of(stop.env("LOCKKEEPER_HOME", elsewhere.join("home")))?;
    machine.let_go(&mut holder).await?;
    Ok(())
}

#[test]
fn the_status_says_whom_an_engine_is_for() -> Result<()> {
    let Some(machine) = Machine::new("whom an engine is for")? else { return Ok(()) };
    for who in Who::BOTH {
        let alone = format!("{} alone", who.name());
        let none = machine.ends(who, "local status")?;
        assert!(none.stdout.contains(&alone) && none.stdout.contains(WAY_OUT), "{none:?}");
        machine.does(who, "local start")?;
        let some = machine.does(who, "local status")?;
        assert!(some.contains(&alone) && some.contains(WAY_OUT), "{some}");
        let json: Value = serde_json::from_str(&machine.does(who, "local status --json")?)?;
        assert_eq!((&json["scope"], &json["running"]), (&"user".into(), &true.into()));
    }
    Ok(())
}

#[tokio::test]
async fn with_one_engine_never_both_hold() -> Result<()> {
    let Some(machine) = Machine::new("one engine for two users")? else { return Ok(()) };
    machine.does(Who::Root, "local enable --system --group nogroup")?;
    for first in Who::BOTH {
        excludes(&machine, first).await?;
    }
    // Started by root's command.
    machine.does(Who::Root, "local stop")?;
    for first in Who::BOTH {
        excludes(&machine, first).await?;
    }
    for who in Who::BOTH {
        assert!(!machine.own(who).exists(), "an engine of {who:?}");
    }
    Ok(())
}

/// One user holds a lock, and the other waits for it to its end; a home of their own makes no
/// difference.
async fn excludes(machine: &Machine, first: Who) -> Result<()> {
    let second = first.other();
    if first == Who::Nobody {
        // Only root starts it.
        machine.does(Who::Root, "ls")?;
    }
    let mut holder = machine.holds(first, "deploy").await?;
    assert_eq!(holder.stderr(), "");
    machine.ends(second, "run -n deploy -- true")?.complains(1, &["not free"]);
    let mut apart = machine.command(second, "run -n deploy -- true");
    let apart = Ended::of(apart.env("LOCKKEEPER_HOME", machine.home(second).join("apart")))?;
    apart.complains(1, &["not free"]);

    let command = machine.command(second, "run deploy -- echo mine");
    let mut waiter = Process::spawn("waiter", &command, machine.folder())?;
    eventually("two in line", || {
        let shown: Value = serde_json::from_str(&machine.does(first, "--json show deploy")?)?;
        Ok(shown["contenders"].as_array().map(Vec::len) == Some(2))
    })?;
    assert_eq!((waiter.status()?, waiter.stdout().as_str()), (None, ""));
    machine.let_go(&mut holder).await?;
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    assert_eq!(waiter.stdout(), "mine\n");
    Ok(())
}

/// An engine of their own instead would give a lock of root's to a second holder.
#[test]
fn who_may_not_start_it_is_told_so() -> Result<()> {
    let Some(machine) = Machine::new("an engine that is down")? else { return Ok(()) };
    machine.does(Who::Root, "local enable --system --everyone")?;
    machine.does(Who::Root, "local stop")?;
    for line in ["run l -- true", "ls", "local start"] {
        let parts = ["is not running", "sudo lockkeeper local start"];
        machine.ends(Who::Nobody, line)?.complains(75, &parts);
    }
    let status = machine.ends(Who::Nobody, "local status")?;
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.stdout.contains("sudo lockkeeper local start"), "{status:?}");
    assert!(!machine.own(Who::Nobody).exists());
    machine.ends(Who::Root, "run l -- true")?.is_fine();
    machine.ends(Who::Nobody, "run l -- true")?.is_fine();
    Ok(())
}

#[test]
fn who_may_use_it_is_what_root_says() -> Result<()> {
    let Some(machine) = Machine::new("who may use an engine")? else { return Ok(()) };
    let rights = || -> Result<(u32, u32)> {
        let meta = fs::metadata(machine.system())?;
        Ok((meta.gid(), meta.mode() & 0o7777))
    };
    let refused = |parts: &[&str]| -> Result<()> {
        for line in ["run l -- true", "ls", "local status", "local stop"] {
            machine.ends(Who::Nobody, line)?.complains(77, parts);
        }
        assert!(!machine.own(Who::Nobody).exists());
        Ok(())
    };
    // By default no other user can keep root's jobs waiting.
    let told = machine.does(Who::Root, "local enable --system")?;
    assert!(told.contains("for root alone") && told.contains("--group"), "{told}");
    assert_eq!(rights()?, (0, 0o700));
    refused(&["root alone", "you are nobody", WAY_OUT, "LOCKKEEPER_SYSTEM_HOME=none"])?;

    machine.does(Who::Root, "local enable --system --group daemon")?;
    assert_eq!(rights()?.1, 0o750);
    refused(&["the group daemon", "you are nobody", "a member of the group"])?;

    machine.does(Who::Root, "local enable --system --group nogroup")?;
    assert_eq!(rights()?, (NOBODY, 0o750));
    machine.ends(Who::Nobody, "run l -- true")?.is_fine();
    // As a package's service says it at each start.
    machine.does(Who::Root, "local enable --system")?;
    assert_eq!(rights()?, (NOBODY, 0o750));

    machine.does(Who::Root, "local enable --system --everyone")?;
    assert_eq!(rights()?, (0, 0o755));
    machine.ends(Who::Nobody, "run l -- true")?.is_fine();
    let data = fs::metadata(machine.system().join("data"))?;
    assert_eq!(data.mode() & 0o777, 0o700);
    Ok(())
}

#[test]
fn only_root_looks_after_it() -> Result<()> {
    let Some(machine) = Machine::new("whose an engine is")? else { return Ok(()) };
    let parts = ["requires root", "sudo"];
    machine.ends(Who::Nobody, "local enable --system")?.complains(77, &parts);
    machine.does(Who::Root, "local enable --system --everyone")?;
    let pid = |who| -> Result<i32> {
        let status: Value = serde_json::from_str(&machine.does(who, "--json local status")?)?;
        assert_eq!(status["scope"], "system");
        Ok(i32::try_from(status["pid"].as_i64().context("no pid")?)?)
    };
    let before = pid(Who::Nobody)?;
    machine.ends(Who::Nobody, "local stop")?.complains(77, &["only the engine's owner"]);
    machine.ends(Who::Nobody, "local disable --system")?.complains(77, &parts);
    assert_eq!(pid(Who::Root)?, before);
    machine.does(Who::Root, "local stop")?;
    eventually("it has ended", || Ok(!is_alive(before)))
}

/// Two idle connections to `admin.sock` of any user kept root from stopping the engine, and from its status.
/// Fails with one asker after the other.
#[test]
fn n43_idle_connections_keep_nobody_from_asking() -> Result<()> {
    let Some(machine) = Machine::new("idle connections")? else { return Ok(()) };
    machine.does(Who::Root, "local enable --system --everyone")?;
    let _idle = connections_of_nobody(&machine.system().join("admin.sock"), 100)?;
    for who in Who::BOTH {
        machine.does(who, "local status")?;
        machine.ends(who, "run deploy -- true")?.is_fine();
    }
    machine.does(Who::Root, "local stop").map(drop)
}

/// Connections of the user `nobody`.
fn connections_of_nobody(path: &Path, count: usize) -> Result<Vec<UnixStream>> {
    let path = path.to_path_buf();
    let connect = move || {
        // The user of this thread alone, which ends.
        set_thread_uid(Uid::from_raw(NOBODY))?;
        (0..count).map(|_| Ok(UnixStream::connect(&path)?)).collect()
    };
    thread::spawn(connect).join().map_err(|_| anyhow!("the thread has panicked"))?
}

/// The engine would write a copy, with its own permissions, where another user says.
#[test]
fn a_backup_is_made_for_the_owner_alone() -> Result<()> {
    let Some(machine) = Machine::new("whom a backup is made for")? else { return Ok(()) };
    machine.does(Who::Root, "local enable --system --everyone")?;
    let data = machine.system().join("data");
    let copies = machine.folder().join("copies");
    fs::create_dir(&copies)?;
    let backup = format!("engine backup {} {}/copy", data.display(), copies.display());
    assert_ne!(machine.ends(Who::Nobody, &backup)?.code, Some(0));

    // Even if root has opened what is the engine's alone.
    for (path, mode) in [(&data, 0o755), (&data.join("CONTROL"), 0o666)] {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    machine.ends(Who::Nobody, &backup)?.complains(74, &["another user"]);
    assert_eq!(fs::read_dir(&copies)?.count(), 0);
    machine.does(Who::Root, &backup)?;
    assert_eq!(fs::read_dir(&copies)?.count(), 1);
    Ok(())
}

/// Its users keep their locks while root replaces the engine, as those of a server do.
#[tokio::test]
async fn users_outlast_a_restart() -> Result<()> {
    let Some(machine) = Machine::new("a restart")? else { return Ok(()) };
    machine.does(Who::Root, "local enable --system --everyone")?;
    let mut holder = machine.holds(Who::Nobody, "deploy").await?;
    machine.does(Who::Root, "local stop")?;
    eventually("the notice", || Ok(holder.stderr().contains("for root to restart it")))?;
    machine.does(Who::Root, "local start")?;
    machine.ends(Who::Root, "run -n deploy -- true")?.complains(1, &["not free"]);
    machine.let_go(&mut holder).await?;
    machine.ends(Who::Root, "run -n deploy -- true")?.is_fine();
    Ok(())
}

/// The locks of an engine that is up would be in two places.
#[tokio::test]
async fn it_is_not_enabled_beside_engines_of_users() -> Result<()> {
    let Some(machine) = Machine::new("enabling beside other engines")? else { return Ok(()) };
    for who in Who::BOTH {
        let mut holder = machine.holds(who, "deploy").await?;
        let place = format!("{} of {}", machine.own(who).display(), who.name());
        let refused = machine.ends(Who::Root, "local enable --system --everyone")?;
        refused.complains(69, &["other engines are running", &place, "lockkeeper local stop"]);
        machine.ends(who, "run -n deploy -- true")?.complains(1, &["not free"]);
        machine.let_go(&mut holder).await?;
        machine.does(who, "local stop")?;
    }
    machine.does(Who::Root, "local enable --system --everyone")?;
    Ok(())
}

/// The other half of the same: an engine of a user that is just starting.
#[tokio::test]
async fn an_engine_of_a_user_does_not_start_beside_it() -> Result<()> {
    let Some(machine) = Machine::new("starting beside the machine's engine")? else {
        return Ok(());
    };
    machine.does(Who::Root, "local enable --system --everyone")?;
    for who in Who::BOTH {
        let home = machine.home(who).join("late");
        let home = home.to_str().context("not UTF-8")?;
        let line = format!("__local-engine --home {home} --durability memory");
        let mut engine = Process::spawn("late", &machine.command(who, &line), machine.folder())?;
        engine.end(LIMIT).await?;
        let report = engine.stdout();
        assert!(report.starts_with("75 ") && report.contains("has just been enabled"), "{report}");
        assert!(!fs::exists(format!("{home}/engine.sock"))?);
    }
    Ok(())
}

#[tokio::test]
async fn it_is_disabled_when_nobody_has_locks_there() -> Result<()> {
    let Some(machine) = Machine::new("disabling")? else { return Ok(()) };
    assert!(machine.does(Who::Root, "local disable --system")?.contains("was not enabled"));
    machine.does(Who::Root, "local enable --system --group nogroup")?;
    let mut holder = machine.holds(Who::Nobody, "deploy").await?;
    let refused = machine.ends(Who::Root, "local disable --system")?;
    refused.complains(69, &["a session of a user holds a lock there", "try again"]);
    machine.ends(Who::Root, "run -n deploy -- true")?.complains(1, &["not free"]);
    machine.let_go(&mut holder).await?;

    assert!(machine.does(Who::Root, "local disable --system")?.contains("disabled"));
    // A command of root's that waited for that would start it again.
    let home = machine.system();
    let line = format!("__local-engine --system --home {} --durability memory", home.display());
    let mut late = Process::spawn("late", &machine.command(Who::Root, &line), machine.folder())?;
    late.end(LIMIT).await?;
    assert!(late.stdout().starts_with("75 "), "{}", late.tail());
    assert!(late.stdout().contains("has just been disabled"), "{}", late.tail());
    machine.does(Who::Nobody, "run deploy -- true")?;
    assert!(machine.own(Who::Nobody).join("engine.sock").exists());
    Ok(())
}

#[test]
fn a_directory_of_another_user_is_not_the_machines() -> Result<()> {
    let Some(machine) = Machine::new("a planted engine of the machine")? else { return Ok(()) };
    fs::create_dir(machine.system())?;
    fs::write(machine.system().join("enabled"), "")?;
    chown(machine.system(), Some(NOBODY), Some(NOBODY))?;
    for line in ["run l -- true", "local status", "local stop", "local enable --system"] {
        machine.ends(Who::Root, line)?.complains(73, &["belongs to nobody", "you are root"]);
    }
    chown(machine.system(), Some(0), Some(0))?;
    fs::set_permissions(machine.system(), Permissions::from_mode(0o777))?;
    for who in Who::BOTH {
        machine.ends(who, "run l -- true")?.complains(73, &["other users can write to"]);
    }
    assert_eq!(fs::read_dir(machine.system())?.count(), 1);
    Ok(())
}

/// Its permissions would have been changed.
#[test]
fn a_directory_with_something_else_is_left_alone() -> Result<()> {
    let Some(machine) = Machine::new("a directory with something else")? else { return Ok(()) };
    fs::create_dir(machine.system())?;
    fs::set_permissions(machine.system(), Permissions::from_mode(0o711))?;
    fs::write(machine.system().join("passwd"), "")?;
    let refused = machine.ends(Who::Root, "local enable --system")?;
    refused.complains(73, &["in use for another purpose", "passwd"]);
    assert_eq!(fs::metadata(machine.system())?.mode() & 0o777, 0o711);
    Ok(())
}

/// In a sandbox that knows no user but one, what belongs to root looks as if it were another's.
#[test]
fn a_user_namespace_is_no_hindrance() -> Result<()> {
    let Some(machine) = Machine::new("a user namespace")? else { return Ok(()) };
    let within = |arguments: &str| -> Result<Ended> {
        let mut command = machine.program_of(Who::Nobody, "unshare");
        command.args(["--user", "--map-root-user", "--"]);
        command.args(arguments.split_whitespace()).env("LOCKKEEPER_SYSTEM_HOME", "none");
        Ended::of(&mut command)
    };
    if within("true")?.code != Some(0) {
        eprintln!("SKIPPED: a user namespace: nobody may make one");
        return Ok(());
    }
    let program = machine.program();
    within(&format!("{program} run l -- true"))?.is_fine();
    within(&format!("{program} local stop"))?.is_fine();
    Ok(())
}

#[test]
fn a_system_home_is_a_full_path_or_none() -> Result<()> {
    let Some(machine) = Machine::new("a relative system home")? else { return Ok(()) };
    for line in ["run l -- true", "local enable --system"] {
        let mut command = machine.command(Who::Root, line);
        let ended = Ended::of(command.env("LOCKKEEPER_SYSTEM_HOME", "relative"))?;
        ended.complains(64, &["LOCKKEEPER_SYSTEM_HOME", "absolute path", "none"]);
    }
    let long = machine.folder().join("x".repeat(90));
    let mut command = machine.command(Who::Root, "local enable --system");
    let ended = Ended::of(command.env("LOCKKEEPER_SYSTEM_HOME", &long))?;
    ended.complains(64, &["LOCKKEEPER_SYSTEM_HOME", "95", "shorter"]);
    Ok(())
}

#[test]
fn systemd_understands_the_unit() -> Result<()> {
    let Some(machine) = Machine::new("the unit")? else { return Ok(()) };
    let unit = machine.does(Who::Root, "local unit")?;
    let directory = format!("ReadWritePaths={}", machine.system().display());
    assert!(unit.contains(&directory) && unit.contains("lockkeeper local start"), "{unit}");
    let Some(analyze) = process::find("systemd-analyze") else {
        eprintln!("SKIPPED: systemd's opinion of the unit: no systemd-analyze");
        return Ok(());
    };
    let path = machine.folder().join("lockkeeper.service");
    fs::write(&path, unit)?;
    let verified = Ended::of(std::process::Command::new(analyze).arg("verify").arg(path))?;
    assert!(!verified.stderr.contains("lockkeeper.service"), "{verified:?}");
    Ok(())
}
