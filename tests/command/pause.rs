//! A command that is paused in an outage, and is then continued or killed.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockkeeper_testkit::process::Process;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::killed::watchdog;
use crate::support::{Home, LIMIT, eventually, is_alive};
use crate::terminal::{terminal, with_lockkeeper};

/// Says its process id, its token and that it was asked to end, and counts as long as it runs.
pub(crate) const COUNT: &str = "trap 'echo TERM' TERM; trap '' HUP; echo $$; \
                     while [ ! -e go ]; do echo >> count; sleep 0.01; done; \
                     echo token $LOCKKEEPER_TOKEN; exit 5";

const PAUSE: &str = "--session-timeout 2s --on-outage pause l";

/// Where `lockkeeper` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// As a service does.
    Alone,
    /// The same, started by a process that ignores CONT.
    Deaf,
    /// In a terminal, by a shell with job control.
    Terminal,
}

/// Each of these tests in both places.
macro_rules! alone_and_in_a_terminal {
    ($($test:ident,)*) => {
        mod alone {
            $(#[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                super::$test(super::Place::Alone).await
            })*
        }

        mod in_a_terminal {
            $(#[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                super::$test(super::Place::Terminal).await
            })*
        }
    };
}

alone_and_in_a_terminal!(
    a_command_stands_still_in_an_outage_and_goes_on,
    a_command_that_stands_still_is_killed_when_the_grace_is_over,
    a_command_that_ignores_term_is_killed_where_it_stands,
    a_continuation_from_outside_is_undone,
    a_command_that_stands_still_dies_with_lockkeeper,
    a_group_that_stands_still_is_gone_before_the_next_one_holds,
    a_watchdog_that_is_killed_meanwhile_is_replaced,
    what_has_left_the_group_is_not_stopped,
);

/// What the shell in the terminal does after a job of it was stopped, or has ended.
const SHELL: &str = "code=$?; while [ -e stopping ] && [ ! -e fg ]; do sleep 0.02; done\n\
                     if [ -e fg ]; then fg > fg; code=$?; fi; exit $code";

/// A command that counts, and the engine that it depends on.
struct Scene {
    home: Home,
    process: Process,
    lockkeeper: Pid,
    child: Pid,
    engine: Pid,
}

impl Scene {
    async fn new(place: Place, options: &str, script: &str) -> Result<Self> {
        let home = Home::new()?;
        fs::write(home.folder().join("command.sh"), script)?;
        let run = format!("lockkeeper run {options} -- sh command.sh");
        let mut process = match place {
            Place::Alone => home.starts("paused", options, script)?,
            Place::Deaf => {
                let mut command = with_lockkeeper(&home, "sh")?;
                command.args(["-c", &format!("trap '' CONT; exec {run}")]);
                Process::spawn("paused", &command, home.folder())?
            }
            Place::Terminal => {
                let script = format!("{run}\n{SHELL}");
                Process::spawn("paused", &terminal(&home, &script)?, home.folder())?
            }
        };
        process.prints("\n", LIMIT).await?;
        let child = pid(process.stdout().lines().next().unwrap_or_default().trim().parse()?)?;
        let engine = pid(home.engine_pid()?)?;
        Ok(Self { home, process, lockkeeper: parent(child)?, child, engine })
    }

    /// The same, when the command has begun to count.
    async fn running(place: Place, options: &str, script: &str) -> Result<Self> {
        let scene = Self::new(place, options, script).await?;
        scene.runs()?;
        Ok(scene)
    }

    /// All that it and `lockkeeper` have said.
    fn said(&self) -> String {
        self.process.stdout() + &self.process.stderr()
    }

    /// The engine does not reply until it continues.
    fn outage(&self) -> Result<()> {
        kill_process(self.engine, Signal::STOP)?;
        self.says("the command is paused")?;
        self.stands_still()
    }

    fn outage_ends(&self) -> Result<()> {
        kill_process(self.engine, Signal::CONT)?;
        Ok(())
    }

    fn says(&self, what: &str) -> Result<()> {
        eventually(what, || Ok(self.said().contains(what)))
    }

