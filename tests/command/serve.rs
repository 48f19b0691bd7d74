//! `serve`: the engine in the foreground.

use std::fs;

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use rustix::process::Signal;

use crate::support::{Home, LIMIT, eventually};

/// A server, and what clients connect to.
async fn served(home: &Home, name: &str, options: &str) -> Result<(Process, String)> {
    let command = home.command(&format!("serve {options}"));
    let mut server = Process::spawn(name, &command, home.folder())?;
    let mut address = None;
    eventually("the server is ready", || {
        let log = server.stderr();
        let word = log.split_once("--connect ").and_then(|(_, rest)| rest.split_once(' '));
        address = word.map(|(address, _)| address.to_owned());
        anyhow::ensure!(server.status()?.is_none(), "{}", server.tail());
        Ok(address.is_some())
    })?;
    Ok((server, address.context("no address")?))
}

#[tokio::test]
async fn other_commands_use_it_and_its_data_survives() -> Result<()> {
    let home = Home::new()?;
    let options = "--listen 127.0.0.1:0 --data-dir data --tick 500ms";
    let mut tokens = Vec::new();
    for name in ["first", "second"] {
        let (mut server, address) = served(&home, name, options).await?;
        let connect = format!("--connect {address} --server-tick 500ms l");
        let ended = home.runs(&connect, "echo $LOCKKEEPER_TOKEN $LOCKKEEPER_CONNECT")?;
        ended.is_fine();
        let (token, servers) = ended.stdout.trim().split_once(' ').context("two words")?;
        assert_eq!(servers, address);
        tokens.push(token.parse::<i64>()?);
        assert!(server.stderr().contains("started"), "{}", server.stderr());
        server.signal(Signal::TERM)?;
        assert_eq!(server.end(LIMIT).await?.code(), Some(0), "{}", server.tail());
        assert!(server.stderr().contains("stopped"), "{}", server.stderr());
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_taken_is_told() -> Result<()> {
    let home = Home::new()?;
    let (server, address) = served(&home, "one", "--listen 127.0.0.1:0 --data-dir data").await?;
    let other = home.ends(&format!("serve --listen {address} --durability memory"))?;
    other.complains(69, &[&address, "another port"]);
    let pid = server.id().to_string();
    let other = home.ends("serve --listen 127.0.0.1:0 --data-dir data")?;
    assert_eq!(other.code, Some(69), "{other:?}");
    assert!(other.stderr.contains(&pid) && other.stderr.contains("another directory"), "{other:?}");
    Ok(())
}

#[test]
fn a_directory_that_cannot_be_one_is_told() -> Result<()> {
    let home = Home::new()?;
    fs::write(home.folder().join("file"), "")?;
    let ended = home.ends("serve --listen 127.0.0.1:0 --data-dir file/below")?;
    ended.complains(73, &["file/below", "directory"]);
    Ok(())
}

#[test]
fn others_reach_it_only_when_asked_for() -> Result<()> {
    let home = Home::new()?;
    let ended = home.ends("serve --listen 0.0.0.0:0 --durability memory")?;
    ended.complains(64, &["0.0.0.0", "--allow-plaintext"]);
    Ok(())
}

#[tokio::test]
async fn zookeepers_own_configuration_is_read() -> Result<()> {
    let home = Home::new()?;
    let text = "tickTime=200\ninitLimit=5\ndataDir=zk\nclientPort=0\nclientPortAddress=127.0.0.1\n\
                maxSessionTimeout=60000\nserver.1=a:1:2\n";
    fs::write(home.folder().join("zoo.cfg"), text)?;
    let (server, address) = served(&home, "configured", "--config zoo.cfg").await?;
    let log = server.stderr();
    for part in ["line 2: initLimit has no effect", "line 7: server.1 has no effect"] {
        assert!(log.contains(part), "{log}");
    }
    assert!(home.folder().join("zk/FORMAT").is_file());
    home.runs(&format!("--connect {address} --session-timeout 30s l"), "true")?.is_fine();
    Ok(())
}

#[test]
fn a_wrong_configuration_is_told_with_its_line() -> Result<()> {
    let home = Home::new()?;
    home.ends("serve --config zoo.cfg")?.complains(78, &["zoo.cfg", "No such file"]);
    fs::write(home.folder().join("zoo.cfg"), "tickTime=2000\nwhat is this\n")?;
    home.ends("serve --config zoo.cfg")?.complains(78, &["zoo.cfg, line 2", "what is this"]);
    fs::write(home.folder().join("zoo.cfg"), "tickTime=soon\n")?;
    home.ends("serve --config zoo.cfg")?.complains(78, &["zoo.cfg, line 1", "tickTime=soon"]);
    Ok(())
}
