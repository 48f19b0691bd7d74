//! The machine-local engine, which keeps the locks when no servers are configured.
//!
//! A user's first command that needs an engine starts one. It serves all commands of this user, and ends after some
//! time without sessions. If an administrator has enabled an engine for the whole machine (`system`), all users share
//! it instead.

pub(crate) mod address;
mod control;
pub(crate) mod daemon;
mod disk_space;
mod enable;
pub(crate) mod home;
mod other_engines;
pub(crate) mod start;
mod system;

use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper_engine::Durability;
use serde::Serialize;
use serde_json::json;

use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{print, print_json, tell};
use crate::shared::{trust, view};

use control::{ControlRequest, Status};
use home::{Home, Scope};
use other_engines::OtherEngine;
use start::DURABILITY;
use system::{Users, WAY_OUT};

/// A subcommand of `local`.
#[derive(Debug, Subcommand)]
pub(crate) enum LocalTask {
    /// Show whether the engine runs, where, and how many sessions it has; exit code 1 if it does not run
    Status,
    /// Start the engine now instead of with the first command that needs it
    Start {
        /// What acknowledged writes survive: sync (a power failure), os (kill -9) or memory (nothing)
        #[arg(long, env = DURABILITY)]
        durability: Option<Durability>,
    },
    /// Stop the engine and wait until it has ended; commands that hold or await a lock start it again
    Stop,
    /// Enable one engine for all users of this machine, and start it
    #[command(after_long_help = ENABLE_NOTES)]
    Enable {
        #[command(flatten)]
        which: EngineOptions,
        /// Let the members of this group use the engine
        #[arg(long, value_name = "GROUP", conflicts_with = "everyone")]
        group: Option<String>,
        /// Let every user of this machine use the engine
        #[arg(long)]
        everyone: bool,
    },
    /// Stop the engine for all users; each user then has a separate engine again
    Disable {
        #[command(flatten)]
        which: EngineOptions,
    },
    /// Print a systemd unit that starts the engine for all users at boot
    Unit,
}

/// Selects the engine to enable. There is only one choice; the option makes the effect explicit.
#[derive(Debug, Args)]
pub(crate) struct EngineOptions {
    /// The engine for all users of this machine
    #[arg(long, required = true)]
    system: bool,
}

const ENABLE_NOTES: &str = "\
Only root can do this. Without --group and --everyone the engine is for root alone, or for the users \
who had access before. Any user of the engine can acquire every lock and ask every holder to release \
it: give access only to users whom you trust with the locks of root's jobs. All other users get an \
error instead of a separate engine.
The engine's directory is /var/lib/lockkeeper-system (or LOCKKEEPER_SYSTEM_HOME), owned by root. Its \
group and mode determine who may use the engine: 0700, 0750 or 0755. The engine does not end when it \
has no sessions. After a reboot, root's first command starts it. lockkeeper local unit prints a unit \
that starts it at boot.

Before that, stop the engines of users when no program holds their locks.";

/// Exists where systemd runs.
const SYSTEMD: &str = "/run/systemd/system";

/// Runs a subcommand of `local`.
pub(crate) fn command(global: &Global, task: LocalTask) -> Result<u8, Failure> {
    match task {
        LocalTask::Status => return status(global, &system::in_charge()?),
        LocalTask::Start { durability } => start(&system::in_charge()?, durability)?,
        LocalTask::Stop => stop(&system::in_charge()?)?,
        LocalTask::Enable { group, everyone, .. } => {
            let group = group.map(|name| Users::group(&name)).transpose()?;
            enable(group.or(everyone.then_some(Users::Everyone)))?;
        }
        LocalTask::Disable { .. } => disable()?,
        LocalTask::Unit => unit()?,
    }
    Ok(Exit::Ok.code())
}

