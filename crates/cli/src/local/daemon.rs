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

/// The word that asks for this, as the first argument. It is no command for users, whose help and completions
/// do not have it.
pub(super) const WORD: &str = "__local-engine";

/// Sessions may be as short as two of these.
const TICK: Duration = Duration::from_millis(500);

/// A holder may be silent for this long, if it asks for it.
const LONGEST_SESSION: Duration = Duration::from_secs(600);

/// How soon an engine that could not end because somebody was just connecting looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What the starter passes on.
#[derive(Debug, Parser)]
#[command(name = WORD)]
struct DaemonOptions {
    #[arg(long)]
    home: PathBuf,
    /// It is the machine's
    #[arg(long)]
    system: bool,
    #[arg(long)]
    durability: Durability,
    /// How long it stays without sessions
    #[arg(long, default_value = "10m", value_parser = names::some_time)]
    idle: Duration,
}

/// What the starter is told over the pipe: a line, and the pipe is closed.
#[derive(Debug)]
pub(super) enum Report {
    Ready,
    Failed(Failure),
}

/// Whether this process is to be the engine.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

/// Runs the engine until it is stopped, or not needed any more.
pub(crate) fn run() -> Result<u8, Failure> {
    let options = DaemonOptions::try_parse_from(std::env::args_os().skip(1));
    let options = options.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    close_inherited();
    // A session of its own: no terminal, and no signals that are meant for somebody's job. That
    // fails only for the leader of a group, which a process that was just started is not.
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
            // Closed by the kernel with this process, which is what the asker waits for.
            std::mem::forget(asker);
        }
        lock = unneeded(&engine, &home, options.idle) => {
            tracing::info!("no sessions for {:?}", options.idle);
            // Unlocked by the kernel with this process, so that the next one finds all free.
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
        .max_session_timeout(LONGEST_SESSION)
        .at_rest(allocator::give_back)
        .start()
        .await?;

    // The data directory is ours by now, so nobody else answers at the other socket.
    let control = Control::listen(home, durability)?;

    // Not before: who enables the machine's engine looks for our sockets. Until we have reported,
    // nobody uses them.
    if let Err(failure) = check_in_charge(home) {
        control.remove();
        engine.stop().await?;
        return Err(failure);
    }
    Ok((engine, control))
}

/// Refuses to be a user's own engine beside that of the machine, or that of the machine beside those
/// of users: which one it is to be may have changed since our starter looked.
fn check_in_charge(home: &Home) -> Result<(), Failure> {
    let change = match (home.scope(), system::find()?) {
        (Scope::User, None) | (Scope::System, Some(_)) => return Ok(()),
        (Scope::User, Some(_)) => "enabled",
        (Scope::System, None) => "disabled",
    };
    let message = format!("the engine for all users of this machine has just been {change}");
    Err(Failure::new(Exit::NoServer, message).advise("run the command again"))
}

/// Waits until there have been no sessions for so long, and nobody is about to start one. The
/// machine's engine is always needed: not everyone who uses it may start it.
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

        // Who holds this has found our socket, and may not have a session yet. Who does not will
        // look for the socket when we are gone.
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
        // The starter may have been interrupted. The engine stays for the next one.
        let _ = stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush());
        // This closes the pipe, which the starter waits for.
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
