//! The size of the engine, measured beside Apache ZooKeeper.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Prints the figures of `docs/engine.md`.
///
/// # Errors
///
/// The engine does not start, or does not take the nodes.
pub(crate) fn run(nodes: usize) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(["test", "--release", "-p", "lockkeeper-tests", "--test", "size", "--"])
        .args(["measure", "--exact", "--ignored", "--nocapture"])
        .env("LOCKKEEPER_SIZE_NODES", nodes.to_string())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the measurement failed: see above");
    Ok(())
}