fn status(global: &Global, home: &Home) -> Result<u8, Failure> {
    let status = control::ask(home, ControlRequest::Status)?.map(|answer| answer.status);
    match (&status, global.json) {
        (None, true) => {
            let others = others(home);
            print_json(&json!({ "running": false, "scope": home.scope(), "others": others }))?;
        }
        (Some(status), true) => {
            print_json(&ShownEngine { scope: home.scope(), status, others: others(home) })?;
        }
        (None, false) => print(&format!(
            "no engine is running for {} ({}); {}\n{}",
            home.directory().display(),
            users(home)?,
            match home.is_ours() {
                true => "the next command starts one",
                false => "root can start it: sudo lockkeeper local start",
            },
            lines(&others(home)),
        ))?,
        (Some(status), false) => print(&describe(home, status)?)?,
    }

    Ok(if status.is_some() { Exit::Ok } else { Exit::No }.code())
}

/// The output of `local status --json`. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownEngine<'a> {
    /// `user` or `system`: the users whom it serves.
    scope: Scope,
    #[serde(flatten)]
    status: &'a Status,
    others: Vec<OtherEngine>,
}

/// The engines whose locks do not exclude the locks of this one.
fn others(home: &Home) -> Vec<OtherEngine> {
    match home.scope() {
        Scope::User => other_engines::of(home.directory()),
        Scope::System => Vec::new(),
    }
}

fn lines(others: &[OtherEngine]) -> String {
    others.iter().map(|other| format!("other       {other}\n")).collect()
}

/// The users whom an engine serves.
fn users(home: &Home) -> Result<String, Failure> {
    Ok(match home.scope() {
        Scope::System => system::users(home)?.to_string(),
        Scope::User => format!("{} alone; {WAY_OUT}", trust::user(trust::me())),
    })
}

fn describe(home: &Home, status: &Status) -> Result<String, Failure> {
    let uptime = view::duration(Duration::from_millis(status.uptime_ms));
    let room =
        status.room.map(|room| format!("room        {}\n", room.describe())).unwrap_or_default();
    let others = lines(&others(home));

    Ok(format!(
        "running     yes, for {uptime} (pid {}, lockkeeper {})\n\
         users       {}\n\
         sessions    {}\n\
         socket      {}\n\
         data        {}\n\
         durability  {}\n\
         {room}{others}\
         log         {}\n",
        status.pid,
        status.version,
        users(home)?,
        status.sessions,
        status.socket.display(),
        status.data_dir.display(),
        status.durability,
        home.log().display(),
    ))
}

fn start(home: &Home, durability: Option<Durability>) -> Result<(), Failure> {
    let before = control::ask(home, ControlRequest::Status)?;
    if let Some(before) = before {
        let status = before.status;
        let (pid, durability) = (status.pid, status.durability);
        return print(&format!("already running, pid {pid}, durability {durability}\n"));
    }
    drop(start::ensure(home, durability)?);
    match control::ask(home, ControlRequest::Status)? {
        Some(answer) => print(&format!("started, pid {}\n", answer.status.pid)),
        None => {
            tell("the engine started and has already ended; see its log");
            Ok(())
        }
    }
}

fn stop(home: &Home) -> Result<(), Failure> {
    match control::ask(home, ControlRequest::Stop)? {
        None => print("no engine was running\n"),
        Some(answer) => {
            let pid = answer.status.pid;
            answer.wait_for_end()?;
            print(&format!("stopped (pid {pid})\n"))
        }
    }
}

fn enable(users: Option<Users>) -> Result<(), Failure> {
    let home = enable::enable(users)?;
    let (directory, users) = (home.directory().display(), system::users(&home)?);
    let mut text = format!("this machine's engine ({directory}) is running, for {users}\n");
    if users == Users::Root {
        text.push_str("to give access to others: lockkeeper local enable --system --group GROUP\n");
    }
    if Path::new(SYSTEMD).exists() {
        text.push_str(
            "to start it at boot: lockkeeper local unit > \
             /etc/systemd/system/lockkeeper.service && systemctl enable --now lockkeeper\n",
        );
    }
    print(&text)
}

fn disable() -> Result<(), Failure> {
    print(match enable::disable()? {
        true => "disabled; each user has a separate engine\n",
        false => "it was not enabled\n",
    })
}

fn unit() -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::System, format!("cannot find the path of lockkeeper: {error}"))
    })?;
    print(&system::unit(&program)?)
}

/// The default data directory of `serve`.
pub(crate) fn served_data() -> Result<std::path::PathBuf, Failure> {
    Ok(Home::own()?.directory().join("serve"))
}
