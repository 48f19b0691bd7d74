//! A command that runs while this program is registered as a member or as an instance of a service.
//!
//! The registration makes the command visible to others; it does not protect anything. So the command keeps running if
//! the registration is lost for a while. `lockkeeper run` and `elect` are for commands that need protection.

use std::ffi::OsString;
use std::future::pending;
use std::io::{IsTerminal, stdin};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper::{PresenceError, PresenceState, ZnodePath};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure, no_process, signal_code};
use crate::shared::global::{Digest, Global};
use crate::shared::output::{report, tell};
use crate::shared::signals::Signals;

/// How long to wait for the deletion of the entry. After that, it ends with its session.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// How long a terminating signal is held back until the entry is marked as draining.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// A command, with its environment and input.
#[derive(Debug)]
pub(crate) struct UserCommand<'a> {
    pub(crate) command: &'a [OsString],
    /// Environment variables; one without a value is removed.
    pub(crate) variables: Vec<(&'static str, Option<OsString>)>,
    /// Standard input; `None` inherits it from this process.
    pub(crate) input: Option<Bytes>,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct CommandEnd {
    pub(crate) code: u8,
    /// The terminating signal that this process received while the command ran.
    pub(crate) signal: Option<Signal>,
}

/// Whether a signal requests termination.
pub(crate) fn is_to_end(signal: Signal) -> bool {
    !matches!(signal, Signal::USR1 | Signal::USR2)
}

impl UserCommand<'_> {
    /// Runs the command until it ends, and forwards signals to it. `before_end` runs before a terminating signal is
    /// forwarded.
    pub(crate) async fn run(
        &self,
        signals: &mut Signals,
        before_end: impl AsyncFn(),
    ) -> Result<CommandEnd, Failure> {
        let mut child = self.start()?;
        if let (Some(input), Some(mut pipe)) = (&self.input, child.stdin.take()) {
            let input = input.clone();
            // A command that does not read all of its input is not an error.
            tokio::spawn(async move {
                let _ = pipe.write_all(&input).await;
            });
        }

        let mut ended_by = None;
        loop {
            tokio::select! {
                biased;
                ended = child.wait() => {
                    let status = ended.map_err(no_process)?;
                    let own = status.code().and_then(|code| u8::try_from(code).ok());
                    let of_signal = || signal_code(status.signal().unwrap_or_default());
                    return Ok(CommandEnd { code: own.unwrap_or_else(of_signal), signal: ended_by });
                }
                signal = signals.next() => {
                    if is_to_end(signal) {
                        ended_by = Some(signal);
                        before_end().await;
                    }
                    pass_on(&child, signal);
                }
            }
        }
    }

    fn start(&self) -> Result<Child, Failure> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::new(Exit::Bug, "the command is missing"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // The command's environment must not contain our credentials.
        command.env_remove(Digest::VARIABLE);
        if self.input.is_some() {
            command.stdin(Stdio::piped());
        }
        command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::new(Exit::NotFound, "not found").about(&program.to_string_lossy())
            }
            std::io::ErrorKind::PermissionDenied => {
                Failure::new(Exit::CannotExecute, "permission to execute it is denied")
                    .about(&program.to_string_lossy())
            }
            _ => no_process(error),
        })
    }
}

fn pass_on(child: &Child, signal: Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // A terminal sends these signals to the whole job, including the command.
    let is_of_terminal = matches!(signal, Signal::INT | Signal::QUIT) && has_terminal();
    if let Some(id) = id.filter(|_| !is_of_terminal) {
        // A process that has just ended has not been reaped yet, so its id is still valid.
        let _ = kill_process(id, signal);
    }
}

