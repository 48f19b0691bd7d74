//! `run` with the other locks: shared, semaphores, and those of other libraries.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockkeeper::{CreateMode, ExclusiveNode, ZnodePath};
use serde_json::{Value, json};

use crate::support::{Home, LIMIT};

#[tokio::test]
async fn readers_share_and_a_writer_waits() -> Result<()> {
    let home = Home::new()?;
    let mut readers = Vec::new();
    for name in ["one", "two"] {
        readers.push(home.holds(name, "--shared l").await?);
    }
    let mut writer = home.starts("writer", "--write l", "echo mine")?;
    home.in_line("l", 3)?;
    let shown = home.json("show l")?;
    assert_eq!(column(&shown, "kind"), json!(["read", "read", "write"]));
    assert_eq!(column(&shown, "state"), json!(["holds", "holds", "waits"]));
    let text = home.ends("show l")?.stdout;
    assert!(text.contains("/l: 2 holders, 1 waiting"), "{text}");
    assert!(home.ends("ls")?.stdout.contains("and 1 more"));
    // In order of arrival: a reader that comes later does not pass the writer.
    home.ends("run -n -s l -- true")?.complains(1, &["/l is not free", "and 1 more"]);
    for reader in &mut readers {
        reader.kill();
    }
    assert_eq!(writer.end(LIMIT).await?.code(), Some(0), "{}", writer.tail());
    assert_eq!(writer.stdout(), "mine\n");
    Ok(())
}

#[tokio::test]
async fn permits_are_counted() -> Result<()> {
    let home = Home::new()?;
    let mut one = home.holds("one", "--permits 3 l").await?;
    let _two = home.holds("two", "--permits 3 --take 2 l").await?;
    let mut third = home.starts("third", "--permits 3 l", "echo mine")?;
    home.in_line("l", 3)?;
    let shown = home.json("show l")?;
    assert_eq!(shown["permits"], 3);
    assert_eq!(column(&shown, "permits"), json!([1, 2, 1]));
    assert_eq!(column(&shown, "state"), json!(["holds", "holds", "waits"]));
    let text = home.ends("show l")?.stdout;
    assert!(text.contains("3 of 3 permits held, 1 waiting"), "{text}");
    assert!(text.contains("2 permits"), "{text}");
    one.kill();
    assert_eq!(third.end(LIMIT).await?.code(), Some(0), "{}", third.tail());
    Ok(())
}

#[tokio::test]
async fn another_number_of_permits_is_refused() -> Result<()> {
    let home = Home::new()?;
    let _holder = home.holds("holder", "--permits 2 l").await?;
    for options in ["", "-q", "-n", "--take 3"] {
        let refused = home.ends(&format!("run --permits 5 {options} l -- true"))?;
        let parts = ["/l has 2 permits, not 5", "--permits 2", "permits set /l 5", "--any-permits"];
        refused.complains(65, &parts);
    }
    home.runs("--permits 5 --any-permits l", "true")?.is_fine();
    let refused = home.ends("run --permits 5 --any-permits --take 3 l -- true")?;
    refused.complains(64, &["3 permits of /l", "only 2"]);
    Ok(())
}

#[tokio::test]
async fn the_number_of_permits_is_shown_and_changed() -> Result<()> {
    let home = Home::new()?;
    let none = home.ends("permits show l")?;
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (Some(1), "/l: no number of permits is stored\n")
    );
    let mut holder = home.holds("holder", "--permits 2 l").await?;
    assert_eq!(home.ends("permits show l")?.stdout, "/l: 2 permits\n");
    assert_eq!(home.json("permits show l")?, json!({ "lock": "/l", "permits": 2 }));

    let mut waiter = home.starts("waiter", "--permits 2 --take 2 l", "echo mine")?;
    home.in_line("l", 2)?;
    assert_eq!(home.ends("permits set l 3")?.stdout, "/l: 3 permits\n");
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    home.runs("--permits 3 l", "true")?.is_fine();
    home.runs("--permits 2 -q l", "true")?.complains(65, &["/l has 3 permits, not 2"]);

    // It stays after the last use.
    holder.kill();
    home.in_line("l", 0)?;
    assert_eq!(home.json("permits set l 1")?, json!({ "lock": "/l", "permits": 1 }));
    assert_eq!(home.ends("permits show l")?.stdout, "/l: 1 permit\n");
    // And comes before the first.
    home.ends("permits set before/first 4")?.is_fine();
    home.runs("--permits 4 before/first", "true")?.is_fine();
    home.ends("permits set l 0")?.complains(64, &["0"]);
    Ok(())
}

#[tokio::test]
async fn a_number_is_stored_only_where_it_is_read() -> Result<()> {
    let home = Home::new()?;
    for (options, part) in [
        ("", "not with permits"),
        ("--shared", "not with permits"),
        ("--profile curator --permits 2", "Curator's layout"),
        ("--profile kazoo --permits 2", "kazoo's layout"),
    ] {
        let lock = format!("l{}", options.len());
        let mut holder = home.holds("holder", &format!("{options} {lock}")).await?;
        home.ends(&format!("permits set {lock} 3"))?.complains(65, &[&lock, part]);
        let shown = home.ends(&format!("permits show {lock}"))?;
        match part.contains("kazoo") {
            true => assert_eq!(shown.stdout, format!("/{lock}: 2 permits\n")),
            false => shown.complains(65, &[&lock, part]),
        }
        holder.kill();
    }

    let client = home.client().await?;
    let other = ZnodePath::new("/config")?;
    client.create(&other, "ten", CreateMode::Persistent).await?;
    home.ends("permits set config 3")?.complains(65, &["/config contains data"]);
    let held = ExclusiveNode::new(&client, "/node")?.acquire().await?;
    home.ends("permits set node 3")?.complains(65, &["/node is held as a single znode"]);
    held.release().await?;
    client.close().await;
    Ok(())
}

