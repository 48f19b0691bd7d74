//! Backups that are restored, and servers in memory that are killed: tokens and leases.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, Contact, CreateMode, Mutex, ZnodePath};
use lockkeeper_testkit::process::Process;
use rustix::process::Signal;

use crate::serve::{served, talk};
use crate::support::{Ended, Home, LIMIT, eventually};

const SERVE: &str = "--listen 127.0.0.1:0 --tick 100ms";
const TOKEN: &str = "echo $LOCKKEEPER_TOKEN";

/// The token of one more `run`.
fn token(home: &Home, options: &str) -> Result<i64> {
    let ended = home.runs(&format!("{options} orders"), TOKEN)?;
    // It warns of so short a session.
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(ended.stdout.trim().parse()?)
}

fn token_of(home: &Home, address: &str) -> Result<i64> {
    token(home, &format!("--connect {address} --server-tick 100ms --session-timeout 1s"))
}

async fn stop(mut server: Process) -> Result<()> {
    server.signal(Signal::TERM)?;
    ensure!(server.end(LIMIT).await?.code() == Some(0), "{}", server.tail());
    Ok(())
}

/// The commands of a section of a page.
fn commands(page: &str, section: &str) -> Vec<String> {
    let text = page.split_once(&format!("\n{section}\n")).map_or("", |(_, rest)| rest);
    let text = text.split_once("\n## ").map_or(text, |(text, _)| text);
    text.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

/// A reader of `docs/engine.md` who types its commands line by line. A server keeps running while
/// other lines are typed, and is stopped before a restore.
#[tokio::test]
async fn the_page_on_restores_can_be_followed() -> Result<()> {
    let home = Home::new()?;
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/engine.md");
    let commands = commands(&fs::read_to_string(page)?, "## Restore");
    assert_eq!(commands.len(), 8, "{commands:?}");
    let (mut server, mut tokens) = (None, Vec::new());
    for (number, line) in commands.iter().enumerate() {
        if line == "export LOCKKEEPER_CONNECT=127.0.0.1:2181" {
            // Of the server that was started, at a port of its own.
            continue;
        }
        let line = line.strip_prefix("lockkeeper ").context("not a command of ours")?;
        if let Some(options) = line.strip_prefix("serve ") {
            let name = format!("server{number}");
            // The quiet time is 20 ticks long.
            let options = format!("{options} --listen 127.0.0.1:0 --tick 300ms");
            server = Some(served(&home, &name, &options).await?);
            continue;
        }
        if line.starts_with("engine restore")
            && let Some((server, _)) = server.take()
        {
            stop(server).await?;
        }
        let address = server.as_ref().map(|(_, address)| address.as_str());
        let ended = Ended::of(home.command_of(&words(line)).envs([
            ("LOCKKEEPER_CONNECT", address.unwrap_or_default()),
            ("LOCKKEEPER_CONNECT_TIMEOUT", "20s"),
        ]))?;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        if line.starts_with("run") {
            tokens.push(ended.stdout.trim().parse::<i64>()?);
        }
    }
    assert!(tokens.len() == 2 && tokens[0] < tokens[1] && tokens[1] < 1 << 53, "{tokens:?}");
    assert!(home.folder().join("data.replaced-1").is_dir());
    Ok(())
}

/// The words of a line, of which one may be quoted.
fn words(line: &str) -> Vec<&str> {
    match line.split_once('\'') {
        Some((before, quoted)) => {
            before.split_whitespace().chain([quoted.trim_end_matches('\'')]).collect()
        }
        None => line.split_whitespace().collect(),
    }
}

#[tokio::test]
async fn a_backup_that_is_restored_twice_gives_no_token_twice() -> Result<()> {
    let home = Home::new()?;
    let serve = format!("{SERVE} --data-dir data");
    let (server, address) = served(&home, "first", &serve).await?;
    let mut tokens = vec![token_of(&home, &address)?];
    home.ends("engine backup data backup")?.is_fine();
    tokens.push(token_of(&home, &address)?);
    home.ends("engine restore --replace backup data")?.complains(69, &["data", "in use"]);
    stop(server).await?;

    home.ends("engine restore backup data")?.complains(73, &["exists already", "--replace"]);
    for round in ["one", "two"] {
        let restored = home.json("engine restore --replace --quiet-time 0s backup data")?;
        assert!(restored["epoch"].as_u64() > Some(0), "{restored}");
        let (server, address) = served(&home, round, &serve).await?;
        tokens.push(token_of(&home, &address)?);
        tokens.push(token_of(&home, &address)?);
        stop(server).await?;
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}

/// A holder relies on the lock until its deadline. Its server is gone, and the restored
/// server does not grant the lock before that.
#[tokio::test]
async fn no_lease_overlaps_a_grant_after_a_restore() -> Result<()> {
    let home = Home::new()?;
    let serve = "--listen 127.0.0.1:0 --tick 200ms --data-dir data";
    let (mut server, address) = served(&home, "first", serve).await?;
    home.ends("engine backup data backup")?.is_fine();
    let tick = Duration::from_millis(200);
    let connect = || Client::builder().session_timeout(tick * 20).server_tick(tick);
    let client = connect().connect(&address).await?;
    let guard = Mutex::new(&client, "/orders")?.acquire().await?;
    server.kill();
    let deadline = guard.deadline();
    assert!(guard.ensure(Duration::from_secs(1)).is_ok());

    home.ends("engine restore --replace backup data")?.is_fine();
    let (server, address) = served(&home, "second", serve).await?;
    assert!(server.stderr().contains("quiet time"), "{}", server.stderr());
    let other = connect().connect_timeout(LIMIT).connect(&address).await;
    let other = match other {
        // Unreachable for a session timeout: the quiet time is as long.
        Err(_) => connect().connect_timeout(LIMIT).connect(&address).await?,
        connected => connected?,
    };
    let next = Mutex::new(&other, "/orders")?.acquire().await?;
    assert!(deadline.is_none_or(|deadline| other.now() > deadline), "two hold at the same time");
    assert!(next.token() > guard.token());
    stop(server).await
}

/// Symptom: a server in memory gave the tokens 18 and, after it was killed, 6, and immediately granted a lock that was
/// still held.
#[tokio::test]
async fn a_server_in_memory_that_is_killed_gives_larger_tokens_and_waits_for_leases() -> Result<()>
{
    let home = Home::new()?;
    let serve = "--listen 127.0.0.1:0 --tick 200ms --durability memory";
    let options = |address: &str| {
        format!(
            "--connect {address} --server-tick 200ms --session-timeout 2s --connect-timeout 20s"
        )
    };
    let (mut server, address) = served(&home, "first", serve).await?;
    assert!(!server.stderr().contains("quiet time"), "nobody was before it");
    let mut tokens = vec![token(&home, &options(&address))?];
    let script = "echo held; while :; do date +%s%N > beat.new; mv beat.new beat; done";
    let orders = format!("{} orders", options(&address));
    let holder = home.says("held", "holder", &orders, script).await?;
    server.kill();

    let (server, address) = served(&home, "second", serve).await?;
    assert!(server.stderr().contains("quiet time"), "{}", server.stderr());
    let script = format!("{TOKEN}; date +%s%N; cat beat; sleep 0.1; cat beat");
    let mut next = None;
    eventually("the lock is free", || {
        let ended = home.runs(&format!("{} orders", options(&address)), &script)?;
        next = (ended.code == Some(0)).then_some(ended.stdout);
        Ok(next.is_some())
    })?;
    let next = next.context("granted")?;
    let lines: Vec<i64> = next.lines().map(str::parse).collect::<Result<_, _>>()?;
    let [token, granted, beat, later] = lines[..] else { anyhow::bail!("{next}") };
    tokens.push(token);
    assert!(beat < granted && beat == later, "two commands at the same time: {next}");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    drop(holder);
    stop(server).await
}

/// The engine of a machine ends when it is idle. Nobody is left to be waited for then.
#[test]
fn the_local_engine_in_memory_goes_on_above_after_its_idle_time() -> Result<()> {
    let home = Home::new()?;
    let run = || -> Result<i64> {
        let mut command = home.command_of(&["run", "orders", "--", "sh", "-c", TOKEN]);
        command.env("LOCKKEEPER_LOCAL_DURABILITY", "memory").env("LOCKKEEPER_LOCAL_IDLE", "1ms");
        let ended = Ended::of(&mut command)?;
        ended.is_fine();
        eventually("it has ended", || Ok(home.ends("local status")?.code == Some(1)))?;
        Ok(ended.stdout.trim().parse()?)
    };
    let start = Instant::now();
    let mut tokens = vec![run()?, run()?, run()?];
    // As it is by default: what was in memory is older than this.
    let log = fs::read_to_string(home.engine().join("engine.log"))?;
    assert!(!log.contains("quiet time"), "after {:?}: {log}", start.elapsed());
    let ahead = tokens[2] + (1 << 40);
    let line = format!("lockkeeper-floor 1: 9 {ahead} 0; 9 {ahead} 0");
    fs::write(home.engine().join("data.floor"), format!("{line:<159}\n"))?;
    tokens.push(run()?);
    assert!(tokens[3] > ahead, "the clock was set back: {tokens:?}");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}

/// F6: a client that was ahead of its server, on which a copy was put back by hand, was refused for ever.
#[tokio::test]
async fn f6_a_client_that_is_ahead_of_its_server_recovers_by_itself() -> Result<()> {
    let home = Home::new()?;
    let serve = |address: &str| format!("--listen {address} --tick 100ms --data-dir data");
    let (server, address) = served(&home, "first", &serve("127.0.0.1:0")).await?;
    token_of(&home, &address)?;
    stop(server).await?;
    copy_by_hand(&home)?;
    let (mut server, _) = served(&home, "second", &serve(&address)).await?;
    token_of(&home, &address)?;
    let tick = Duration::from_millis(100);
    let client = Client::builder().session_timeout(tick * 10).server_tick(tick);
    let client = client.connect(&address).await?;
    let node = ZnodePath::new("/later")?;
    client.create(&node, "", CreateMode::Persistent).await?;
    let session = client.session_id();
    server.kill();
    fs::remove_dir_all(home.folder().join("data"))?;
    fs::rename(home.folder().join("copy"), home.folder().join("data"))?;

    let (server, _) = served(&home, "third", &serve(&address)).await?;
    let mut status = client.status();
    let recovered = status.wait_for(|now| now.rewinds == 1 && now.session != session);
    tokio::time::timeout(LIMIT, recovered).await??;
    client.create(&node, "", CreateMode::Persistent).await.context("it is not in the copy")?;
    assert!(server.stderr().contains("refused a client that has seen"), "{}", server.stderr());
    client.close().await;
    stop(server).await
}

fn copy_by_hand(home: &Home) -> Result<()> {
    let copied = std::process::Command::new("cp")
        .args(["-r", "data", "copy"])
        .current_dir(home.folder())
        .status()?;
    ensure!(copied.success(), "no copy");
    Ok(())
}

/// A directory that is lost is followed by an empty one, whose tokens go on by the clock.
#[tokio::test]
async fn a_directory_that_is_lost_gives_larger_tokens_too() -> Result<()> {
    let home = Home::new()?;
    let mut tokens = Vec::new();
    for name in ["first", "second"] {
        let (server, address) = served(&home, name, &format!("{SERVE} --data-dir data")).await?;
        tokens.push(token_of(&home, &address)?);
        stop(server).await?;
        fs::remove_dir_all(home.folder().join("data"))?;
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    Ok(())
}

/// A client that was ahead of a restored server connects at once, and learns that its session is over.
#[tokio::test]
async fn a_client_of_a_server_that_was_restored_begins_anew_at_once() -> Result<()> {
    let home = Home::new()?;
    let serve = |address: &str| format!("--listen {address} --tick 200ms --data-dir data");
    let (mut server, address) = served(&home, "first", &serve("127.0.0.1:0")).await?;
    home.ends("engine backup data backup")?.is_fine();
    let tick = Duration::from_millis(200);
    let builder = Client::builder().session_timeout(tick * 20).server_tick(tick);
    let client = builder.connect(&address).await?;
    let path = ZnodePath::new("/later")?;
    client.create(&path, "", CreateMode::Persistent).await?;
    server.kill();
    home.ends("engine restore --replace --quiet-time 0s backup data")?.is_fine();
    let since = Instant::now();
    let (server, _) = served(&home, "second", &serve(&address)).await?;
    let mut status = client.status();
    let session = client.session_id();
    tokio::time::timeout(LIMIT, status.wait_for(|now| now.session != session)).await??;
    assert!(since.elapsed() < LIMIT);
    let back = status.wait_for(|now| now.contact == Contact::Connected);
    tokio::time::timeout(LIMIT, back).await??;
    assert_eq!(status.borrow().rewinds, 0, "tokens go on");
    client.create(&path, "", CreateMode::Persistent).await.context("it was not in the backup")?;
    client.close().await;
    stop(server).await
}

/// A restore that is killed at any moment leaves the old directory or the new one.
#[tokio::test]
async fn a_restore_that_is_killed_leaves_the_old_or_the_new() -> Result<()> {
    let home = Home::new()?;
    let serve = format!("{SERVE} --data-dir data");
    let (server, address) = served(&home, "server", &serve).await?;
    token_of(&home, &address)?;
    home.ends("engine backup data backup")?.is_fine();
    stop(server).await?;

    let zxid = |checked: &serde_json::Value| -> Result<u64> {
        let text = checked["last_zxid"].as_str().context("a number")?;
        Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
    };
    let (mut old, mut new, mut last) = (0, 0, zxid(&home.json("engine check data")?)?);
    let whole = Instant::now();
    home.ends("engine restore backup other")?.is_fine();
    let whole = whole.elapsed();
    for run in 0..24 {
        let command = home.command("engine restore --replace --quiet-time 0s backup data");
        let mut restore = Process::spawn(&format!("restore{run}"), &command, home.folder())?;
        // Anywhere in it: whether before or after a step is what is tried.
        tokio::time::sleep(whole.mul_f64(fastrand::f64() * 1.2)).await;
        restore.kill();
        let checked = home.json("engine check data")?;
        let found = zxid(&checked)?;
        match found.cmp(&last) {
            std::cmp::Ordering::Less => anyhow::bail!("{found} after {last}"),
            std::cmp::Ordering::Equal => old += 1,
            std::cmp::Ordering::Greater => {
                assert_eq!(checked["sessions"], 0, "{checked}");
                new += 1;
            }
        }
        last = found;
    }
    println!("killed restores: {old} left the old directory, {new} the new one");
    let (server, address) = served(&home, "after", &serve).await?;
    assert!(u64::try_from(token_of(&home, &address)?)? > last);
    stop(server).await
}

#[tokio::test]
async fn the_quiet_time_is_shown_and_can_be_skipped() -> Result<()> {
    let home = Home::new()?;
    let serve = "--listen 127.0.0.1:0 --data-dir data --four-letter-words mntr";
    let (server, _) = served(&home, "first", serve).await?;
    stop(server).await?;
    home.ends("engine restore data restored")?.is_fine();
    let serve = serve.replace("data-dir data", "data-dir restored");
    let (server, address) = served(&home, "quiet", &serve).await?;
    let mntr = talk(&address, "mntr")?;
    let left = mntr.lines().find_map(|line| line.strip_prefix("zk_quiet_time\t"));
    assert!(left.context("not shown")?.parse::<u64>()? > 10_000, "{mntr}");
    let refused = home.runs(&format!("--connect {address} --connect-timeout 1s l"), "true")?;
    refused.complains(75, &["quiet after a restore"]);
    stop(server).await?;
    let (server, address) = served(&home, "skipped", &format!("{serve} --quiet-time 0s")).await?;
    home.runs(&format!("--connect {address} l"), "true")?.is_fine();
    stop(server).await
}