/// Whether a terminal sends its signals to the job of this process.
fn has_terminal() -> bool {
    stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Environment variables by which the command finds the servers.
pub(crate) fn way_to_servers(
    connection: &Connection,
) -> impl Iterator<Item = (&'static str, Option<OsString>)> {
    let servers = ("LOCKKEEPER_CONNECT", OsString::from(&connection.servers));
    let all = connection.access.variables().chain([servers]);
    all.map(|(name, value)| (name, Some(value)))
}

/// The entry of this program in a group or a service.
pub(crate) trait OwnEntry {
    /// The path of its node.
    fn node(&self) -> ZnodePath;

    /// A watch on its state.
    fn changes(&self) -> watch::Receiver<PresenceState>;

    /// Environment variables for the command.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// Reports that the entry is visible.
    fn announce(&self, global: &Global) -> Result<(), Failure>;

    /// Marks the entry as draining.
    async fn drain(&self, _limit: Duration) {}

    /// Removes the entry.
    async fn leave(self) -> Result<(), lockkeeper::Error>;
}

/// Registers an entry while the command runs or, without a command, until INT, TERM, HUP or QUIT. Returns the exit
/// code: the command's, or 0.
pub(crate) async fn listed<E: OwnEntry>(
    global: &Global,
    command: &[OsString],
    enter: impl AsyncFnOnce(&Connection) -> Result<E, Failure>,
) -> Result<u8, Failure> {
    let connection = Connection::open_within(global, &mut None).await?;
    connection.introduce_engine(global);
    connection.tell_outages(global);
    let result = with_session(global, &connection, command, enter).await;
    // This also ends an entry that is still there.
    connection.close().await;
    result
}

async fn with_session<E: OwnEntry>(
    global: &Global,
    connection: &Connection,
    command: &[OsString],
    enter: impl AsyncFnOnce(&Connection) -> Result<E, Failure>,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let entered = async {
        let entry = enter(connection).await?;
        let mut changes = entry.changes();
        until_listed(global, &entry.node(), &mut changes).await?;
        Ok::<_, Failure>((entry, changes))
    };
    let (entry, mut changes) = tokio::select! {
        // If the entry exists at a signal, it is removed in the regular way.
        biased;
        entered = entered => entered?,
        signal = signals.next() => return Ok(signal_code(signal.as_raw())),
        failure = connection.keep_engine() => return Err(failure),
    };

    let node = entry.node();
    let code = tokio::select! {
        code = over(global, connection, command, &entry, &mut signals) => code?,
        failure = async {
            let failure = tokio::select! {
                failure = connection.keep_engine() => failure,
                failure = unlisted(&node, &mut changes) => failure,
            };
            if command.is_empty() {
                return failure;
            }
            // The command does not depend on the entry.
            report(&failure);
            pending().await
        } => return Err(failure),
    };

    let why = match timeout(LEAVE_LIMIT, entry.leave()).await {
        Ok(Ok(())) => return Ok(code),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no server confirmed its deletion within {LEAVE_LIMIT:?}"),
    };
    let rest = connection.client.session_timeout();
    tell(&format!("{node} may exist until its session expires, within {rest:?}: {why}"));
    Ok(code)
}

/// Reports the entry and then waits for a signal, or runs the command.
async fn over<E: OwnEntry>(
    global: &Global,
    connection: &Connection,
    command: &[OsString],
    entry: &E,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let drain = async || entry.drain(DRAIN_LIMIT).await;
    if command.is_empty() {
        entry.announce(global)?;
        while !is_to_end(signals.next().await) {}
        drain().await;
        return Ok(Exit::Ok.code());
    }
    let own = entry.variables().into_iter().map(|(name, value)| (name, Some(value.into())));
    let variables = way_to_servers(connection).chain(own).collect();
    let ended = UserCommand { command, variables, input: None }.run(signals, drain).await?;
    Ok(ended.code)
}

/// Returns when the node exists. Prints a notice if it belongs to another program.
async fn until_listed(
    global: &Global,
    node: &ZnodePath,
    changes: &mut watch::Receiver<PresenceState>,
) -> Result<(), Failure> {
    loop {
        let state = changes.borrow_and_update().clone();
        match state {
            PresenceState::Present { .. } => return Ok(()),
            PresenceState::Stuck(error) | PresenceState::Ended(error) => {
                return Err(Failure::of_recipe(&error));
            }
            PresenceState::Taken { by } if !global.quiet => tell_taken(node, by),
            _ => {}
        }
        // The channel closes after the final state, which contains the reason.
        if changes.changed().await.is_err() {
            let error = PresenceError::Stopped { path: node.clone() };
            return Err(Failure::of_recipe(&error));
        }
    }
}

/// Prints a notice whenever another program owns the node. Returns only if the node can never be created again.
async fn unlisted(node: &ZnodePath, changes: &mut watch::Receiver<PresenceState>) -> Failure {
    while changes.changed().await.is_ok() {
        let state = changes.borrow_and_update().clone();
        match state {
            PresenceState::Ended(error) => return Failure::of_recipe(&error),
            PresenceState::Stuck(error) => tell(&error.to_string()),
            PresenceState::Taken { by } => tell_taken(node, by),
            _ => {}
        }
    }
    pending().await
}

fn tell_taken(node: &ZnodePath, by: lockkeeper::SessionId) {
    let taken = PresenceError::Taken { path: node.to_string(), by };
    tell(&format!("{taken}; waiting until it is deleted"));
}