/// Symptom: its two queues are below two children, so the queue of the lock was not read, and both held at once.
#[tokio::test]
async fn permits_as_curator_has_them_are_refused_at_a_lock_of_another_kind() -> Result<()> {
    let home = Home::new()?;
    for (name, options) in ["", "--shared", "--permits 2", "--profile kazoo"].iter().enumerate() {
        let lock = format!("l{name}");
        let mut holder = home.holds(&lock, &format!("{options} {lock}")).await?;
        let other = home.ends(&format!("run -n --profile curator --permits 1 {lock} -- true"))?;
        other.complains(65, &[&format!("/{lock} is in use as")]);
        holder.kill();
    }
    Ok(())
}

/// Symptom: it was shown as free. `wait` returned during the hold, `revoke` asked no holder, and a lock below it was
/// granted.
#[tokio::test]
async fn a_semaphore_as_curator_has_it_is_seen() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "--profile curator --permits 1 l").await?;
    let shown = home.json("show l")?;
    assert_eq!(column(&shown, "state"), json!(["holds"]));
    home.ends("wait -w 0 l")?.complains(1, &["/l is not free"]);
    home.ends("run -n --profile curator --permits 1 l -- true")?
        .complains(1, &["/l is not free", "held by"]);
    home.ends("run -n l/below -- true")?.complains(65, &["would be below /l"]);
    home.ends("run -n l -- true")?.complains(65, &["/l is in use as a lock with permits"]);
    home.ends("revoke l")?.is_fine();
    // The command gets TERM.
    assert_eq!(holder.end(LIMIT).await?.code(), Some(143), "{}", holder.tail());
    Ok(())
}

#[tokio::test]
async fn a_lock_is_of_one_kind() -> Result<()> {
    for (first, other, way_out) in [
        ("--shared", "", "--write"),
        ("--shared", "--permits 2", "--shared"),
        ("", "--write", "neither --shared"),
        ("--permits 2", "", "use --permits"),
        ("--profile kazoo", "", "use --profile kazoo"),
        ("", "--profile kazoo", "use --profile curator"),
    ] {
        let home = Home::new()?;
        let _holder = home.holds("holder", &format!("{first} l")).await?;
        let refused = home.ends(&format!("run {other} l -- true"))?;
        refused.complains(65, &["/l is in use as", way_out]);
        home.in_line("l", 1)?;
    }
    Ok(())
}

#[test]
fn the_names_are_those_of_the_library_that_is_asked_for() -> Result<()> {
    let home = Home::new()?;
    for (options, part) in [
        ("", "/l/_c_"),
        ("--profile curator --write", "-__WRIT__0"),
        ("--profile kazoo", "__lock__0"),
        ("--profile kazoo --shared", "__rlock__0"),
        ("--profile curator --permits 2", "/l/leases/_c_"),
        ("--permits 2", "-1-permits-0"),
    ] {
        let home_of_its_own = Home::new()?;
        let ended = home_of_its_own.runs(&format!("{options} l"), "echo $LOCKKEEPER_NODE")?;
        ended.is_fine();
        assert!(ended.stdout.contains(part), "{options}: {ended:?}");
    }
    for (options, parts) in [
        ("--shared --write", ["--shared", "--write"]),
        ("--shared --permits 2", ["--permits", "--shared"]),
        ("--take 2", ["--permits", "--help"]),
        ("--permits 0", ["--permits", "0"]),
        ("--profile redis", ["redis", "kazoo"]),
    ] {
        home.ends(&format!("run {options} l -- true"))?.complains(64, &parts);
    }
    Ok(())
}

/// What the command under the lock was doing may go on for a while after its death.
#[tokio::test]
async fn a_holder_that_vanishes_keeps_the_next_one_waiting() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.holds("holder", "--session-timeout 2s --lock-delay 3s l").await?;
    holder.kill();
    let died = Instant::now();
    home.runs("--lock-delay 100ms l", "true")?;
    assert!(died.elapsed() > Duration::from_secs(3), "{:?}", died.elapsed());
    let free = Instant::now();
    home.runs("--lock-delay 10s l", "true")?.is_fine();
    home.runs("--lock-delay 10s l", "true")?.is_fine();
    assert!(free.elapsed() < Duration::from_secs(9), "{:?}", free.elapsed());
    home.ends("run --shared --lock-delay 1s l -- true")?.complains(64, &["--lock-delay"]);
    Ok(())
}

/// One field of all contenders.
fn column(shown: &Value, field: &str) -> Value {
    let contenders = shown["contenders"].as_array().context("an array").unwrap_or_else(|error| {
        panic!("{error}: {shown}");
    });
    contenders.iter().map(|entry| entry[field].clone()).collect()
}