    /// Stops the command, including its shell. A shell that waits for its child's `vfork` is not stopped with the
    /// child, and the stop is not noticed. In that case the stop is undone, and tried again.
    fn is_stopped_by(&self, stop: Signal) -> Result<()> {
        kill_process_group(self.child, stop)?;
        eventually("the shell itself is stopped", || {
            let now = state(self.child)?;
            if now == 'D' {
                kill_process_group(self.child, Signal::CONT)?;
                kill_process_group(self.child, stop)?;
            }
            Ok(now == 'T')
        })
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

    fn watchdog(&self) -> Result<Pid> {
        watchdog(self.lockkeeper.as_raw_nonzero().get().unsigned_abs())
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

fn parent(of: Pid) -> Result<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", of.as_raw_nonzero()))?;
    let (_, rest) = stat.rsplit_once(") ").context("no state")?;
    pid(rest.split(' ').nth(1).context("no parent")?.parse()?)
}

/// The state of a process, as `ps` shows it.
fn state(process: Pid) -> Result<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()))?;
    let (_, rest) = stat.rsplit_once(") ").context("no state")?;
    rest.chars().next().context("no state")
}

/// Whether a process of a stopped group cannot run: it is stopped, or waits in the kernel for a child that is.
/// A shell starts a program by `vfork`; if that is stopped before it has become the program, the shell is
/// stopped when it continues.
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

async fn a_command_stands_still_in_an_outage_and_goes_on(place: Place) -> Result<()> {
    let mut scene = Scene::running(place, PAUSE, COUNT).await?;
    let waiting = scene.home.starts("waiting", "--quiet l", "echo mine")?;
    scene.home.in_line("l", 2)?;
    for _ in 0..2 {
        let told = scene.said().len();
        kill_process(scene.engine, Signal::STOP)?;
        eventually("it is stopped", || Ok(scene.said()[told..].contains("the command is paused")))?;
        scene.stands_still()?;
        let counted = scene.count()?;
        scene.outage_ends()?;
        eventually("it goes on", || Ok(scene.said()[told..].contains("was held all the time")))?;
        eventually("it counts", || Ok(scene.count()? != counted))?;
        assert_eq!(waiting.stdout(), "", "granted while the first one has the lock");
    }
    scene.finishes().await?;
    eventually("the next one has the lock", || Ok(waiting.stdout() == "mine\n"))
}

/// TERM would need a continuation, and run what the command does at its end after the loss.
async fn a_command_that_stands_still_is_killed_when_the_grace_is_over(place: Place) -> Result<()> {
    let mut scene = Scene::running(place, &format!("--grace 3s {PAUSE}"), COUNT).await?;
    scene.outage()?;
    let counted = scene.count()?;
    kill_process(scene.lockkeeper, Signal::TERM)?;
    scene.says("the signal will be delivered when the command resumes")?;
    scene.says("no server was reachable in time")?;
    scene.is_lost(counted).await
}

async fn a_command_that_ignores_term_is_killed_where_it_stands(place: Place) -> Result<()> {
    let script = COUNT.replace("trap 'echo TERM' TERM", "trap '' TERM INT QUIT");
    let mut scene = Scene::running(place, &format!("--grace 3s {PAUSE}"), &script).await?;
    scene.outage()?;
    let counted = scene.count()?;
    kill_process_group(scene.child, Signal::TERM)?;
    scene.says("no server was reachable in time")?;
    scene.is_lost(counted).await
}

/// No process can refuse to be continued.
async fn a_continuation_from_outside_is_undone(place: Place) -> Result<()> {
    let mut scene = Scene::running(place, PAUSE, COUNT).await?;
    scene.outage()?;
    for _ in 0..20 {
        kill_process_group(scene.child, Signal::CONT)?;
        scene.stands_still()?;
    }
    let told = scene.said().len();
    kill_process(scene.lockkeeper, Signal::CONT)?;
    scene.stands_still()?;
    assert_eq!(scene.said().len(), told, "nothing has changed");
    // On a busy machine the outage may have been longer than the session.
    scene.outage_ends()?;
    eventually("it goes on or is killed", || {
        let said = scene.said();
        Ok(said.contains("was held all the time") || said.contains("killing the command"))
    })?;
    if scene.said().contains("killing the command") {
        assert_eq!(scene.process.end(LIMIT).await?.code(), Some(79), "{}", scene.process.tail());
        return Ok(());
    }
    scene.runs()?;
    scene.finishes().await
}

