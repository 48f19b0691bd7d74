//! One of several locks, as things of a pool.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result};
use lockkeeper::ZnodePath;
use lockkeeper::revoke::revoke_node;
use serde_json::Value;

use crate::support::{Ended, Home, LIMIT, eventually};

#[tokio::test]
async fn each_run_has_another_one() -> Result<()> {
    let home = Home::new()?;
    let mut first =
        home.starts("first", "--one-of gpu/0 gpu/1", "echo $LOCKKEEPER_NAME; sleep 60")?;
    eventually("the first one", || Ok(first.stdout().contains('0')))?;
    let script = "echo $LOCKKEEPER_NAME $LOCKKEEPER_LOCK $LOCKKEEPER_NODE; exit 3";
    let ended = home.runs("--one-of gpu/0 gpu/1", script)?;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), "1 /gpu /gpu/held/1\n"), "{ended:?}");

    home.ends("run -n --one-of gpu/0 -- true")?.complains(1, &["/gpu is not free; held: 0 by "]);
    let mut waits = home.starts("waits", "--one-of gpu/0", "echo $LOCKKEEPER_NAME")?;
    eventually("a notice", || Ok(waits.stderr().contains("waiting for /gpu")))?;
    first.kill();
    assert_eq!(waits.end(LIMIT).await?.code(), Some(0), "{}", waits.tail());
    assert_eq!(waits.stdout(), "0\n");
    Ok(())
}

#[test]
fn names_of_several_pools_are_refused() -> Result<()> {
    let home = Home::new()?;
    let refused = home.ends("run --one-of gpu/0 tpu/1 -- true")?;
    refused.complains(64, &["/tpu/1 is not directly below /gpu"]);
    home.ends("run --one-of gpu -- true")?.complains(64, &["same part", "gpu/0 gpu/1"]);
    home.ends("run --one-of --shared gpu/0 -- true")?.complains(64, &["--shared"]);
    let once = home.ends("run --one-of --once-per k gpu/0 -- true")?;
    once.complains(64, &["need an exclusive lock"]);

    let braces = home.ends("run --one-of gpu/{0..3} -- true")?;
    braces.complains(64, &["contains braces", "gpu/0 gpu/1"]);

    home.ends("queue put job a")?.is_fine();
    home.ends("run --one-of job/0 job/1 -- true")?
        .complains(65, &["/job is a queue, not a pool; see lockkeeper queue ls /job"]);
    // What a run leaves for a while is no lock any more.
    home.runs("plain", "true")?.is_fine();
    home.runs("--one-of plain/0", "true")?.is_fine();
    Ok(())
}

/// Symptom: a request for a thing named the pool, and the log did not say which thing it was.
#[tokio::test]
async fn a_request_and_the_log_name_the_thing() -> Result<()> {
    let home = Home::new()?;
    let script = "echo $LOCKKEEPER_NODE; exec sleep 60";
    let mut process = home.starts("asked", "--one-of --json-log log gpu/0 gpu/1", script)?;
    process.prints("\n", LIMIT).await?;
    let client = home.client().await?;
    revoke_node(&client, &ZnodePath::new(process.stdout().trim())?).await?;
    process.end(LIMIT).await?;
    client.close().await;
    let stderr = process.stderr();
    assert!(stderr.contains("/gpu/0: release requested"), "{stderr}");

    let log = fs::read_to_string(home.folder().join("log"))?;
    let events: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let of = |name: &str| events.iter().find(|it| it["event"] == name).context("no such event");
    assert_eq!(of("acquired")?["name"], "0");
    assert_eq!(of("revoked")?["lock"], "/gpu/0");
    Ok(())
}

/// The line of `docs/pools.md`, word for word, with a training that prints its GPU.
#[test]
fn the_line_of_the_page_gives_a_gpu() -> Result<()> {
    let home = Home::new()?;
    let (_, line) = include_str!("../../docs/pools.md").split_once("```sh\n").context("no line")?;
    let (line, _) = line.split_once("```").context("no end")?;
    let python = home.folder().join("python3");
    fs::write(&python, "#!/bin/sh\necho \"$CUDA_VISIBLE_DEVICES\" \"$@\"\n")?;
    fs::set_permissions(&python, fs::Permissions::from_mode(0o700))?;

    let program = lockkeeper_testkit::command::lockkeeper()?;
    let program = program.parent().context("no folder")?.display();
    let path = format!("{}:{program}:{}", home.folder().display(), std::env::var("PATH")?);
    // Braces are not for every shell.
    let mut command = std::process::Command::new("bash");
    for (name, value) in home.command("ls").get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PATH", path).args(["-c", line]);
    let ended = Ended::of(&mut command)?;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "0 train.py\n"), "{ended:?}");
    Ok(())
}

/// Symptom: a pool with a holder was shown as a free lock, and `wait` returned at once.
#[tokio::test]
async fn a_pool_or_a_queue_is_no_free_lock() -> Result<()> {
    let home = Home::new()?;
    let mut first = home.starts("first", "--one-of gpu/0", "echo held; sleep 60")?;
    first.prints("held", LIMIT).await?;
    home.ends("queue put jobs a")?.is_fine();
    for (path, what) in [("gpu", "a pool"), ("jobs", "a queue")] {
        let shown = home.ends(&format!("show {path}"))?.stdout;
        assert!(shown.contains(&format!("/{path} is {what}, not a lock")), "{shown}");
        for verb in ["wait", "revoke"] {
            home.ends(&format!("{verb} {path}"))?.complains(65, &[what, "see lockkeeper"]);
        }
    }
    first.kill();

    let mut lock = home.holds("lock", "door").await?;
    home.ends("run --one-of door/0 -- true")?
        .complains(65, &["/door is a lock, not a pool; see lockkeeper show /door"]);
    lock.kill();
    Ok(())
}
