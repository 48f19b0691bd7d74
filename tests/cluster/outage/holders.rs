//! Groups of holders that see an outage together.

use std::num::ParseIntError;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use lockkeeper_session::Config;
use lockkeeper_testkit::command;
use lockkeeper_testkit::process::Process;

use super::promise::promised;
use crate::programs::{Site, runs, sleeps};
use crate::servers::{LIMIT, Place};

/// How many holders share an outage: in so many phases of the heartbeat it begins.
pub(super) const HOLDERS: u32 = 8;

/// Who believes to hold, as it is called in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum HolderKind {
    /// A guard of the library.
    Guard,
    /// One that is in jeopardy at its deadline, and not lost.
    #[value(name = "guard, jeopardy")]
    Jeopardy,
    /// A command that `lockkeeper run` runs.
    Run,
    /// A holder that pauses during an outage.
    #[value(name = "run, pause")]
    Pause,
}

impl HolderKind {
    /// Whether it is one program for all locks.
    fn is_guard(self) -> bool {
        matches!(self, Self::Guard | Self::Jeopardy)
    }
}

/// A session timeout; `None`: what a program has that does not name one.
pub(super) type Timeout = Option<Duration>;

pub(super) const USUAL_TIMEOUTS: &str = "4,6,10,20,default";

/// Reads seconds, or `default`.
pub(super) fn parse_timeout(text: &str) -> Result<Timeout, ParseIntError> {
    match text {
        "default" => Ok(None),
        seconds => Ok(Some(Duration::from_secs(seconds.parse()?))),
    }
}

/// The default of these holders: the library and the command each have one.
pub(super) fn default_timeout(kind: HolderKind) -> Result<Duration> {
    match kind.is_guard() {
        true => Ok(Config::default().session_timeout),
        false => default_of_command(),
    }
}

/// Reads it where users do.
fn default_of_command() -> Result<Duration> {
    let output = Command::new(command::lockkeeper()?).args(["settings", "--help"]).output()?;
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
}

impl Group {
    pub(super) fn promised(&self, place: Place) -> Duration {
        promised(place, self.session, self.kind)
    }
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
        let mut processes = Vec::new();
        let timeout = group.timeout;
        if group.kind.is_guard() {
            let (count, spread) = (HOLDERS.to_string(), spread.as_millis().to_string());
            let mut rest = vec!["--count", &count, "--spread-ms", &spread];
            rest.extend((group.kind == HolderKind::Jeopardy).then_some("--way=jeopardy"));
            let timeout = timeout.map(|timeout| timeout.as_millis().to_string());
            rest.extend(timeout.iter().flat_map(|timeout| ["--session-ms", timeout]));
            rest.extend((place == Place::Local).then_some("--direct"));
            let name = lock.replace('/', "-");
            let mut process = site.ours(&name, "hold", &format!("/{lock}"), &rest)?;
            for number in 0..HOLDERS {
                process.prints(&format!(" HELD {number}\n"), LIMIT).await?;
            }
            processes.push(process);
        } else {
            for number in 0..HOLDERS {
                let (lock, pauses) = (format!("{lock}-{number}"), group.kind == HolderKind::Pause);
                let name = lock.replace('/', "-");
                processes.push(site.run(&name, &lock, timeout, pauses, &sleeps()?)?);
                tokio::time::sleep(spread / HOLDERS).await;
            }
            for process in &mut processes {
                process.prints(" HELD ", LIMIT).await?;
            }
        }
        Ok(Self { group, processes })
    }

    /// What each of them has said that has lost what it held.
    pub(super) fn lost(&mut self) -> Result<Vec<String>> {
        let mut lost = Vec::new();
        for process in &mut self.processes {
            if self.group.kind.is_guard() {
                ensure!(process.status()?.is_none(), "the holders have ended\n{}", process.tail());
                let output = process.stdout();
                let gone = output.lines().filter(|line| line.contains(" GONE "));
                lost.extend(gone.map(str::to_owned));
            } else if !runs(process)? {
                lost.push(process.stderr().lines().next().unwrap_or_default().to_owned());
            }
        }
        Ok(lost)
    }
}