#[tokio::test]
async fn a_command_that_was_stopped_before_stays_stopped() -> Result<()> {
    let mut scene = Scene::running(Place::Alone, PAUSE, COUNT).await?;
    scene.is_stopped_by(Signal::STOP)?;
    scene.outage()?;
    let counted = scene.count()?;
    scene.outage_ends()?;
    scene.says("was held all the time")?;
    // It takes longer than a continuation would.
    scene.home.in_line("l", 1)?;
    assert!(is_still(scene.child)?, "{:?}: {}", state(scene.child), scene.process.tail());
    assert_eq!(scene.count()?, counted);
    kill_process_group(scene.child, Signal::CONT)?;
    scene.runs()?;
    scene.finishes().await
}

/// A watchdog that has stopped a command checks every 20 ms whether it is stopped. Symptom: it kept checking
/// when the lock was held again but another process had stopped the command.
///
/// Fails with that.
#[tokio::test]
async fn a_watchdog_sleeps_while_somebody_else_keeps_the_command_stopped() -> Result<()> {
    let mut scene = Scene::running(Place::Alone, PAUSE, COUNT).await?;
    kill_process_group(scene.child, Signal::STOP)?;
    scene.stands_still()?;
    scene.outage()?;
    let (watchdog, before) = (scene.watchdog()?, wakes(scene.watchdog()?)?);
    eventually("it stops the command again and again", || Ok(wakes(watchdog)? > before + 20))?;
    scene.outage_ends()?;
    scene.says("was held all the time")?;
    let (before, since) = (wakes(watchdog)?, Instant::now());
    // The time over which is counted.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let woken = wakes(watchdog)? - before;
    // It gets each renewal.
    let most = since.elapsed().as_millis() / 100;
    assert!(u128::from(woken) < most, "woken {woken} times in {:?}", since.elapsed());
    kill_process_group(scene.child, Signal::CONT)?;
    scene.runs()?;
    scene.finishes().await
}

/// How often a process has gone to sleep.
fn wakes(process: Pid) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.context("not counted")?.trim().parse()?)
}

/// `lockkeeper` cannot run for a while, and its watchdog stops the command. This must not count as a stop by another
/// process, which would have to continue it. A continuation that `lockkeeper` notices would hide that.
#[tokio::test]
async fn a_command_that_the_watchdog_has_stopped_goes_on_too() -> Result<()> {
    let mut scene = Scene::running(Place::Deaf, PAUSE, COUNT).await?;
    kill_process(scene.lockkeeper, Signal::STOP)?;
    // One that starts again gives every session a whole timeout.
    kill_process(scene.engine, Signal::KILL)?;
    scene.stands_still()?;
    kill_process(scene.lockkeeper, Signal::CONT)?;
    scene.says("was held all the time")?;
    scene.runs()?;
    scene.finishes().await
}

/// The shell continues it when there is an outage: it does not run before the lock is held again.
#[tokio::test]
async fn a_job_that_was_stopped_by_ctrl_z_is_continued_in_an_outage() -> Result<()> {
    let mut scene = Scene::running(Place::Terminal, PAUSE, COUNT).await?;
    fs::write(scene.home.folder().join("stopping"), "")?;
    // Ctrl-Z is this signal to the group that has the terminal.
    scene.is_stopped_by(Signal::TSTP)?;
    eventually("it stops too", || Ok(state(scene.lockkeeper)? == 'T'))?;
    kill_process(scene.engine, Signal::KILL)?;
    let counted = scene.count()?;
    // The length of the stop, and not a wait for anything: the deadline passes in it.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(scene.count()?, counted);
    fs::write(scene.home.folder().join("fg"), "")?;
    scene.says("the command is paused")?;
    scene.says("was held all the time")?;
    scene.runs()?;
    scene.finishes().await
}

