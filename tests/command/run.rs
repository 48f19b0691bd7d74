//! `run`: exit codes, environment, conflicts.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::serve::{in_memory, served};
use crate::support::{Ended, Home, LIMIT, eventually, has_all};

#[test]
fn the_exit_code_is_the_commands_own() -> Result<()> {
    let home = Home::new()?;
    for (script, code) in [("true", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137)] {
        let ended = home.runs("demo/hello", script)?;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), ""), "{script}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_executed_is_told_as_shells_do() -> Result<()> {
    let home = Home::new()?;
    let file = home.folder().join("data.txt");
    fs::write(&file, "no program")?;
    home.ends("run l -- no-such-command")?.complains(127, &["no-such-command", "PATH"]);
    home.ends(&format!("run l -- {}", file.display()))?.complains(126, &["data.txt"]);
    assert_eq!(home.json("show l")?["contenders"], serde_json::json!([]));
    Ok(())
}

#[test]
fn bad_input_gets_one_line_and_code_64() -> Result<()> {
    let home = Home::new()?;
    for (arguments, parts) in [
        ("run a//b -- true", ["a//b", "empty segment"]),
        ("run a/../b -- true", ["a/../b", "relative"]),
        ("run a/ -- true", ["a/", "ends with"]),
        ("run / -- true", ["'/'", "cannot be a lock"]),
        ("show a//b", ["a//b", "empty segment"]),
        ("run -w soon l -- true", ["soon", "10s"]),
        ("run -n -w 1 l -- true", ["--nonblock", "--wait"]),
        ("run l echo", ["echo", "--"]),
        ("run --on-lost panic l -- true", ["panic", "term"]),
        ("run --kill-after 14s l -- true", ["14000ms", "--session-timeout"]),
        ("--connect host:x ls", ["\"x\"", "port"]),
        ("--digest me ls", ["--digest", "user:password"]),
        ("--session-timeout 0 ls", ["--session-timeout", "longer than zero"]),
        ("--session-timeout 1ms ls", ["--session-timeout", "at least 100ms"]),
        ("run -w -5s l -- true", ["'-5s'", "not be negative"]),
        ("run --kill-after -1 l -- true", ["'-1'", "not be negative"]),
        ("run zookeeper/quota -- true", ["/zookeeper/quota", "reserved for the server"]),
        ("run a/b\u{1f4a5}c -- true", ["character 5", "U+1F4A5"]),
        ("frobnicate", ["frobnicate", "--help"]),
    ] {
        home.ends(arguments)?.complains(64, &parts);
    }
    Ended::of(&mut home.command_of(&["run", "", "--", "true"]))?.complains(64, &["it is empty"]);
    let mut unset = home.command_of(&["run", "l", "--", ""]);
    Ended::of(&mut unset)?.complains(64, &["the command is empty"]);
    Ok(())
}

/// Symptom: the exit code was that of a held lock, although this was unknown.
#[tokio::test]
async fn a_wait_that_ends_without_a_server_gives_75() -> Result<()> {
    let home = Home::new()?;
    let (mut server, address) = in_memory(&home).await?;
    let connect = format!("--connect {address} --session-timeout 60s");
    let _holder = home.holds("holder", &format!("{connect} l")).await?;
    let wait = format!("{connect} -w 10s -E 42 l");
    let mut waiters = vec![home.starts("run", &wait, "true")?];
    waiters.push(home.spawns("wait", &format!("{connect} wait -w 10s -E 42 l"))?);
    for waiter in &waiters {
        eventually("it waits", || Ok(waiter.stderr().contains("held by")))?;
    }
    server.kill();
    for waiter in &mut waiters {
        assert_eq!(waiter.end(LIMIT).await?.code(), Some(75), "{}", waiter.tail());
        let told = "/l was not free in time, and no server could be reached";
        assert!(waiter.stderr().contains(told), "{}", waiter.tail());
    }
    Ok(())
}

/// A session of a second, on a server that grants it.
const SHORT: &str = "--session-timeout 1s --server-tick 200ms";

