//! Configuration files, and what happens without servers.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::machine::{Machine, NOBODY, Who};
use crate::serve::in_memory;
use crate::support::{Ended, Home};

/// An address at which no server listens.
const NOWHERE: &str = "127.0.0.1:1";

/// Writes a file below the folder of the test.
fn write(home: &Home, name: &str, text: &str) -> Result<()> {
    let path = home.folder().join(name);
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(&path, text)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o600))?)
}

/// Where the value of a setting is from, and the value.
fn setting(report: &Value, name: &str) -> (String, String) {
    let settings = report["settings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = settings.iter().find(|setting| setting["name"] == name);
    let text = |key| found.and_then(|found| found[key].as_str()).unwrap_or_default().to_owned();
    (text("source"), text("value"))
}

/// A job of cron took a local lock, as its environment named no servers: nothing told, exit code 0.
///
/// Fails without the files.
#[tokio::test]
async fn a_job_without_an_environment_finds_its_servers() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    write(&home, "system.toml", &format!("connect = \"{address}\"\nrequire-servers = true\n"))?;

    let job = |arguments: &[&str]| {
        let mut command = home.command_of(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.folder());
        command.env("LOCKKEEPER_SYSTEM_CONFIG", home.folder().join("system.toml"));
        Ended::of(&mut command)
    };
    let ended = job(&["run", "nightly", "--", "sh", "-c", "echo $LOCKKEEPER_CONNECT"])?;
    ended.is_fine();
    assert_eq!(ended.stdout.trim(), address);
    assert!(!home.folder().join(".local").exists(), "a local engine");

    write(&home, "system.toml", "require-servers = true\n")?;
    job(&["run", "nightly", "--", "true"])?
        .complains(78, &["no servers are configured", "system.toml:1", "LOCKKEEPER_CONNECT"]);
    assert!(!home.folder().join(".local").exists(), "a local engine");
    Ok(())
}

/// Each key by itself, in the order that the page tells.
#[test]
fn what_is_nearer_to_the_command_goes_over_the_rest() -> Result<()> {
    let home = Home::new()?;
    write(&home, "system.toml", "connect = \"s:1\"\nsession-timeout = \"11s\"\ntls-ca = \"ca\"\n")?;
    write(&home, "lockkeeper/config.toml", "connect = \"u:1\"\nsession-timeout = \"12s\"\n")?;
    write(&home, "named.toml", "# of this job\nconnect = \"n:1\"\n")?;
    let report = |arguments: &str, variables: &[(&str, &str)]| -> Result<Value> {
        let mut command = home.command(&format!("--json {arguments}"));
        command.env("LOCKKEEPER_SYSTEM_CONFIG", home.folder().join("system.toml"));
        let ended = Ended::of(command.envs(variables.iter().copied()))?;
        ended.is_fine();
        Ok(serde_json::from_str(&ended.stdout)?)
    };
    let connect = |report: &Value| setting(report, "connect");
    let pair = |source: &str, value: &str| (source.to_owned(), value.to_owned());

    let named = ("LOCKKEEPER_CONFIG", "named.toml");
    let file = report("settings", &[])?;
    assert_eq!(connect(&file), pair("file", "u:1"));
    assert_eq!(setting(&file, "session-timeout"), pair("file", "12s"));
    assert_eq!(setting(&file, "server-tick"), pair("default", "2s"));
    let ca = home.folder().join("ca");
    assert_eq!(setting(&file, "tls-ca"), pair("file", &ca.to_string_lossy()), "beside its file");
    assert_eq!(connect(&report("settings", &[named])?), pair("file", "n:1"));
    assert_eq!(connect(&report("--config named.toml settings", &[])?), pair("file", "n:1"));

    let variables = [named, ("LOCKKEEPER_CONNECT", "e:1"), ("LOCKKEEPER_DIGEST", "ann:hidden")];
    let environment = report("settings", &variables)?;
    assert_eq!(connect(&environment), pair("environment", "e:1"));
    assert_eq!(setting(&environment, "digest"), pair("environment", "(not shown)"));
    let option = report("--connect o:1 settings", &variables)?;
    assert_eq!(connect(&option), pair("option", "o:1"));

    let mut command = home.command("settings --config named.toml");
    let text = Ended::of(command.env("LOCKKEEPER_DIGEST", "ann:hidden"))?;
    text.is_fine();
    assert!(text.stdout.contains("named.toml:2\n") && !text.stdout.contains("hidden"), "{text:?}");
    Ok(())
}

