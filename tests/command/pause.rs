//! A command that stands still in an outage, and goes on or is killed where it stands.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::killed::watchdog;
use crate::support::{Home, LIMIT, eventually, is_alive};

/// Says its process id, its token and that it was asked to end, and counts as long as it runs.
pub(crate) const COUNT: &str = "trap 'echo TERM' TERM; trap '' HUP; echo $$; \
                     while [ ! -e go ]; do echo >> count; sleep 0.01; done; \
                     echo token $LOCKKEEPER_TOKEN; exit 5";

const PAUSE: &str = "--session-timeout 2s --on-outage pause l";

/// A command that counts, and the engine that it depends on.
struct Scene {
    home: Home,
    process: Process,
    child: Pid,
    engine: Pid,
}

impl Scene {
    async fn new(options: &str, script: &str) -> Result<Self> {
        let home = Home::new()?;
        let mut process = home.starts("paused", options, script)?;
        process.prints("\n", LIMIT).await?;
        let child = pid(process.stdout().lines().next().unwrap_or_default().parse()?)?;
        let engine = pid(home.engine_pid()?)?;
        Ok(Self { home, process, child, engine })
    }

    /// The engine answers nothing until it goes on.
    fn outage(&self) -> Result<()> {
        kill_process(self.engine, Signal::STOP)?;
        self.says("the command is stopped")?;
        self.stands_still()
    }

    fn outage_ends(&self) -> Result<()> {
        kill_process(self.engine, Signal::CONT)?;
        Ok(())
    }

    fn says(&self, what: &str) -> Result<()> {
        eventually(what, || Ok(self.process.stderr().contains(what)))
    }

    fn stands_still(&self) -> Result<()> {
        let still = eventually("it stands still", || is_still(self.child));
        still.with_context(|| format!("{:?}: {}", state(self.child), self.process.tail()))
    }

    fn runs(&self) -> Result<()> {
        let before = self.count()?;
        eventually("it runs", || Ok(self.count()? != before))
    }

    fn count(&self) -> Result<u64> {
        count(&self.home)
    }

    /// Lets the command finish.
    async fn finishes(&mut self) -> Result<()> {
        fs::write(self.home.folder().join("go"), "")?;
        let ended = self.process.end(LIMIT).await?;
        assert_eq!(ended.code(), Some(5), "{}", self.process.tail());
        Ok(())
    }

    /// Waits until the command is killed because of the loss, without having run again.
    async fn is_lost(&mut self, counted: u64) -> Result<()> {
        let ended = self.process.end(LIMIT).await?;
        assert_eq!(ended.code(), Some(79), "{}", self.process.tail());
        assert_eq!(self.count()?, counted, "it ran after the deadline");
        assert!(!self.process.stdout().contains("TERM"), "{}", self.process.stdout());
        Ok(())
    }
}

/// How far a command has counted; 0 if it has not begun.
pub(crate) fn count(home: &Home) -> Result<u64> {
    let file = home.folder().join("count");
    Ok(if file.exists() { fs::metadata(file)?.len() } else { 0 })
}

fn pid(id: i32) -> Result<Pid> {
    Pid::from_raw(id).context("no process id")
}

/// The state of a process, as `ps` shows it.
fn state(process: Pid) -> Result<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()))?;
    let (_, rest) = stat.rsplit_once(") ").context("no state")?;
    rest.chars().next().context("no state")
}

/// Whether a process of a stopped group cannot run: it is stopped, or waits in the kernel for a child that is.
/// A shell starts a program by `vfork`; if that is stopped before it has become the program, the shell is
/// stopped when it goes on.
fn is_still(process: Pid) -> Result<bool> {
    Ok(match state(process)? {
        'T' => true,
        'D' => children(process)?.into_iter().any(|child| state(child).is_ok_and(|at| at == 'T')),
        _ => false,
    })
}

fn children(process: Pid) -> Result<Vec<Pid>> {
    let id = process.as_raw_nonzero();
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    listed.split_whitespace().map(|child| pid(child.parse()?)).collect()
}

