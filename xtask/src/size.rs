//! The size of the engine, measured beside Apache ZooKeeper.

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;

use crate::cargo::command;

/// Prints the figures of `docs/engine.md`.
///
/// # Errors
///
/// The engine does not start, or does not take the nodes.
pub(crate) fn run(nodes: usize) -> Result<()> {
    let built = command(&["build", "--release", "--package", "lockkeeper-cli"]).status();
    ensure!(built.context("cannot start cargo")?.success(), "the command does not build");
    let metadata = MetadataCommand::new().no_deps().exec().context("cannot read the workspace")?;
    let program = metadata.target_directory.join("release/lockkeeper");
    // The client may be slow: it is the servers that are measured.
    let status = command(&["test", "--package", "lockkeeper-tests", "--test", "size", "--"])
        .args(["measure", "--exact", "--ignored", "--nocapture"])
        .env("LOCKKEEPER_SIZE_NODES", nodes.to_string())
        .env("LOCKKEEPER_SIZE_PROGRAM", program)
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the measurement failed: see above");
    Ok(())
}
