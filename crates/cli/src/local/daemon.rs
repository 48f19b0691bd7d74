//! The process of the machine-local engine.

use std::fs::{File, TryLockError};
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use lockkeeper_engine::{Durability, Engine};
use rustix::process::setsid;
use tokio::time::sleep;

use super::control::Control;
use super::home::{Home, Scope};
use super::system;
use crate::shared::exit::{Exit, Failure};
use crate::shared::program::close_inherited;
use crate::shared::runtime::block_on;
use crate::shared::server_signals::ServerSignals;
use crate::shared::{allocator, names};

/// The first argument that starts the engine process. It is internal, so help and completions do not contain it.
pub(super) const WORD: &str = "__local-engine";

/// The minimum session timeout is two of these.
const TICK: Duration = Duration::from_millis(500);

/// The maximum session timeout that a client can request.
const MAX_SESSION: Duration = Duration::from_secs(600);

/// When an engine tries to end again after a client was just connecting.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The options that the starting process passes.
#[derive(Debug, Parser)]
#[command(name = WORD)]
struct DaemonOptions {
    #[arg(long)]
    home: PathBuf,
    /// Be the machine's engine
    #[arg(long)]
    system: bool,
    #[arg(long)]
    durability: Durability,
    /// How long to run without sessions
    #[arg(long, default_value = "10m", value_parser = names::nonzero_duration)]
    idle: Duration,
}

/// The report to the starting process: one line, and then the pipe is closed.
#[derive(Debug)]
pub(super) enum Report {
    Ready,
    Failed(Failure),
}

/// Whether this process is to run the engine.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

/// Runs the engine until it is stopped or no longer needed.
pub(crate) fn run() -> Result<u8, Failure> {
    let options = DaemonOptions::try_parse_from(std::env::args_os().skip(1));
    let options = options.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    close_inherited();
    // A separate session has no terminal and gets no signals of a user's job. The call fails only for the leader of a
    // process group, which a process that was just started is not.
    let _ = setsid();
    block_on(serve(options))
}

async fn serve(options: DaemonOptions) -> Result<u8, Failure> {
    let scope = if options.system { Scope::System } else { Scope::User };
    let home = Home::at(options.home, scope);
    let mut signals = ServerSignals::register()?;
    let (engine, control) = match start(&home, options.durability).await {
        Ok(started) => started,
        Err(failure) => {
            Report::Failed(failure).send();
            return Ok(Exit::Ok.code());
        }
    };
    Report::Ready.send();

    tokio::select! {
        ended = engine.stopped() => ended?,
        name = signals.stop() => tracing::info!("{name}: stopping"),
        asker = control.serve(&engine) => {
            tracing::info!("asked to stop by `lockkeeper local stop`");
            // The kernel closes the connection when this process exits, which is what the other side waits for.
            std::mem::forget(asker);
        }
        lock = unneeded(&engine, &home, options.idle) => {
            tracing::info!("no sessions for {:?}", options.idle);
            // The kernel releases the lock when this process exits, so the next engine finds all files free.
            std::mem::forget(lock);
        }
    }

    control.remove();
    engine.stop().await?;
    Ok(Exit::Ok.code())
}

async fn start(home: &Home, durability: Durability) -> Result<(Engine, Control), Failure> {
    let engine = Engine::builder()
        .unix_socket(home.socket())
        .unix_socket_mode(home.socket_mode())
        .data_dir(home.data())
        .durability(durability)
        .tick(TICK)
        .max_session_timeout(MAX_SESSION)
        .at_rest(allocator::give_back)
        .start()
        .await?;

    // This process owns the data directory, so no other engine uses the other socket.
    let control = Control::listen(home, durability)?;

    // Checked after the sockets exist, because a process that enables the machine's engine looks for sockets. No client
    // uses them before the report.
    if let Err(failure) = check_in_charge(home) {
        control.remove();
        engine.stop().await?;
        return Err(failure);
    }
    Ok((engine, control))
}

/// Fails if this is a user's engine and the machine's engine is enabled, or the reverse: that may have changed since
/// the starting process checked it.
fn check_in_charge(home: &Home) -> Result<(), Failure> {
    let change = match (home.scope(), system::find()?) {
        (Scope::User, None) | (Scope::System, Some(_)) => return Ok(()),
        (Scope::User, Some(_)) => "enabled",
        (Scope::System, None) => "disabled",
    };
    let message = format!("the engine for all users of this machine has just been {change}");
    Err(Failure::new(Exit::NoServer, message).advise("run the command again"))
}

/// Waits until there have been no sessions for the time limit and no client is about to start one. The machine's engine
/// is always needed: not every user of it can start it.
async fn unneeded(engine: &Engine, home: &Home, limit: Duration) -> File {
    if home.scope() == Scope::System {
        return std::future::pending().await;
    }
    loop {
        if let Some(left) = engine.quiet_time_left() {
            sleep(left).await;
            continue;
        }
        let spent = engine.idle_since().map_or(Duration::ZERO, |since| since.elapsed());
        if spent < limit {
            sleep(limit - spent).await;
            continue;
        }

        // A client that has found our socket holds this lock until it has a session. Any other client looks for the
        // socket after we have ended.
        if let Ok(lock) = home.start_lock() {
            let free = lock.try_lock();
            let since: Option<Instant> = engine.idle_since();
            match free {
                Ok(()) if since.is_some_and(|since| since.elapsed() >= limit) => return lock,
                Err(TryLockError::Error(error)) => {
                    tracing::warn!("cannot lock start.lock: {error}")
                }
                _ => {}
            }
        }
        sleep(limit.min(LOOK_AGAIN)).await;
    }
}

impl Report {
    fn send(self) {
        let text = match self {
            Self::Ready => "ready\n".to_owned(),
            Self::Failed(failure) => format!("{} {failure}\n", failure.code()),
        };
        // The starting process may have been interrupted. The engine keeps running for the next command.
        let _ = stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush());
        // This closes the pipe, which the starting process waits for.
        let _ = rustix::stdio::dup2_stdout(stderr());
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        match text.trim_end() {
            "ready" => Some(Self::Ready),
            text => {
                let (code, message) = text.split_once(' ')?;
                Some(Self::Failed(Failure::with_code(code.parse().ok()?, message)))
            }
        }
    }
}
