//! Runs a command while something is held: the common part of `run`, `elect` and `queue work`.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lockkeeper::{Clock, Contact};
use rustix::process::Signal;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::child::{Child, Environment};
use super::events::{Event, Events};
use super::lock::Held;
use super::loss::{self, LeaseTimes, Loss, OnLost, OnOutage};
use super::release::{HOPELESS_LIMIT, RELEASE_LIMIT, keep_engine};
use super::supervise::{EndRequest, OnRevoke, Rules, Supervised, Supervision};
use super::watchdog::Watchdog;
use crate::session::command_line::CommandLine;
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::names;
use crate::shared::signals::Signals;

/// The command, and what to do with it when its lock is lost.
#[derive(Debug, Args)]
pub(super) struct CommandOptions {
    #[command(flatten)]
    pub(super) command: CommandLine,

    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    on_lost: OnLost,

    /// What to do with the command when no server renews the lease. `pause` stops its process group
    /// before the deadline. The command resumes if the servers prove that the lock was held all the time,
    /// and is killed otherwise. For commands that may be paused at any point
    #[arg(long, value_enum, default_value_t = OnOutage::End)]
    on_outage: OnOutage,

    /// How long an outage may pause the command (--on-outage pause) before it is killed [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = names::duration,
          allow_hyphen_values = true)]
    grace: Option<Duration>,

    /// How long the command may take to end after TERM; the longer this is, the shorter the server
    /// outage that the command survives [default: 2s, or 2/15 of a shorter session timeout]
    #[arg(long, value_name = "DURATION", value_parser = names::duration,
          allow_hyphen_values = true)]
    kill_after: Option<Duration>,

    /// The maximum running time: then TERM and, after --kill-after, KILL; the exit code is 124
    #[arg(long, value_name = "DURATION", value_parser = names::nonzero_duration,
          allow_hyphen_values = true)]
    pub(super) max_run: Option<Duration>,

    /// Append events to a file, or - for standard error: one JSON object per line (docs/run-log.md)
    #[arg(long, value_name = "FILE")]
    pub(super) json_log: Option<PathBuf>,
}

impl CommandOptions {
    /// The holder's name in the queue. Does not include arguments, which may be secret.
    pub(super) fn label(&self) -> String {
        let command = self.command.words();
        let program = command.first().map(Path::new).and_then(Path::file_name);
        program.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Rejects options that could never work.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.command.check()?;
        self.grace().map(|_| ())
    }

    /// Rejects a program that does not exist, before anything is acquired for it.
    pub(super) fn check_is_there(&self) -> Result<(), Failure> {
        let command = self.command.words();
        let Some(program) = command.first().map(Path::new) else { return Ok(()) };
        let is_there = match is_path(program) {
            true => program.exists(),
            false => {
                let paths = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
            }
        };
        match is_there {
            true => Ok(()),
            false => {
                let name = program.to_string_lossy();
                Err(Failure::new(Exit::NotFound, "not found; check its name and PATH").about(&name))
            }
        }
    }

    fn grace(&self) -> Result<Option<Duration>, Failure> {
        loss::grace(self.on_outage, self.on_lost, self.grace)
    }

    /// The times that fit into the lease. Warns of a short one, unless `quiet` is set.
    pub(super) fn times(
        &self,
        connection: &Connection,
        quiet: bool,
    ) -> Result<LeaseTimes, Failure> {
        let timing = connection.client.timing();
        let times = LeaseTimes::fit(timing, self.on_lost, self.kill_after, self.grace()?)?;
        if !quiet {
            times.warn_of_short_outages(timing);
        }
        Ok(times)
    }
}

/// Whether the name contains a directory, so that a shell would not search `PATH`.
fn is_path(program: &Path) -> bool {
    program.as_os_str().as_bytes().contains(&b'/')
}

/// A command to run while something is held.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) connection: &'a Connection,
    pub(super) options: &'a CommandOptions,
    pub(super) on_revoke: OnRevoke,
    pub(super) times: LeaseTimes,
    pub(super) events: &'a Events,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct Ran {
    /// The exit code of the whole run.
    pub(super) code: u8,
    /// Why its lock was lost, if it was.
    pub(super) lost: Option<Exit>,
    /// Whether it exceeded the maximum running time.
    pub(super) overran: bool,
    pub(super) is_by_signal: bool,
    pub(super) end_request: EndRequest,
}

impl Ran {
    /// Whether the command was interrupted instead of ending by itself.
    pub(super) fn is_cut_off(&self) -> bool {
        self.lost.is_some() || self.overran
    }

    /// How long to wait for the release of the lock.
    pub(super) fn release_limit(&self, connection: &Connection) -> Duration {
        match self.is_cut_off() {
            // Without a connection, nothing can be released before the session expires.
            true if connection.client.contact() != Contact::Connected => Duration::ZERO,
            _ if self.lost.is_some() => HOPELESS_LIMIT,
            _ => RELEASE_LIMIT,
        }
    }
}

impl<'a> Job<'a> {
    /// Starts to watch the lease.
    pub(super) fn loss<'l>(&self, held: &Held, watchdog: &'l mut Watchdog) -> Loss<'l>
    where
        'a: 'l,
    {
        Loss::new(self.times, watchdog, held, self.events)
    }

    /// Runs the command until it ends. `more`: further environment variables. `input`: standard input; `None` inherits
    /// it from this process.
    pub(super) async fn run(
        &self,
        held: &Held,
        loss: &mut Loss<'_>,
        signals: &mut Signals,
        more: Vec<(&'static str, String)>,
        input: Option<File>,
    ) -> Result<Ran, Failure> {
        let environment = Environment { connection: self.connection, held, more, input };
        let mut child = loss.spawn(&self.options.command.words(), environment)?;
        let began = Clock.now();
        self.events.write(Event::Started { command_pid: child.group().as_raw_nonzero().get() });

        let (on_revoke, max_run) = (self.on_revoke, self.options.max_run);
        let rules = Rules { on_revoke, max_run, kill_after: self.times.kill_after() };
        let supervision = Supervision::new(&mut child, loss, held, self.events);
        let supervised = tokio::select! {
            supervised = supervision.supervise(rules, signals) => supervised,
            never = keep_engine(self.connection) => match never {},
        };
        // If this process fails here, no other process ends the command.
        let Supervised { ended, overran, mut end_request } =
            supervised.inspect_err(|_| child.processes().signal(&[Signal::KILL]))?;
        let of_terminal = child.finish(&ended);
        if let Some(signal) =
            of_terminal.filter(|_| !matches!(end_request, EndRequest::BySignal(_)))
        {
            end_request = EndRequest::BySignal(signal);
        }

        let lost = loss.conclude(&ended);
        let cut_off = lost.or(overran.then_some(Exit::Overran));
        let code = cut_off.map_or_else(|| ended.code(), Exit::code);
        self.events.write(Event::Ended { code, ran_ms: Clock.now().since(began).as_millis() });
        if cut_off.is_some() {
            end_leftovers(&child).await;
        }
        Ok(Ran { code, lost, overran, is_by_signal: ended.is_by_signal(), end_request })
    }
}

/// Ends the processes that an interrupted command left behind. They must not run once another program may have the
/// lock.
async fn end_leftovers(child: &Child) {
    let processes = child.processes().clone();
    let ending = spawn_blocking(move || processes.end_within(HOPELESS_LIMIT));
    // If a process waits for an unreachable file system, even its environment may be unreadable.
    let _ = timeout(2 * HOPELESS_LIMIT, ending).await;
}
