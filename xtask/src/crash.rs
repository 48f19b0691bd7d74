//! The long crash test: an engine killed in the middle of a write load, again and again.

use anyhow::{Result, ensure};

use crate::cargo::{command, succeeds};

/// Kills that many engines, and every byte of the storage's last commit is cut.
///
/// # Errors
///
/// A write that was acknowledged is not found again, or half of one is.
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