/// N32: `-w` and `--connect-timeout` ended at the session timeout.
#[tokio::test]
async fn n32_a_wait_outlasts_the_session_timeout() -> Result<()> {
    let home = Home::new()?;
    // Nothing listens.
    let away = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let away = format!("--connect {away} {SHORT}");
    let start = Instant::now();
    let waits = ["run -w 2s l -- true", "wait -w 2s l", "--connect-timeout 2s run l -- true"];
    let mut waits = waits.map(|wait| home.spawns("without-server", &format!("{away} {wait}")));

    // A waiter in the queue during that time.
    let data = home.folder().join("data");
    let options = format!("--tick 200ms --data-dir {}", data.display());
    let (mut server, address) =
        served(&home, "s", &format!("--listen 127.0.0.1:0 {options}")).await?;
    let connect = format!("--connect {address} {SHORT}");
    let mut holder = home.holds("holder", &format!("{connect} l")).await?;
    let mut waiter = home.starts("waiter", &format!("{connect} -w 200s l"), "echo mine")?;
    let mut looker = home.spawns("looker", &format!("{connect} wait -w 200s l"))?;
    home.in_line_at(&format!("--connect {address}"), "l", 2)?;
    eventually("it looks", || Ok(looker.stderr().contains("held by")))?;
    server.kill();
    holder.kill();
    let gone = home.ends(&format!("{connect} run -w 1900ms l -- true"))?;
    gone.complains(75, &["no ZooKeeper server reachable"]);
    assert!(waiter.status()?.is_none() && looker.status()?.is_none(), "their limits are longer");
    let _server = served(&home, "again", &format!("--listen {address} {options}")).await?;
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    assert_eq!(looker.end(LIMIT).await?.code(), Some(0), "{}", looker.tail());

    for wait in &mut waits {
        let wait = wait.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        assert_eq!(wait.end(LIMIT).await?.code(), Some(75), "{}", wait.tail());
    }
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    Ok(())
}

/// N33: a stopped waiter failed with 75, although the lock had become free during the stop.
#[tokio::test]
async fn n33_a_stopped_run_gets_its_lock() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --tick 500ms --durability memory";
    let (_server, address) = served(&home, "s", options).await?;
    let mut holder = home.holds("holder", &format!("--connect {address} l")).await?;
    // Its lease is over before the standstill is, and its session is not.
    let timeouts = "--session-timeout 2s --server-tick 500ms";
    let waiter = format!("--connect {address} {timeouts} l");
    let mut waiter = home.starts("waiter", &waiter, "echo mine")?;
    home.in_line_at(&format!("--connect {address}"), "l", 2)?;
    waiter.pause()?;
    holder.signal(Signal::TERM)?;
    holder.end(LIMIT).await?;
    tokio::time::sleep(Duration::from_millis(1_600)).await;
    waiter.resume()?;
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    Ok(())
}

#[test]
fn the_command_is_told_about_its_lock() -> Result<()> {
    let home = Home::new()?;
    let before = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let ended = home.runs("demo/hello", "env")?;
    ended.is_fine();
    let environment: HashMap<_, _> =
        ended.stdout.lines().filter_map(|line| line.split_once('=')).collect();
    assert_eq!(environment["LOCKKEEPER_LOCK"], "/demo/hello");
    assert!(environment["LOCKKEEPER_NODE"].starts_with("/demo/hello/_c_"));
    assert_eq!(environment["LOCKKEEPER_CONNECT"], home.connect_string());
    let first: i64 = environment["LOCKKEEPER_TOKEN"].parse()?;
    let deadline = Duration::from_millis(environment["LOCKKEEPER_DEADLINE_UNIX_MS"].parse()?);
    let left = deadline.checked_sub(before).context("a deadline in the past")?;
    assert!(left > Duration::from_secs(5) && left < LIMIT, "{left:?}");
    let next: i64 = home.runs("demo/hello", "echo $LOCKKEEPER_TOKEN")?.stdout.trim().parse()?;
    assert!(next > first, "{next} after {first}");
    Ok(())
}

/// What the command gets as its servers works for commands that it runs itself.
#[test]
fn a_command_can_take_another_lock() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let inner = format!("unset LOCKKEEPER_HOME; exec {} run inner -- echo both", program.display());
    let ended = home.runs("outer", &inner)?;
    ended.is_fine();
    assert_eq!(ended.stdout, "both\n");
    Ok(())
}

#[test]
fn the_command_gets_standard_input() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command("run l -- cat");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("no pipe")?.write_all(b"through")?;
    assert_eq!(child.wait_with_output()?.stdout, b"through");
    Ok(())
}