#[tokio::test]
async fn a_command_stands_still_in_an_outage_and_goes_on() -> Result<()> {
    let mut scene = Scene::new(PAUSE, COUNT).await?;
    scene.runs()?;
    let waiting = scene.home.starts("waiting", "--quiet l", "echo mine")?;
    scene.home.in_line("l", 2)?;
    for _ in 0..2 {
        let told = scene.process.stderr().len();
        kill_process(scene.engine, Signal::STOP)?;
        eventually("it is stopped", || {
            Ok(scene.process.stderr()[told..].contains("the command is stopped"))
        })?;
        scene.stands_still()?;
        let counted = scene.count()?;
        scene.outage_ends()?;
        eventually("it goes on", || {
            Ok(scene.process.stderr()[told..].contains("was held all the time"))
        })?;
        eventually("it counts", || Ok(scene.count()? != counted))?;
        assert_eq!(waiting.stdout(), "", "granted while the first one has the lock");
    }
    scene.finishes().await?;
    eventually("the next one has the lock", || Ok(waiting.stdout() == "mine\n"))
}

/// TERM would need a continuation, and run what the command does at its end after the loss.
#[tokio::test]
async fn a_command_that_stands_still_is_killed_when_the_grace_is_over() -> Result<()> {
    let mut scene = Scene::new(&format!("--grace 3s {PAUSE}"), COUNT).await?;
    scene.runs()?;
    scene.outage()?;
    let counted = scene.count()?;
    kill_process(pid(scene.process.id().try_into()?)?, Signal::TERM)?;
    scene.says("the signal waits until the command goes on")?;
    scene.says("no server came back in time")?;
    scene.is_lost(counted).await
}

/// No process can refuse to be continued.
#[tokio::test]
async fn a_continuation_from_outside_is_undone() -> Result<()> {
    let mut scene = Scene::new(PAUSE, COUNT).await?;
    scene.runs()?;
    scene.outage()?;
    for _ in 0..20 {
        kill_process_group(scene.child, Signal::CONT)?;
        scene.stands_still()?;
    }
    let (process, told) = (scene.process.id(), scene.process.stderr().len());
    kill_process(pid(i32::try_from(process)?)?, Signal::CONT)?;
    scene.stands_still()?;
    assert_eq!(scene.process.stderr().len(), told, "nothing has changed");
    // On a busy machine the outage may have been longer than the session.
    scene.outage_ends()?;
    eventually("it goes on or is killed", || {
        let said = scene.process.stderr();
        Ok(said.contains("was held all the time") || said.contains("killing the command"))
    })?;
    if scene.process.stderr().contains("killing the command") {
        assert_eq!(scene.process.end(LIMIT).await?.code(), Some(79), "{}", scene.process.tail());
        return Ok(());
    }
    scene.runs()?;
    scene.finishes().await
}

#[tokio::test]
async fn a_command_that_was_stopped_before_stays_stopped() -> Result<()> {
    let mut scene = Scene::new(PAUSE, COUNT).await?;
    scene.runs()?;
    kill_process_group(scene.child, Signal::STOP)?;
    scene.stands_still()?;
    scene.outage()?;
    let counted = scene.count()?;
    scene.outage_ends()?;
    scene.says("was held all the time")?;
    // It takes longer than a continuation would.
    scene.home.in_line("l", 1)?;
    assert!(is_still(scene.child)?, "{:?}", state(scene.child));
    assert_eq!(scene.count()?, counted);
    kill_process_group(scene.child, Signal::CONT)?;
    scene.runs()?;
    scene.finishes().await
}

/// The kernel continues a stopped group whose last parent dies, and sends it HUP before.
#[tokio::test]
async fn a_command_that_stands_still_dies_with_lockkeeper() -> Result<()> {
    let mut scene = Scene::new(PAUSE, COUNT).await?;
    scene.runs()?;
    scene.outage()?;
    let counted = scene.count()?;
    scene.process.kill();
    eventually("it is dead", || Ok(!is_alive(scene.child.as_raw_nonzero().get())))?;
    assert_eq!(scene.count()?, counted, "it ran on without the lock");
    scene.outage_ends()?;
    scene.home.runs("--quiet l", "true")?.is_fine();
    Ok(())
}

/// The same for those that the command has started: before anyone else has the lock.
#[tokio::test]
async fn a_group_that_stands_still_is_gone_before_the_next_one_holds() -> Result<()> {
    let script = "trap '' HUP; echo $$; sh -c 'echo $$ > second; while :; do :; done' & \
                  while [ ! -s second ]; do :; done; echo 1 > count; while :; do :; done";
    let mut scene = Scene::new(PAUSE, script).await?;
    let file = scene.home.folder().join("second");
    eventually("the second process", || Ok(file.exists() && fs::metadata(&file)?.len() > 1))?;
    let second: i32 = fs::read_to_string(&file)?.trim().parse()?;
    scene.outage()?;
    eventually("both stand still", || is_still(pid(second)?))?;
    scene.process.kill();
    scene.outage_ends()?;
    scene.home.runs("--quiet l", "true")?.is_fine();
    assert!(!is_alive(second));
    Ok(())
}