#[test]
fn a_mistake_in_a_file_is_told_with_its_line() -> Result<()> {
    let home = Home::new()?;
    for (text, parts) in [
        ("connect = \"a\"\nconect = \"b\"\n", ["line 2", "unknown key \"conect\""]),
        ("connect = 2181\n", ["line 1", "connect: write the value as a string"]),
        ("require-servers = \"yes\"\n", ["line 1", "require-servers: write true or false"]),
        ("\n\nsession-timeout = \"soon\"\n", ["line 3", "session-timeout: write it like 10s"]),
        ("connect = \"\"\n", ["line 1", "names no server"]),
        ("lease = \"long\"\n", ["line 1", "quorum, direct"]),
        ("connect = \"a\"\nconnect = \"b\"\n", ["line 2", "duplicate key"]),
        ("digest = \"ann:hidden\"\n", ["line 1", "digest-file"]),
        ("[tls]\nca = \"ca.pem\"\n", ["line 1", "unknown key \"tls\""]),
        ("connect = hidden\n", ["line 1", "config.toml"]),
    ] {
        write(&home, "lockkeeper/config.toml", text)?;
        let ended = home.ends("run l -- true")?;
        ended.complains(78, &parts);
        assert!(!ended.stderr.contains("hidden"), "{ended:?}");
        // What needs no servers does not read it.
        assert_eq!(home.ends("local status")?.code, Some(1));
    }
    assert!(!home.engine().join("data").exists(), "no engine was started");

    home.ends("--config none.toml ls")?.complains(78, &["none.toml", "No such file"]);
    let mut variable = home.command("ls");
    Ended::of(variable.env("LOCKKEEPER_CONFIG", "none.toml"))?.complains(78, &["none.toml"]);
    let mut empty = home.command("ls");
    Ended::of(empty.env("LOCKKEEPER_CONFIG", ""))?.complains(78, &["LOCKKEEPER_CONFIG", "empty"]);
    Ok(())
}

/// Its keys are for clients, and `serve --config` is another file.
#[tokio::test]
async fn a_server_does_not_read_the_files_of_clients() -> Result<()> {
    let home = Home::new()?;
    write(&home, "lockkeeper/config.toml", "this is no configuration\n")?;
    write(&home, "zoo.cfg", "dataDir=zk\nclientPort=0\nclientPortAddress=127.0.0.1\n")?;
    let mut command = home.command("serve --config zoo.cfg");
    command.env("LOCKKEEPER_CONFIG", "none.toml").env("LOCKKEEPER_REQUIRE_SERVERS", "true");
    let mut server =
        lockkeeper_testkit::process::Process::spawn("server", &command, home.folder())?;
    crate::serve::address_of(&mut server)?;
    assert!(home.folder().join("zk/FORMAT").is_file());
    Ok(())
}

/// `lease` and `server-tick` of a file are about its servers: other servers would lose, or share, a lock.
#[test]
fn what_a_file_says_of_its_servers_is_not_said_of_others() -> Result<()> {
    let home = Home::new()?;
    let about = "connect = \"a:1,b/c\"\nlease = \"direct\"\nserver-tick = \"500ms\"\n";
    write(&home, "lockkeeper/config.toml", about)?;
    for (connect, lease, tick) in [
        ("", "direct", "500ms"),
        // As `run` hands them on.
        ("--connect a:1,b:2181/c", "direct", "500ms"),
        ("--connect a:1,d:1", "quorum", "2s"),
    ] {
        let report = home.json(&format!("{connect} settings"))?;
        assert_eq!(setting(&report, "lease").1, lease, "{connect}");
        assert_eq!(setting(&report, "server-tick").1, tick, "{connect}");
    }
    Ok(())
}

/// A run inside a run has the servers of the run, whatever a file says.
#[tokio::test]
async fn a_run_hands_its_servers_on() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    write(&home, "lockkeeper/config.toml", &format!("connect = \"{NOWHERE}\"\n"))?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let inner = format!("exec {} run inner -- sh -c 'echo $LOCKKEEPER_CONNECT'", program.display());
    let ended = home.runs(&format!("--connect {address} outer"), &inner)?;
    ended.is_fine();
    assert_eq!(ended.stdout.trim(), address);
    Ok(())
}

#[test]
fn required_servers_are_never_replaced_by_an_engine_here() -> Result<()> {
    let home = Home::new()?;
    for arguments in ["run l -- true", "wait l", "ls", "show l", "revoke l", "doctor", "export"] {
        let mut command = home.command(arguments);
        let ended = Ended::of(command.env("LOCKKEEPER_REQUIRE_SERVERS", "true"))?;
        ended.complains(
            78,
            &["no servers are configured", "LOCKKEEPER_REQUIRE_SERVERS", "--connect"],
        );
    }
    home.ends("--require-servers run l -- true")?.complains(78, &["--require-servers"]);
    // The engine of this machine is also not started for a user who has named its socket.
    let socket = home.connect_string();
    let named =
        format!("--require-servers --connect {socket} --connect-timeout 200ms run l -- true");
    home.ends(&named)?.complains(75, &[&socket]);
    assert!(!home.engine().join("data").exists(), "no engine was started");

    let mut less = home.command("--require-servers=false run l -- true");
    Ended::of(less.env("LOCKKEEPER_REQUIRE_SERVERS", "1"))?.is_fine();
    Ok(())
}

