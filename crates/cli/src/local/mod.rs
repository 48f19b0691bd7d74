//! The machine-local engine: the one that keeps locks when no servers are named.
//!
//! It is started by the first command that needs it, serves all commands of this user, and ends
//! when there have been no sessions for a while.

mod control;
pub(crate) mod daemon;
mod home;
pub(crate) mod start;
mod trust;

use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper_engine::Durability;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json, tell};
use crate::view;

use control::{Asked, Status};
use home::Home;

/// Look after the engine of this machine
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Say whether it runs, where, and how many sessions it has; exit code 1 if it does not run
    Status,
    /// Start it now, rather than with the first command that needs it
    Start {
        /// What a reply promises: sync (survives a power cut), os (survives kill -9) or memory
        #[arg(long, env = DURABILITY)]
        durability: Option<Durability>,
    },
    /// Stop it, and wait until it has ended; commands that hold or await a lock start it again
    Stop,
}

/// What the engine promises, for whoever starts it.
pub(crate) const DURABILITY: &str = "LOCKKEEPER_LOCAL_DURABILITY";

/// Does what a subcommand of `local` says.
pub(crate) fn command(global: &Global, options: Options) -> Result<u8, Failure> {
    let home = Home::find()?;
    match options.task {
        Task::Status => status(global, &home),
        Task::Start { durability } => start(&home, durability),
        Task::Stop => stop(&home),
    }
}

fn status(global: &Global, home: &Home) -> Result<u8, Failure> {
    let status = control::ask(home, Asked::Status)?.map(|answer| answer.status);
    match (&status, global.json) {
        (None, true) => print_json(&serde_json::json!({ "running": false }))?,
        (Some(status), true) => print_json(status)?,
        (None, false) => print(&format!(
            "no engine is running for {}; the next command starts one\n",
            home.directory().display()
        ))?,
        (Some(status), false) => print(&describe(home, status))?,
    }
    Ok(if status.is_some() { Exit::Ok } else { Exit::No }.code())
}

fn describe(home: &Home, status: &Status) -> String {
    let uptime = view::duration(Duration::from_millis(status.uptime_ms));
    format!(
        "running     yes, for {uptime} (pid {}, lockkeeper {})\n\
         sessions    {}\n\
         socket      {}\n\
         data        {}\n\
         durability  {}\n\
         log         {}\n",
        status.pid,
        status.version,
        status.sessions,
        status.socket.display(),
        status.data_dir.display(),
        status.durability,
        home.log().display(),
    )
}

fn start(home: &Home, durability: Option<Durability>) -> Result<u8, Failure> {
    let before = control::ask(home, Asked::Status)?;
    if let Some(before) = before {
        let status = before.status;
        print(&format!("already running, pid {}, durability {}\n", status.pid, status.durability))?;
        return Ok(Exit::Ok.code());
    }
    drop(start::ensure(home, durability)?);
    match control::ask(home, Asked::Status)? {
        Some(answer) => print(&format!("started, pid {}\n", answer.status.pid))?,
        None => tell("the engine has started and ended again; see its log"),
    }
    Ok(Exit::Ok.code())
}

fn stop(home: &Home) -> Result<u8, Failure> {
    match control::ask(home, Asked::Stop)? {
        None => print("no engine was running\n")?,
        Some(answer) => {
            let pid = answer.status.pid;
            answer.wait_for_end()?;
            print(&format!("stopped (pid {pid})\n"))?;
        }
    }
    Ok(Exit::Ok.code())
}

/// Where `serve` keeps its data if it is not told otherwise.
pub(crate) fn served_data() -> Result<std::path::PathBuf, Failure> {
    Ok(Home::find()?.directory().join("serve"))
}
