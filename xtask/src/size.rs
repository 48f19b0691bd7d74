//! The size of the engine, measured beside Apache ZooKeeper.

use anyhow::{Result, ensure};

use crate::cargo::{command, succeeds, workspace};

/// Prints the figures of `docs/engine.md`.
///
/// # Errors
///
/// The engine does not start, or does not take the nodes.
pub(crate) fn run(nodes: usize) -> Result<()> {
    let mut build = command(&["build", "--release", "--package", "lockkeeper-cli"]);
    ensure!(succeeds(&mut build)?, "the command does not build");
    let program = workspace()?.target_directory.join("release/lockkeeper");
    // The client may be slow: it is the servers that are measured.
    let mut test = command(&["test", "--package", "lockkeeper-tests", "--test", "size", "--"]);
    test.args(["measure", "--exact", "--ignored", "--nocapture"]);
    test.env("LOCKKEEPER_SIZE_NODES", nodes.to_string());
    let measured = succeeds(test.env("LOCKKEEPER_SIZE_PROGRAM", program))?;
    ensure!(measured, "the measurement failed: see above");
    Ok(())
}