#[test]
fn the_doctor_tells_of_an_engine_that_nobody_has_named() -> Result<()> {
    let home = Home::new()?;
    let told = home.ends("doctor")?;
    assert!(told.stdout.contains("note: no servers are configured"), "{told:?}");
    write(&home, "lockkeeper/config.toml", &format!("connect = \"{}\"\n", home.connect_string()))?;
    let told = home.ends("doctor")?;
    assert!(!told.stdout.contains("no servers are configured"), "{told:?}");
    assert!(told.stdout.contains("lockkeeper/config.toml"), "{told:?}");
    Ok(())
}

/// Another user could name servers, and learn credentials or grant locks twice.
#[test]
fn a_file_that_another_user_could_write_is_refused() -> Result<()> {
    let Some(machine) = Machine::new("a planted configuration file")? else { return Ok(()) };
    let file = machine.folder().join("config.toml");
    for (owner, mode, parts) in [
        (NOBODY, 0o644, ["belongs to nobody", "config.toml"]),
        (0, 0o666, ["other users can write", "chmod go-w"]),
        (0, 0o664, ["other users can write", "chmod go-w"]),
    ] {
        fs::write(&file, format!("connect = \"{NOWHERE}\"\n"))?;
        fs::set_permissions(&file, Permissions::from_mode(mode))?;
        chown(&file, Some(owner), Some(owner))?;
        machine.ends(Who::Root, "ls")?.complains(78, &parts);
    }

    // The file applies to all users. A user who cannot read it gets an error.
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    machine.ends(Who::Nobody, "ls")?.complains(78, &["config.toml", "Permission denied"]);
    fs::set_permissions(&file, Permissions::from_mode(0o644))?;
    let report: Value = serde_json::from_str(&machine.does(Who::Nobody, "--json settings")?)?;
    assert_eq!(setting(&report, "connect"), ("file".to_owned(), NOWHERE.to_owned()));
    Ok(())
}

/// A child of `run` waited 10 s, and ended with 75, when the engine had stopped in the meantime.
///
/// Fails when the socket is taken for a server elsewhere.
#[tokio::test]
async fn an_engine_that_is_named_by_its_socket_is_started() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    // What is left of a command, after its run and the engine have ended.
    let left = format!(
        "while [ ! -e go ]; do sleep 0.05; done; {} --connect-timeout 1s run job -- true; echo $? >end; mv end ended",
        program.display()
    );
    let script = format!("setsid sh -c '{left}' >/dev/null 2>told & echo begun");
    home.runs("dep", &script)?.is_fine();
    home.ends("local stop")?.is_fine();
    fs::write(home.folder().join("go"), "")?;
    let ended = home.folder().join("ended");
    crate::support::eventually("what is left ends", || Ok(ended.exists()))?;
    let told = fs::read_to_string(home.folder().join("told"))?;
    assert_eq!((fs::read_to_string(ended)?.trim(), told.as_str()), ("0", ""));

    // So it is by any other way of naming it, also where the environment names no home, or another one.
    let link = home.folder().join("link");
    std::os::unix::fs::symlink(home.engine(), &link)?;
    let connect = format!("--connect {}", home.connect_string());
    for place in [None, Some(home.folder().join("another")), Some(link)] {
        home.ends("local stop")?.is_fine();
        let mut command = home.command(&format!("{connect} --connect-timeout 1s run job -- true"));
        match place {
            Some(place) => command.env("LOCKKEEPER_HOME", place),
            None => command.env_remove("LOCKKEEPER_HOME").env_remove("HOME"),
        };
        Ended::of(&mut command)?.is_fine();
    }
    assert!(!home.folder().join("another").exists());

    let new = Home::new()?;
    let connect = format!("--connect {} --connect-timeout 1s", new.connect_string());
    new.ends(&format!("{connect} run job -- true"))?.is_fine();
    Ok(())
}

/// The same for the engine of all users, which only root starts.
#[test]
fn the_engine_of_all_users_is_started_by_its_socket_too() -> Result<()> {
    let Some(machine) = Machine::new("the socket of the machine's engine")? else { return Ok(()) };
    machine.does(Who::Root, "local enable --system --everyone")?;
    let socket = machine.system().join("engine.sock");
    let line = format!("--connect unix:{} run job -- true", socket.display());
    machine.does(Who::Root, "local stop")?;
    machine.ends(Who::Nobody, &line)?.complains(75, &["is not running", "root can start it"]);
    machine.ends(Who::Root, &line)?.is_fine();
    machine.ends(Who::Nobody, &line)?.is_fine();
    Ok(())
}