/// The kernel continues a stopped group whose last parent dies, and sends it HUP before.
async fn a_command_that_stands_still_dies_with_lockkeeper(place: Place) -> Result<()> {
    let scene = Scene::running(place, PAUSE, COUNT).await?;
    scene.outage()?;
    let counted = scene.count()?;
    kill_process(scene.lockkeeper, Signal::KILL)?;
    eventually("it is dead", || Ok(!is_alive(scene.child.as_raw_nonzero().get())))?;
    assert_eq!(scene.count()?, counted, "it ran on without the lock");
    scene.outage_ends()?;
    scene.home.runs("--quiet l", "true")?.is_fine();
    Ok(())
}

/// The same for those that the command has started: before anyone else has the lock.
async fn a_group_that_stands_still_is_gone_before_the_next_one_holds(place: Place) -> Result<()> {
    let script = "trap '' HUP; echo $$; sh -c 'echo $$ > second; while :; do :; done' & \
                  while [ ! -s second ]; do :; done; echo 1 > count; while :; do :; done";
    let scene = Scene::new(place, PAUSE, script).await?;
    let file = scene.home.folder().join("second");
    eventually("the second process", || Ok(file.exists() && fs::metadata(&file)?.len() > 1))?;
    let second: i32 = fs::read_to_string(&file)?.trim().parse()?;
    scene.outage()?;
    eventually("both stand still", || is_still(pid(second)?))?;
    kill_process(scene.lockkeeper, Signal::KILL)?;
    scene.outage_ends()?;
    scene.home.runs("--quiet l", "true")?.is_fine();
    assert!(!is_alive(second));
    Ok(())
}

async fn a_watchdog_that_is_killed_meanwhile_is_replaced(place: Place) -> Result<()> {
    let mut scene = Scene::running(place, PAUSE, COUNT).await?;
    scene.outage()?;
    let first = scene.watchdog()?;
    kill_process(first, Signal::KILL)?;
    eventually("another one", || Ok(scene.watchdog().is_ok_and(|pid| pid != first)))?;
    scene.stands_still()?;
    scene.outage_ends()?;
    scene.says("was held all the time")?;
    scene.runs()?;
    scene.finishes().await
}

/// The watchdog does what lockkeeper cannot.
#[tokio::test]
async fn a_command_stands_still_although_lockkeeper_is_stopped() -> Result<()> {
    let mut scene = Scene::running(Place::Alone, PAUSE, COUNT).await?;
    scene.process.pause()?;
    scene.stands_still()?;
    kill_process_group(scene.child, Signal::CONT)?;
    scene.stands_still()?;
    // Others get the lock when the session has expired.
    scene.home.runs("--quiet l", "true")?.is_fine();
    assert!(is_still(scene.child)?, "{:?}: {}", state(scene.child), scene.process.tail());
    let counted = scene.count()?;
    scene.process.resume()?;
    scene.is_lost(counted).await
}

/// A process that has left the group is not stopped, as the page documents.
async fn what_has_left_the_group_is_not_stopped(place: Place) -> Result<()> {
    let script = "echo $$; setsid sh -c 'echo $$ > away; while :; do sleep 0.05; done' & \
                  echo 1 > count; while [ ! -e go ]; do sleep 0.05; done; kill $(cat away); exit 5";
    let mut scene = Scene::new(place, PAUSE, script).await?;
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
    home.runs("--on-outage pause --grace 0 l", "true")?.complains(64, &["--grace 0", "no time"]);
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
    let mut scene = Scene::running(Place::Alone, PAUSE, COUNT).await?;
    let waiting = scene.home.starts("waiting", "--quiet --session-timeout 20s l", "echo mine")?;
    scene.home.in_line("l", 2)?;
    kill_process(scene.engine, Signal::STOP)?;
    // The length of the outage, and not a wait for anything.
    tokio::time::sleep(Duration::from_millis(ms)).await;
    scene.outage_ends()?;

    let before = scene.count()?;
    eventually("it goes on or is killed", || {
        let is_over = scene.said().contains("killing the command");
        Ok(is_over || scene.count()? > before)
    })?;
    if !is_alive(scene.child.as_raw_nonzero().get()) || scene.said().contains("killing the command")
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
