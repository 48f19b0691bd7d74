//! Between fork and command: binds the child's life to its parent's, and makes it known to the
//! watchdog.
//!
//! A process can only set its own parent-death signal, and no code of ours runs between fork and
//! exec (that would be unsafe). So the child is this program again, as
//! `lockkeeper __exec PARENT PIPE CMD ARGS...`, which then becomes the command.

use std::env::{ArgsOs, args_os};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::watchdog;
use crate::shared::exit::Exit;
use crate::shared::output::tell;

/// The word that asks for this.
pub(crate) const WORD: &str = "__exec";

/// What is to be executed, and under whom.
#[derive(Debug)]
pub(crate) struct Request {
    parent: Option<Pid>,
    /// Leads to the watchdog.
    pipe: RawFd,
    program: OsString,
    arguments: ArgsOs,
}

impl Request {
    /// Whether this process was started for this.
    pub(crate) fn from_args() -> Option<Self> {
        let mut arguments = args_os();
        arguments.nth(1).filter(|word| word == WORD)?;
        let parent = arguments.next()?.to_str()?.parse().ok().and_then(Pid::from_raw);
        let pipe = arguments.next()?.to_str()?.parse().ok()?;
        Some(Self { parent, pipe, program: arguments.next()?, arguments })
    }

    /// Becomes the command; returns only if that fails.
    pub(crate) fn exec(self) -> ExitCode {
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            tell(&format!("the command could not be bound to lockkeeper's life: {error}"));
            return ExitCode::from(Exit::System.code());
        }
        if let Err(error) = watchdog::announce(self.pipe) {
            tell(&format!("the command could not be made known to the watchdog: {error}"));
            return ExitCode::from(Exit::System.code());
        }

        // The signal only comes for a parent that dies from now on. One that died before has
        // been replaced by another.
        if getppid() != self.parent {
            return ExitCode::from(Exit::Lost.code());
        }
        let error = Command::new(&self.program).args(self.arguments).exec();
        let program = self.program.to_string_lossy();
        let (exit, why) = match error.kind() {
            ErrorKind::NotFound => {
                (Exit::NotFound, "not found; check its name, PATH, and what its first line names")
            }
            ErrorKind::PermissionDenied => (Exit::CannotExecute, "it may not be executed"),
            _ => (Exit::CannotExecute, "it cannot be executed"),
        };
        tell(&format!("{program}: {why} ({})", error.kind()));
        ExitCode::from(exit.code())
    }
}
