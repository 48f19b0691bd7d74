//! The command that follows the options.

use std::ffi::OsString;

use clap::Args;

use crate::shared::exit::{Exit, Failure};

/// The shell of `-c`. It is not the user's shell, so that a line means the same in a crontab, over ssh and for others.
const SHELL: &str = "/bin/sh";

/// A command with arguments, or a command line for the shell.
#[derive(Clone, Debug, Args)]
pub(crate) struct CommandLine {
    /// A command line for /bin/sh, instead of -- and a command
    #[arg(short = 'c', long = "command", value_name = "CMDLINE", conflicts_with = "command")]
    line: Option<OsString>,

    // `Cli::definition` declares which subcommands require it.
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl CommandLine {
    /// The command and its arguments; empty without a command.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.line {
            Some(line) => vec![SHELL.into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }

    /// Whether it is a command line for the shell.
    pub(crate) fn is_line(&self) -> bool {
        self.line.is_some()
    }

    /// Rejects an empty command.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.line.as_ref().or(self.command.first()) {
            Some(program) if program.is_empty() => {
                let message = "the command is empty; perhaps a variable is not set";
                Err(Failure::new(Exit::Usage, message))
            }
            _ => Ok(()),
        }
    }
}