#[tokio::test]
async fn a_watchdog_that_is_killed_meanwhile_is_replaced() -> Result<()> {
    let mut scene = Scene::new(PAUSE, COUNT).await?;
    scene.runs()?;
    scene.outage()?;
    let first = watchdog(scene.process.id())?;
    kill_process(first, Signal::KILL)?;
    eventually("another one", || Ok(watchdog(scene.process.id()).is_ok_and(|pid| pid != first)))?;
    scene.stands_still()?;
    scene.outage_ends()?;
    scene.says("was held all the time")?;
    scene.runs()?;
    scene.finishes().await
}

/// The watchdog does what lockkeeper cannot.
#[tokio::test]
async fn a_command_stands_still_although_lockkeeper_is_stopped() -> Result<()> {
    let mut scene = Scene::new(PAUSE, COUNT).await?;
    scene.runs()?;
    scene.process.pause()?;
    scene.stands_still()?;
    kill_process_group(scene.child, Signal::CONT)?;
    scene.stands_still()?;
    // Others get the lock when the session has expired.
    scene.home.runs("--quiet l", "true")?.is_fine();
    assert!(is_still(scene.child)?, "{:?}", state(scene.child));
    let counted = scene.count()?;
    scene.process.resume()?;
    scene.is_lost(counted).await
}

/// Whom nobody stops: it has left the group. The page says so.
#[tokio::test]
async fn what_has_left_the_group_is_not_stopped() -> Result<()> {
    let script = "echo $$; setsid sh -c 'echo $$ > away; while :; do sleep 0.05; done' & \
                  echo 1 > count; while [ ! -e go ]; do sleep 0.05; done; kill $(cat away); exit 5";
    let mut scene = Scene::new(PAUSE, script).await?;
    let file = scene.home.folder().join("away");
    eventually("it has left", || Ok(file.exists() && fs::metadata(&file)?.len() > 1))?;
    let away = pid(fs::read_to_string(&file)?.trim().parse()?)?;
    scene.outage()?;
    assert_ne!(state(away)?, 'T');
    scene.outage_ends()?;
    scene.says("was held all the time")?;
    scene.finishes().await
}

#[test]
fn what_does_not_go_together_is_refused() -> Result<()> {
    let home = Home::new()?;
    home.runs("--on-outage pause --on-lost warn l", "true")?.complains(64, &["--on-lost warn"]);
    home.runs("--grace 1m l", "true")?.complains(64, &["--on-outage pause"]);
    Ok(())
}

/// A quarter, a half, four fifths and twice the session timeout, each with a command that waits.
#[tokio::test]
async fn outages_of_any_length_end_as_they_must() -> Result<()> {
    let ends = tokio::try_join!(outage(500), outage(1_000), outage(1_600), outage(4_000))?;
    let (quarter, half, most, _) = ends;
    assert!(quarter && half && most, "ended although the session lived");
    Ok(())
}

/// Whether a command outlasts an outage of so many milliseconds at a session timeout of two seconds.
async fn outage(ms: u64) -> Result<bool> {
    let mut scene = Scene::new(PAUSE, COUNT).await?;
    scene.runs()?;
    let waiting = scene.home.starts("waiting", "--quiet --session-timeout 20s l", "echo mine")?;
    scene.home.in_line("l", 2)?;
    kill_process(scene.engine, Signal::STOP)?;
    // The length of the outage, and not a wait for anything.
    tokio::time::sleep(Duration::from_millis(ms)).await;
    scene.outage_ends()?;

    let before = scene.count()?;
    eventually("it goes on or is killed", || {
        let is_over = scene.process.stderr().contains("killing the command");
        Ok(is_over || scene.count()? > before)
    })?;
    if !is_alive(scene.child.as_raw_nonzero().get())
        || scene.process.stderr().contains("killing the command")
    {
        assert_eq!(scene.process.end(LIMIT).await?.code(), Some(79), "{}", scene.process.tail());
        eventually("the next one has the lock", || Ok(waiting.stdout() == "mine\n"))?;
        return Ok(false);
    }
    assert_eq!(waiting.stdout(), "", "two hold");
    scene.finishes().await?;
    eventually("the next one has the lock", || Ok(waiting.stdout() == "mine\n"))?;
    Ok(true)
}
