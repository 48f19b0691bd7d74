//! Several locks in one run: all of them or none.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result};
use lockkeeper::ZnodePath;
use lockkeeper_testkit::process::Process;

use crate::support::{Ended, Home, LIMIT, eventually, is_alive};

/// Whether all of these locks are without contenders.
fn are_free(home: &Home, locks: &[&str]) -> Result<bool> {
    for lock in locks {
        let shown = home.json(&format!("show {lock}"))?;
        if shown["contenders"].as_array().is_some_and(|all| !all.is_empty()) {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn holder(home: &Home, locks: &str) -> Result<Process> {
    let holder = home.holds("holder", locks).await?;
    Ok(holder)
}

#[test]
fn the_command_has_a_line_for_each_lock() -> Result<()> {
    let home = Home::new()?;
    let script =
        "echo \"$LOCKKEEPER_LOCK\"; echo \"$LOCKKEEPER_NODE\"; echo \"$LOCKKEEPER_TOKEN\"; exit 3";
    let ended = home.runs("b a", script)?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), ""), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 6, "{ended:?}");
    assert_eq!(lines[..2], ["/a", "/b"]);
    assert!(lines[2].starts_with("/a/_c_") && lines[3].starts_with("/b/_c_"), "{ended:?}");
    assert!(lines[4..].iter().all(|token| token.parse::<u64>().is_ok()), "{ended:?}");
    assert!(are_free(&home, &["a", "b"])?);
    Ok(())
}

#[tokio::test]
async fn it_is_all_or_none() -> Result<()> {
    let home = Home::new()?;
    let mut other = holder(&home, "b").await?;
    let ended = home.ends("run -n -E 9 a b c -- touch ran")?;
    ended.complains(9, &["/a, /b and /c are not all free; /b is not free, held by"]);
    home.ends("run -w 300ms a b c -- touch ran")?.complains(1, &["/b is not free, held by"]);
    assert!(!home.folder().join("ran").exists());
    assert!(are_free(&home, &["a", "c"])?);

    let mut waiter = home.starts("waiter", "c b a", "echo mine")?;
    home.in_line("b", 2)?;
    assert!(!are_free(&home, &["a"])?, "it comes before the one that is waited for");
    assert!(are_free(&home, &["c"])?, "no place is kept behind the one that is waited for");
    eventually("a notice", || Ok(waiter.stderr().contains("waiting for /a, /b and /c; /b is")))?;
    other.kill();
    assert_eq!(waiter.end(LIMIT).await?.code(), Some(0), "{}", waiter.tail());
    assert!(are_free(&home, &["a", "b", "c"])?);
    Ok(())
}

/// Two runs that take the same locks in the opposite order wait for each other for good.
#[tokio::test]
async fn runs_in_any_order_come_to_an_end() -> Result<()> {
    let home = Home::new()?;
    home.runs("a", "true")?.is_fine();
    let mut runs = Vec::new();
    for locks in ["a b c", "c b a", "b c", "c a"] {
        for turn in 0..3 {
            let name = format!("{}-{turn}", locks.replace(' ', "-"));
            runs.push(home.starts(&name, locks, "mkdir in && rmdir in")?);
        }
    }
    // All of them have lock b or c in common with one another but `b c` and `c a`, which have c.
    for run in &mut runs {
        assert_eq!(run.end(LIMIT).await?.code(), Some(0), "{}", run.tail());
    }
    Ok(())
}

#[tokio::test]
async fn the_loss_of_one_ends_the_command_and_names_it() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'exit 0' TERM; echo \"$LOCKKEEPER_NODE\"; while :; do sleep 0.05; done";
    let mut process = home.says("/b/_c_", "two", "a b", script).await?;
    process.prints("\n", LIMIT).await?;
    let node = process.stdout().lines().nth(1).context("two nodes")?.to_owned();
    let client = home.client().await?;
    client.delete(&ZnodePath::new(&node)?, None).await?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(79), "{}", process.tail());
    assert!(process.stderr().contains("/b is lost"), "{}", process.stderr());
    assert!(are_free(&home, &["a", "b"])?);
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn a_request_for_one_releases_all() -> Result<()> {
    let home = Home::new()?;
    let mut process = holder(&home, "a b").await?;
    home.ends("revoke b")?;
    assert_eq!(process.end(LIMIT).await?.code(), Some(143), "{}", process.tail());
    assert!(process.stderr().contains("/b: release requested"), "{}", process.stderr());
    assert!(are_free(&home, &["a", "b"])?);
    Ok(())
}

/// If lockkeeper is killed, its watchdog ends the command and then the session with both locks.
#[tokio::test]
async fn all_are_free_when_lockkeeper_is_killed() -> Result<()> {
    let home = Home::new()?;
    let mut process = home
        .says("\n", "killed", "--session-timeout 30s a b", "echo $$; while :; do :; done")
        .await?;
    let child: i32 = process.stdout().trim().parse().context("no process id")?;
    process.kill();
    eventually("the command is dead", || Ok(!is_alive(child)))?;
    let next = home.ends("run -w 20s b a -- true")?;
    next.is_fine();
    Ok(())
}

/// A run in a run that holds any of its locks would wait for good.
#[test]
fn a_run_within_does_not_wait_for_either() -> Result<()> {
    let home = Home::new()?;
    let program = lockkeeper_testkit::command::lockkeeper()?;
    for inner in ["b", "c a", "a"] {
        let script = format!("{} run {inner} -- true", program.display());
        let ended = home.runs("a b", &script)?;
        ended.complains(64, &["an outer run already holds"]);
    }
    home.runs("a b", &format!("{} run c d -- true", program.display()))?.is_fine();
    Ok(())
}

#[test]
fn what_does_not_go_together_is_refused() -> Result<()> {
    let home = Home::new()?;
    for (arguments, parts) in [
        ("run a b /a -- true", vec!["/a", "twice"]),
        ("run a/b c a -- true", vec!["/a/b is below /a"]),
        ("run --shared a b -- true", vec!["--shared", "one lock"]),
        ("run --write a b -- true", vec!["--write"]),
        ("run --permits 2 a b -- true", vec!["--permits"]),
        ("run --lock-delay 2s a b -- true", vec!["--lock-delay"]),
        ("run a b", vec!["<CMD>", "--"]),
    ] {
        home.ends(arguments)?.complains(64, &parts);
    }
    home.ends("run --profile kazoo a b -- true")?.is_fine();
    Ok(())
}

/// A lock of several is one for a single holder to others, and waits for a lock delay as such a one does.
#[tokio::test]
async fn others_are_obeyed() -> Result<()> {
    let home = Home::new()?;
    let mut reader = holder(&home, "--shared r").await?;
    home.ends("run q r -- true")?.complains(65, &["/r is in use as a read-write lock"]);
    reader.kill();

    let mut delaying = holder(&home, "--lock-delay 10m d").await?;
    delaying.kill();
    eventually("it is gone", || are_free(&home, &["d"]))?;
    home.ends("run -n c d -- touch ran")?.complains(1, &["/d is not free", "lock delay of 10m"]);
    assert!(!home.folder().join("ran").exists());
    Ok(())
}

/// Lockkeeper does not interfere with a command that reads standard input.
#[test]
fn a_command_with_two_locks_reads_its_input() -> Result<()> {
    let home = Home::new()?;
    fs::write(home.folder().join("in"), "word\n")?;
    let input = fs::File::open(home.folder().join("in"))?;
    let mut command = home.command("run a b -- cat");
    command.stdin(Stdio::from(input));
    let ended = Ended::of(&mut command)?;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "word\n"), "{ended:?}");
    Ok(())
}
