//! Groups of holders that see an outage together.

use std::fmt;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use lockkeeper::Client;
use lockkeeper_engine::Engine;
use lockkeeper_testkit::command;
use lockkeeper_testkit::process::Process;

use crate::programs::{Site, runs, said, sleeps};
use crate::servers::{LIMIT, Place};

const POLL: Duration = Duration::from_millis(10);

/// Who believes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HolderKind {
    /// A guard of the library.
    Guard,
    /// One that is in jeopardy at its deadline, and not lost.
    Jeopardy,
    /// A command that `lockkeeper run` runs.
    Run,
    /// One that stands still in an outage.
    Pause,
}

impl HolderKind {
    pub(super) const ALL: [Self; 4] = [Self::Guard, Self::Jeopardy, Self::Run, Self::Pause];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Jeopardy => "guard, jeopardy",
            Self::Run => "run",
            Self::Pause => "run, pause",
        }
    }

    /// Whether it is one program for all locks.
    fn is_guard(self) -> bool {
        matches!(self, Self::Guard | Self::Jeopardy)
    }
}

/// A session timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timeout {
    /// What a program has that does not name one.
    Default,
    Seconds(u64),
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::Seconds(seconds) => f.pad(&format!("{seconds} s")),
        }
    }
}

impl FromStr for Timeout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "default" => Ok(Self::Default),
            seconds => Ok(Self::Seconds(seconds.trim_end_matches(" s").parse()?)),
        }
    }
}

impl Timeout {
    pub(super) const USUAL: [Self; 5] =
        [Self::Seconds(4), Self::Seconds(6), Self::Seconds(10), Self::Seconds(20), Self::Default];

    /// `None`: the default, which is not named to a program.
    fn named(self) -> Option<Duration> {
        match self {
            Self::Default => None,
            Self::Seconds(seconds) => Some(Duration::from_secs(seconds)),
        }
    }

    /// Its length, for this kind of holder: the library and the command each have a default.
    pub(super) async fn of(self, kind: HolderKind) -> Result<Duration> {
        match self {
            Self::Seconds(seconds) => Ok(Duration::from_secs(seconds)),
            Self::Default if kind.is_guard() => default_of_library().await,
            Self::Default => default_of_command(),
        }
    }
}

/// Asks a session for it, with an engine that grants everything that is likely.
async fn default_of_library() -> Result<Duration> {
    let engine = Engine::builder().max_session_timeout(Duration::from_secs(60)).start().await?;
    let client = Client::builder().connect(&engine.connect_string()).await?;
    let timeout = client.session_timeout();
    client.close().await;
    Ok(timeout)
}

/// Reads it where users do.
fn default_of_command() -> Result<Duration> {
    let output = Command::new(command::lockkeeper()?).args(["run", "--help"]).output()?;
    let help = String::from_utf8(output.stdout)?;
    let (_, option) = help.split_once("--session-timeout").context("no --session-timeout")?;
    let (_, default) = option.split_once("[default: ").context("no default")?;
    let (seconds, _) = default.split_once("s]").context("the default is not in seconds")?;
    Ok(Duration::from_secs(seconds.parse().context("the default is not in whole seconds")?))
}

/// Holders that are alike, each with a lock and a session of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) kind: HolderKind,
    pub(super) timeout: Timeout,
    /// The length of the timeout.
    pub(super) session: Duration,
    pub(super) size: u32,
}

/// All of a [`Group`], at work.
pub(super) struct Crowd {
    pub(super) group: Group,
    processes: Vec<Process>,
}

impl Crowd {
    /// Starts them over the time of `spread`, and returns when all hold. Their locks begin with
    /// `lock`.
    pub(super) async fn gather(
        site: Site,
        place: Place,
        group: Group,
        lock: String,
        spread: Duration,
    ) -> Result<Self> {
        let mut crowd = Self { group, processes: Vec::new() };
        let timeout = group.timeout.named();
        if group.kind.is_guard() {
            let way = if group.kind == HolderKind::Jeopardy { "jeopardy" } else { "lock" };
            let (count, spread) = (group.size.to_string(), spread.as_millis().to_string());
            let mut rest = vec!["--way", way, "--count", &count, "--spread-ms", &spread];
            let timeout = timeout.map(|timeout| timeout.as_millis().to_string());
            rest.extend(timeout.iter().flat_map(|timeout| ["--session-ms", timeout]));
            rest.extend((place == Place::Local).then_some("--direct"));
            let name = lock.replace('/', "-");
            crowd.processes.push(site.ours(&name, "hold", &format!("/{lock}"), &rest)?);
        } else {
            for number in 0..group.size {
                let (lock, pauses) = (format!("{lock}-{number}"), group.kind == HolderKind::Pause);
                let name = lock.replace('/', "-");
                crowd.processes.push(site.run(&name, &lock, timeout, pauses, &sleeps()?)?);
                tokio::time::sleep(spread / group.size).await;
            }
        }
        crowd.all_hold().await?;
        Ok(crowd)
    }

    async fn all_hold(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.count("HELD") < self.group.size {
            for process in &mut self.processes {
                // What was held and is lost already is for `lost` to tell.
                let has_held = process.stdout().contains(" HELD ");
                if let Some(status) = process.status()?.filter(|_| !has_held) {
                    bail!("ended ({status}) before it held\n{}", process.tail());
                }
            }
            ensure!(start.elapsed() < LIMIT, "{:?}: not all hold after {LIMIT:?}", self.group);
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// How many have lost what they held.
    pub(super) fn lost(&mut self) -> Result<u32> {
        let (mut lost, is_guard) = (0, self.group.kind.is_guard());
        for process in &mut self.processes {
            let runs = if is_guard { process.status()?.is_none() } else { runs(process)? };
            ensure!(runs || !is_guard, "the holders have ended\n{}", process.tail());
            lost += u32::from(!runs);
        }
        Ok(if is_guard { self.count("GONE") } else { lost })
    }

    /// What the first of those who lost something has said, for whoever asks why.
    pub(super) fn complaint(&self) -> String {
        let is_guard = self.group.kind.is_guard();
        let said = |process: &Process| match is_guard {
            true => process.stdout(),
            false => process.stderr(),
        };
        let text: String = self.processes.iter().map(said).collect();
        let line = text.lines().find(|line| !is_guard || line.contains(" GONE "));
        line.unwrap_or_default().to_owned()
    }

    fn count(&self, word: &str) -> u32 {
        let count = |process: &Process| {
            let output = process.stdout();
            said(&output).iter().filter(|(_, words)| words.starts_with(word)).count()
        };
        u32::try_from(self.processes.iter().map(count).sum::<usize>()).unwrap_or(u32::MAX)
    }
}
