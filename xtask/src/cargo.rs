//! The cargo that runs us, and the workspace as it sees it.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};

/// Cargo with these arguments and no standard input.
pub(crate) fn command(arguments: &[&str]) -> Command {
    // The cargo that runs us, so that a chosen tool chain stays chosen.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs cargo to its end; whether it succeeded.
///
/// # Errors
///
/// It does not start.
pub(crate) fn succeeds(cargo: &mut Command) -> Result<bool> {
    Ok(cargo.status().context("cannot start cargo")?.success())
}

/// This workspace, without its dependencies.
///
/// # Errors
///
/// Its manifests cannot be read.
pub(crate) fn workspace() -> Result<Metadata> {
    let metadata = MetadataCommand::new().no_deps().exec();
    metadata.context("cannot read this workspace with `cargo metadata`")
}