#[tokio::test]
async fn a_taken_lock_is_a_conflict() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "l").await?;
    let pid = holder.id().to_string();
    home.ends("run -n l -- true")?.complains(1, &["/l is not free", &pid, "(sh)"]);
    home.ends("run -w 50ms -E 42 l -- true")?.complains(42, &["/l is not free", &pid]);
    home.ends("run -w 0 l -- true")?.complains(1, &["/l is not free"]);
    let quiet = home.ends("run -n -q l -- true")?;
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(1), ""));
    assert_eq!(home.json("show l")?["contenders"].as_array().map(Vec::len), Some(1));
    holder.kill();
    Ok(())
}

#[tokio::test]
async fn who_waits_is_told_for_whom() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "l").await?;
    let mut waiter = home.starts("waiter", "l", "echo mine")?;
    let told = "waiting for /l, held by ";
    crate::support::eventually("the notice", || Ok(waiter.stderr().contains(told)))?;
    let who = format!("on {} pid {}", gethostname()?, holder.id());
    assert!(waiter.stderr().contains(&who), "{}", waiter.stderr());
    holder.signal(rustix::process::Signal::TERM)?;
    assert_eq!(holder.end(LIMIT).await?.code(), Some(143));
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0));
    assert_eq!(waiter.stdout(), "mine\n");
    Ok(())
}

fn gethostname() -> Result<String> {
    Ok(rustix::system::uname().nodename().to_str()?.to_owned())
}

#[test]
fn a_name_with_locks_below_it_is_no_lock() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let outer = format!("{} run a -- true; echo $?", program.display());
    let ended = home.runs("a/b", &outer)?;
    assert_eq!(ended.stdout, "65\n", "{ended:?}");
    has_all(&ended.stderr, &["/a", "b", "locks cannot be nested"]);
    home.runs("a/b", "true")?.is_fine();
    Ok(())
}

/// Symptom: a lock below a held one was granted, and then blocked the one above for all programs.
///
/// Fails without `above::check`.
#[tokio::test]
async fn nobody_gets_a_lock_below_one_in_use() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "hb").await?;
    let pid = holder.id().to_string();
    for options in ["hb/below", "-n hb/below", "--permits 2 hb/below", "hb/further/below"] {
        let parts = ["would be below /hb", "a lock in use, held by", &pid, "use another name"];
        home.runs(options, "true")?.complains(65, &parts);
    }
    home.ends("run -n hb -- true")?.complains(1, &["/hb is not free"]);
    holder.kill();

    // An unused lock, or a directory of locks, does not block others.
    for options in ["-q hb", "-q hb/below", "hb/further/below"] {
        home.runs(options, "true")?.is_fine();
    }
    Ok(())
}

/// Symptom: `--permits 5 --take 6` was refused, but a later run with another number got five permits.
///
/// Fails when only the servers are asked.
#[test]
fn a_refused_number_of_permits_leaves_no_trace() -> Result<()> {
    let home = Home::new()?;
    let refused = home.ends("run --permits 5 --take 6 l -- true")?;
    refused.complains(64, &["--take 6 exceeds --permits 5"]);
    home.runs("--permits 8 l", "true")?.is_fine();
    Ok(())
}

/// `run --json` was the same as `run`, and a mistaken time was only told in the engine's log.
///
/// Fails without the fix.
#[test]
fn what_has_no_effect_or_makes_no_sense_is_refused() -> Result<()> {
    let home = Home::new()?;
    home.ends("--json run l -- true")?.complains(64, &["--json has no effect on run"]);
    home.ends("wait --json l")?.complains(64, &["--json has no effect on wait"]);
    let mut mistaken = home.command("run l -- true");
    mistaken.env("LOCKKEEPER_LOCAL_IDLE", "bogus");
    Ended::of(&mut mistaken)?.complains(64, &["LOCKKEEPER_LOCAL_IDLE: write it like 10s"]);
    Ok(())
}

/// Symptom: a lock that was used once blocked the one above it for a minute.
#[test]
fn an_idle_lock_below_is_in_nobodys_way() -> Result<()> {
    let home = Home::new()?;
    home.runs("a/b", "true")?.is_fine();
    for options in ["a", "-n a", "--shared a", "--permits 2 a"] {
        home.runs("a/b", "true")?.is_fine();
        home.runs(options, "true")?.is_fine();
    }
    Ok(())
}

