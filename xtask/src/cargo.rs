//! The cargo that runs us.

use std::process::{Command, Stdio};

/// Cargo with these arguments and no standard input.
pub(crate) fn command(arguments: &[&str]) -> Command {
    // The cargo that runs us, so that a chosen tool chain stays chosen.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).stdin(Stdio::null());
    command
}
