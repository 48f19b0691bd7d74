//! Runs between fork and the command: binds the child's life to its parent's, and announces its process group to the
//! watchdog.
//!
//! A process can only set its own parent-death signal, and no code of this program can run between fork and exec
//! without unsafe code. So the child first runs this program, as `lockkeeper __exec PARENT PIPE CMD ARGS...`, and then
//! becomes the command.

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

/// The first argument that selects this mode.
pub(crate) const WORD: &str = "__exec";

/// The command to execute, and its parent.
#[derive(Debug)]
pub(crate) struct Request {
    parent: Option<Pid>,
    /// The pipe to the watchdog.
    pipe: RawFd,
    program: OsString,
    arguments: ArgsOs,
}

impl Request {
    /// The request, if this process was started in this mode.
    pub(crate) fn from_args() -> Option<Self> {
        let mut arguments = args_os();
        arguments.nth(1).filter(|word| word == WORD)?;
        let parent = arguments.next()?.to_str()?.parse().ok().and_then(Pid::from_raw);
        let pipe = arguments.next()?.to_str()?.parse().ok()?;
        Some(Self { parent, pipe, program: arguments.next()?, arguments })
    }

    /// Executes the command; returns only if that fails.
    pub(crate) fn exec(self) -> ExitCode {
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            tell(&format!("cannot set the parent-death signal of the command: {error}"));
            return ExitCode::from(Exit::System.code());
        }
        if let Err(error) = watchdog::announce(self.pipe) {
            tell(&format!("cannot announce the command to the watchdog: {error}"));
            return ExitCode::from(Exit::System.code());
        }

        // The signal is sent only if the parent dies from now on. If the parent has already died, this process has a
        // new parent.
        if getppid() != self.parent {
            return ExitCode::from(Exit::Lost.code());
        }
        let error = Command::new(&self.program).args(self.arguments).exec();
        let program = self.program.to_string_lossy();
        let (exit, why) = match error.kind() {
            ErrorKind::NotFound => (
                Exit::NotFound,
                "not found; check its name, PATH, and its interpreter (the #! line)",
            ),
            ErrorKind::PermissionDenied => {
                (Exit::CannotExecute, "permission to execute it is denied")
            }
            _ => (Exit::CannotExecute, "it cannot be executed"),
        };
        tell(&format!("{program}: {why} ({})", error.kind()));
        ExitCode::from(exit.code())
    }
}
