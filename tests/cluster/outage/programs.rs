//! The programs that hold locks, and where they run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper_testkit::network::Host;
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::{clock, command};

use crate::outage::forms::Place;
use crate::outage::guard::say;
use crate::outage::holders::{Group, Kind};
use crate::outage::timeout::Timeout;

/// Where holders are, and what they connect to.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) place: Place,
    pub(crate) connect: String,
    /// If that is not the machine itself.
    pub(crate) host: Option<Host>,
    /// Where the programs write.
    pub(crate) folder: PathBuf,
}

impl Site {
    /// A program that takes the locks `LOCK-0`, ... of a group through the library. `name` is that of
    /// its output.
    pub(crate) fn guards(
        &self,
        group: Group,
        lock: &str,
        name: &str,
        spread: Duration,
    ) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("guard").arg(&self.connect).arg(format!("/{lock}")).arg(group.size.to_string());
        match group.timeout {
            Timeout::Default => command.arg("default"),
            Timeout::Seconds(seconds) => command.arg((seconds * 1_000).to_string()),
        };
        command.arg(match self.place {
            Place::Local => "direct",
            Place::Engine | Place::Ensemble => "quorum",
        });
        command.arg(if group.kind.rides_out() { "jeopardy" } else { "end" });
        command.arg(spread.as_millis().to_string());
        self.start(name, &command)
    }

    /// `lockkeeper run` with this command. `name` is that of its output.
    pub(crate) fn run(
        &self,
        kind: Kind,
        timeout: Timeout,
        lock: &str,
        name: &str,
        work: &Command,
    ) -> Result<Process> {
        let mut command = plain(&command::lockkeeper()?);
        command.arg("--connect").arg(&self.connect);
        if let Timeout::Seconds(seconds) = timeout {
            command.arg("--session-timeout").arg(format!("{seconds}s"));
        }
        command.args(["run", "--quiet"]);
        if kind.rides_out() {
            command.args(["--on-outage", "pause"]);
        }
        command.args([lock, "--"]).arg(work.get_program()).args(work.get_args());
        self.start(name, &command)
    }

    /// Any other program.
    pub(crate) fn start(&self, name: &str, command: &Command) -> Result<Process> {
        let command = match &self.host {
            Some(host) => &host.command(command),
            None => command,
        };
        Process::spawn(name, command, &self.folder)
    }
}

/// `lockkeeper` without what the environment of this suite says to it.
pub(crate) fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for variable in
        ["LOCKKEEPER_CONNECT", "LOCKKEEPER_LOG", "LOCKKEEPER_DIGEST", "LOCKKEEPER_SUPER_DIGEST"]
    {
        command.env_remove(variable);
    }
    command
}

/// The command under `lockkeeper run`: says when it began, and sleeps until it is ended.
pub(crate) fn work() -> Result<()> {
    say(clock::now(), &format!("HELD {}", std::process::id()));
    loop {
        std::thread::park();
    }
}

/// The command that sleeps.
pub(crate) fn sleeps() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("work");
    Ok(command)
}

/// Whether the command under a `lockkeeper run` is there still, which has held its lock before.
pub(crate) fn runs(process: &mut Process) -> Result<bool> {
    if process.status()?.is_some() {
        return Ok(false);
    }
    let output = process.stdout();
    let line = output.lines().next().context("a command that has not begun")?;
    let id = line.rsplit(' ').next().unwrap_or_default();
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    Ok(state.is_some_and(|state| !state.starts_with(['Z', 'X'])))
}
