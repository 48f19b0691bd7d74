//! `revoke` and `wait`: others want the lock.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;
use serde_json::json;

use crate::serve::in_memory;
use crate::slow::silent_at_first;
use crate::support::{Home, LIMIT, eventually};

/// Reports a TERM and continues.
const STUBBORN: &str = "trap 'echo asked' TERM; echo held; while :; do sleep 0.05; done";

#[tokio::test]
async fn a_command_that_is_asked_gives_way() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'echo ending; kill $job; exit 4' TERM; sleep 60 & job=$!; echo held; wait";
    let mut holder = home.says("held", "holder", "l", script).await?;
    let mut next = home.starts("next", "l", "echo mine")?;
    home.in_line("l", 2)?;
    let asked = home.ends("revoke l")?;
    asked.is_fine();
    assert!(asked.stdout.contains(&format!("pid {} (sh) was asked to release /l", holder.id())));
    // It had the lock to its end, so its code is its own.
    assert_eq!(holder.end(LIMIT).await?.code(), Some(4), "{}", holder.tail());
    assert_eq!(holder.stdout(), "held\nending\n");
    assert!(holder.stderr().contains("release requested"), "{}", holder.stderr());
    assert_eq!(next.end(LIMIT).await?.code(), Some(0), "{}", next.tail());
    assert_eq!(home.ends("revoke l")?.stdout, "no program holds /l\n");
    assert_eq!(home.json("revoke l")?, json!({ "lock": "/l", "holders": [] }));
    Ok(())
}

/// Who waited for so long for a server waited as long again for the lock.
///
/// Fails when both get all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_for_server_and_lock_together() -> Result<()> {
    const WAIT: Duration = Duration::from_secs(6);

    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let _holder = home.holds("holder", &format!("--connect {address} l")).await?;

    for arguments in ["run -q -w 6s l -- true", "wait -q -w 6s l"] {
        let slow = silent_at_first(&address, WAIT.mul_f64(0.7)).await?;
        let began = Instant::now();
        let ended = home.ends(&format!("--connect {slow} {arguments}"))?;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let shares = began.elapsed().as_secs_f64() / WAIT.as_secs_f64();
        assert!((1.0..1.5).contains(&shares), "{shares} of the wait: {ended:?}");
    }
    Ok(())
}

#[tokio::test]
async fn who_does_not_give_way_loses_the_lock() -> Result<()> {
    let home = Home::new()?;
    let mut holder = home.says("held", "holder", "l", STUBBORN).await?;
    let forced = home.json("revoke l --force-after 300ms")?;
    assert_eq!(forced["holders"][0]["outcome"], "forced", "{forced}");
    assert_eq!(holder.end(LIMIT).await?.code(), Some(79), "{}", holder.tail());
    assert!(holder.stdout().contains("asked"), "{}", holder.stdout());
    assert!(holder.stderr().contains("taken by force"), "{}", holder.stderr());
    let _polite = home.holds("polite", "l").await?;
    let gave_way = home.json("revoke l --force-after 30s")?;
    assert_eq!(gave_way["holders"][0]["outcome"], "gave-way", "{gave_way}");
    Ok(())
}

#[tokio::test]
async fn a_command_may_be_left_alone() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'echo asked' TERM; echo held; while [ ! -e go ]; do sleep 0.05; done";
    let mut holder = home.says("held", "holder", "--on-revoke ignore l", script).await?;
    home.ends("revoke l")?.is_fine();
    let shown = home.json("show l")?;
    assert_eq!(shown["contenders"][0]["revoked"], true);
    let pid = format!("pid {}", holder.id());
    eventually("its owner is known again", || {
        let text = home.ends("show l")?.stdout;
        assert!(text.contains("asked to release"), "{text}");
        Ok(text.contains(&pid))
    })?;
    std::fs::write(home.folder().join("go"), "")?;
    assert_eq!(holder.end(LIMIT).await?.code(), Some(0), "{}", holder.tail());
    assert_eq!(holder.stdout(), "held\n");
    Ok(())
}

#[tokio::test]
async fn everyone_who_reads_is_asked() -> Result<()> {
    let home = Home::new()?;
    let mut readers = Vec::new();
    for name in ["one", "two"] {
        readers.push(home.holds(name, "--shared l").await?);
    }
    let asked = home.ends("revoke l")?;
    assert_eq!(asked.stdout.lines().count(), 2, "{asked:?}");
    for reader in &mut readers {
        assert_eq!(reader.end(LIMIT).await?.code(), Some(143), "{}", reader.tail());
    }
    Ok(())
}

#[tokio::test]
async fn wait_ends_when_the_lock_is_free() -> Result<()> {
    let home = Home::new()?;
    home.ends("wait l")?.is_fine();
    home.ends("wait -w 0 l")?.is_fine();
    let mut holder = home.holds("holder", "l").await?;
    let pid = holder.id().to_string();
    home.ends("wait -w 0 l")?.complains(1, &["/l is not free", &pid]);
    home.ends("wait -w 50ms -E 42 l")?.complains(42, &["/l is not free", &pid]);
    let quiet = home.ends("wait -q -w 50ms l")?;
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(1), ""));

    let mut waiter = home.spawns("waiter", "wait l")?;
    let told = "waiting until /l is free, held by";
    eventually("the notice", || Ok(waiter.stderr().contains(told)))?;
    let mut next = home.starts("next", "l", "echo held; while [ ! -e go ]; do sleep 0.05; done")?;
    home.in_line("l", 2)?;
    holder.kill();
    next.prints("held", LIMIT).await?;
    // Handed on is not free.
    assert_eq!(waiter.status()?, None);
    std::fs::write(home.folder().join("go"), "")?;
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    home.in_line("l", 0)
}

/// The engine died, and its waiters ended with 75 although nothing was lost.
#[tokio::test]
async fn those_who_wait_start_the_engine_again() -> Result<()> {
    let home = Home::new()?;
    let script = "echo held; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let mut holder = home.says("held", "holder", "l", script).await?;
    let mut waiter = home.starts("waiter", "-w 60 l", "echo mine")?;
    home.in_line("l", 2)?;
    let mut watcher = home.spawns("watcher", "wait l")?;
    let before = home.signal_engine(Signal::KILL)?;
    let killed = Instant::now();
    eventually("another engine", || Ok(home.json("local status")?["running"] == true))?;
    assert!(killed.elapsed() < Duration::from_secs(9), "{:?}", killed.elapsed());
    assert_ne!(home.engine_pid()?, before.as_raw_nonzero().get());
    // Both kept their places, and the holder its lock.
    home.in_line("l", 2)?;
    std::fs::write(home.folder().join("go"), "")?;
    assert_eq!(holder.end(LIMIT).await?.code(), Some(5), "{}", holder.tail());
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    assert_eq!(watcher.end(LIMIT).await?.code(), Some(0), "{}", watcher.tail());
    Ok(())
}
