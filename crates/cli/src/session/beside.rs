//! A command that runs while this program is listed somewhere, as a member or as an instance of a service.
//!
//! It needs the entry to be found, and not to be right: so it is not ended when the entry is gone for a while. What
//! must not run without a right is for `lockkeeper run` and `elect`.

use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::Command;

use crate::shared::exit::{Exit, Failure, no_process, signal_code};
use crate::shared::global::Digest;
use crate::shared::signals::Signals;

/// Runs the command to its end, and gives its exit code; without one, waits for INT, TERM, HUP or QUIT, after which
/// the code is 0. `variables`: what the command gets in its environment.
pub(crate) async fn until_over(
    command: &[OsString],
    variables: &[(&str, String)],
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        while matches!(signals.next().await, Signal::USR1 | Signal::USR2) {}
        return Ok(Exit::Ok.code());
    };

    let mut started = Command::new(program);
    started.args(arguments).envs(variables.iter().map(|(name, value)| (*name, value)));
    // Whoever sees the command's environment is not to act in our name.
    started.env_remove(Digest::VARIABLE);
    let mut child = started.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::new(Exit::NotFound, "not found").about(&program.to_string_lossy())
        }
        std::io::ErrorKind::PermissionDenied => {
            Failure::new(Exit::CannotExecute, "it may not be executed")
                .about(&program.to_string_lossy())
        }
        _ => no_process(error),
    })?;

    loop {
        tokio::select! {
            biased;
            ended = child.wait() => {
                let status = ended.map_err(no_process)?;
                let own = status.code().and_then(|code| u8::try_from(code).ok());
                return Ok(own.unwrap_or_else(|| signal_code(status.signal().unwrap_or_default())));
            }
            signal = signals.next() => {
                let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
                // A terminal sends its own to all of the job.
                let is_of_terminal = matches!(signal, Signal::INT | Signal::QUIT) && has_terminal();
                if let Some(id) = id.filter(|_| !is_of_terminal) {
                    // One that has just ended is waited for above.
                    let _ = kill_process(id, signal);
                }
            }
        }
    }
}

/// Whether a terminal sends its signals to the job of this process.
fn has_terminal() -> bool {
    stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}
