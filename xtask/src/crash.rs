//! The long crash test: kills the engine in the middle of a write load, many times.

use anyhow::{Result, ensure};

use crate::cargo::{command, succeeds};

/// Kills this many engines, and truncates the last commit of the storage at every byte.
///
/// # Errors
///
/// If an acknowledged write is lost, or only half of one is found.
pub(crate) fn run(runs: usize) -> Result<()> {
    let suites: [&[&str]; 2] = [
        &["--test", "engine", "--", "crash::kill", "--nocapture", "--test-threads=2"],
        &["--lib", "--", "storage::tests"],
    ];

    for suite in suites {
        let mut test = command(&["test", "--release", "-p", "lockkeeper-engine"]);
        test.args(suite).env("LOCKKEEPER_CRASH_RUNS", runs.to_string());
        ensure!(succeeds(test.env("LOCKKEEPER_LONG", "1"))?, "a crash test failed: see above");
    }
    Ok(())
}
