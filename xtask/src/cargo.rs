//! The cargo that runs this program, and its view of the workspace.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};

/// Cargo with these arguments and without standard input.
pub(crate) fn command(arguments: &[&str]) -> Command {
    // The same cargo, so that the selected tool chain is used.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).stdin(Stdio::null());
    // Cargo sets these for this process. Build scripts that depend on them would run again, and all that uses their
    // crates would be built again, each time that another program starts cargo.
    for (name, _) in std::env::vars_os() {
        if let Some(text) = name.to_str()
            && (text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Runs cargo and returns whether it succeeded.
///
/// # Errors
///
/// If it cannot be started.
pub(crate) fn succeeds(cargo: &mut Command) -> Result<bool> {
    Ok(cargo.status().context("cannot start cargo")?.success())
}

/// This workspace, without its dependencies.
///
/// # Errors
///
/// If its manifests cannot be read.
pub(crate) fn workspace() -> Result<Metadata> {
    let metadata = MetadataCommand::new().no_deps().exec();
    metadata.context("cannot read this workspace with `cargo metadata`")
}
