//! `lockkeeper run`, behind a holder of the library's.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::{LeaseMode, Mutex, Profile, RwLock, Semaphore, ZnodePath};
use lockkeeper_testkit::backend::children_reach;
use lockkeeper_testkit::command::lockkeeper;
use lockkeeper_testkit::process::Process;

use super::Take;
use crate::keeping::cases::End;
use crate::keeping::held::{Held, LEASES};
use crate::keeping::scene::Scene;

/// How a lock is taken by the command.
pub(crate) struct Run {
    /// Those that choose the lock.
    pub(crate) options: &'static str,
    /// What holds the lock before.
    pub(crate) before: Take,
    pub(crate) leaves: Leaves,
}

/// How the holder before leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaves {
    /// Gives the lock back after the wait.
    Released,
    /// Vanishes at once: its lock delay is the wait.
    Vanishes,
}

/// The exit code of what runs under the lock.
const OWN_CODE: i32 = 7;

/// The exit code of the command when the lock was lost.
const LOST_CODE: i32 = 79;

/// Longer than a process takes to end on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs one case: the child must end by itself.
pub(crate) async fn run(scene: &Scene, run: &Run) -> Result<End> {
    let before = (run.before)(scene).await?;
    let name = scene.path.replace('/', "-");
    let mut process = Process::spawn(&name, &command(scene, run)?, scene.servers.folder().path())?;
    let path = ZnodePath::new(&scene.path)?;
    tokio::select! {
        biased;
        in_line = children_reach(&scene.other, &path, 2) => in_line?,
        ended = process.end(LIMIT) => bail!("it ended ({}) early: {}", ended?, process.tail()),
    }
    match run.leaves {
        Leaves::Released => {
            scene.idle().await;
            drop(before);
        }
        Leaves::Vanishes => {
            let guard = before.only().context("a lock of one node")?;
            scene.other.delete(guard.node(), None).await?;
        }
    }

    let status = process.end(LIMIT + scene.lease * (LEASES + 2)).await?;
    match status.code() {
        Some(OWN_CODE) => Ok(End::Kept(None)),
        Some(LOST_CODE) => Ok(End::Lost(process.stderr().trim().replace('\n', "; "))),
        _ => bail!("it ended with {status}: {}", process.tail()),
    }
}

fn command(scene: &Scene, run: &Run) -> Result<Command> {
    let (case, form) = (scene.case, scene.servers.form());
    let mut command = Command::new(lockkeeper()?);
    command.args(["--connect", scene.servers.connect_string(case.server)]);
    command.arg("--session-timeout").arg(millis(form.timeout));
    command.arg("--server-tick").arg(millis(form.tick));
    if case.mode == LeaseMode::Direct {
        command.args(["--lease", "direct"]);
    }
    command.arg("run").args(run.options.split_whitespace()).arg(&scene.path).arg("--");
    let held = (scene.lease * LEASES).as_secs_f64();
    command.args(["sh", "-c", &format!("sleep {held:.3}; exit {OWN_CODE}")]);

    command.current_dir(scene.servers.folder().path());
    for variable in ["LOCKKEEPER_CONNECT", "LOCKKEEPER_LOG", "LOCKKEEPER_DIGEST"] {
        command.env_remove(variable);
    }
    Ok(command)
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

// ----- who holds before -----------------------------------------------------------------------

pub(super) async fn mutex(scene: &Scene) -> Result<Held> {
    Ok(Held::one(Mutex::new(&scene.other, &scene.path)?.acquire().await?))
}

pub(super) async fn kazoo(scene: &Scene) -> Result<Held> {
    let lock = Mutex::builder(&scene.other, &scene.path).profile(Profile::Kazoo).build()?;
    Ok(Held::one(lock.acquire().await?))
}

pub(super) async fn write(scene: &Scene) -> Result<Held> {
    Ok(Held::one(RwLock::new(&scene.other, &scene.path)?.write().await?))
}

pub(super) async fn read(scene: &Scene) -> Result<Held> {
    let guard = RwLock::new(&scene.other, &scene.path)?.read().await?;
    Ok(Held::one(guard))
}

pub(super) async fn two_permits(scene: &Scene) -> Result<Held> {
    permits(scene, 2).await
}

pub(super) async fn three_permits(scene: &Scene) -> Result<Held> {
    permits(scene, 3).await
}

async fn permits(scene: &Scene, all: u32) -> Result<Held> {
    Ok(Held::one(Semaphore::new(&scene.other, &scene.path, all)?.acquire_many(all).await?))
}

/// Its delay is the wait of the case, for when it vanishes.
pub(super) async fn lock_delay(scene: &Scene) -> Result<Held> {
    let lock = Mutex::builder(&scene.other, &scene.path).lock_delay(scene.wait).build()?;
    Ok(Held::one(lock.acquire().await?))
}