#[test]
fn without_a_server_the_code_is_75() -> Result<()> {
    let home = Home::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    drop(listener);
    let ended = home.ends(&format!("--connect {address} run -w 1 l -- true"))?;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.contains(&address) && last.contains("--connect"), "{ended:?}");
    Ok(())
}

#[test]
fn a_server_that_is_no_zookeeper_gives_75() -> Result<()> {
    let home = Home::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    // In one line: it is not waited for.
    let ended = home.ends(&format!("--connect {address} run l -- true"))?;
    ended.complains(75, &[&address, "HTTP/1.1 400 Bad Request", "check the port", "tls://"]);
    Ok(())
}

/// A server that never answers was given up after ten seconds, whatever -w said.
///
/// Fails with a limit that is fixed.
#[tokio::test]
async fn a_wait_is_also_for_a_server() -> Result<()> {
    let home = Home::new()?;
    // The system accepts connections, which are not read.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let connect = format!("--connect {}", listener.local_addr()?);
    for (options, limit) in
        [("-w 25s", "25s"), ("", "10s"), ("--connect-timeout 30s -w 25s", "30s")]
    {
        let mut process = home.starts("run", &format!("{connect} {options} l"), "true")?;
        let told = format!("giving up after {limit}");
        eventually("the notice", || Ok(process.stderr().contains(&told)))?;
        process.kill();
    }
    // K24: with a second, it was chance whether the notice came, too.
    for limit in ["50ms", "1500ms"] {
        let ended = home.ends(&format!("{connect} --connect-timeout {limit} run l -- true"))?;
        ended.complains(75, &[]);
    }
    let help = home.ends("settings --help")?.stdout;
    assert!(help.contains("LOCKKEEPER_CONNECT_TIMEOUT"), "{help}");
    Ok(())
}

/// The user was not told that a lease is shorter than what they asked for.
///
/// Fails without the notice.
#[tokio::test]
async fn another_session_timeout_than_asked_for_is_told() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let connect = format!("--connect {address}");
    let told = "a session timeout of 40s instead of 600s";
    home.runs(&format!("{connect} --session-timeout 10m l"), "true")?.complains(0, &[told]);
    home.runs(&format!("{connect} --session-timeout 20s l"), "true")?.is_fine();
    home.runs(&format!("{connect} l"), "true")?.is_fine();
    Ok(())
}

/// A run within a run of the same lock waited for itself, for ever.
///
/// Fails if the environment is not read: the first run hangs.
#[test]
fn a_run_does_not_wait_for_itself() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    let nested = |outer: &str, inner: &str| {
        let script = format!("timeout 30 {} run {inner} -- true; echo $?", program.display());
        home.runs(outer, &script)
    };
    for (outer, inner) in [
        ("l", "l"),
        ("--shared r", "--write r"),
        ("--write r", "--shared r"),
        ("--permits 2 p", "--permits 2 --take 2 p"),
    ] {
        let ended = nested(outer, inner)?;
        assert_eq!(ended.stdout, "64\n", "{outer}, {inner}: {ended:?}");
        assert!(ended.stderr.contains("an outer run already holds"), "{ended:?}");
    }
    // Also with other processes in between, and for `wait`.
    let own = program.display();
    for inner in ["run l -- true", "wait l"] {
        let script = format!("{own} run m -- timeout 30 {own} {inner}; echo $?");
        let ended = home.runs("l", &script)?;
        assert_eq!(ended.stdout, "64\n", "{inner}: {ended:?}");
    }
    for (outer, inner, code) in [
        ("--shared r", "--shared r", "0\n"),
        ("--permits 2 p", "--permits 2 p", "0\n"),
        ("l", "other", "0\n"),
        ("l", "-n l", "1\n"),
    ] {
        assert_eq!(nested(outer, inner)?.stdout, code, "{outer}, {inner}");
    }

    // What the command leaves behind has its environment, and not its lock.
    let script = format!(
        "(while [ -e outer ]; do sleep 0.01; done; {} run l -- touch done) >/dev/null 2>&1 &",
        program.display()
    );
    std::fs::write(home.folder().join("outer"), "")?;
    home.runs("l", &script)?.is_fine();
    std::fs::remove_file(home.folder().join("outer"))?;
    eventually("it has the lock", || Ok(home.folder().join("done").exists()))
}
