//! `cargo xtask bench`: compares Lockkeeper with its peers in one run.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::camino::Utf8PathBuf;

use crate::cargo::{self, succeeds, workspace};
use crate::setup;

/// Builds the command and the harness with optimisations, and runs the harness with these options. The
/// harness writes `results.json` and a page to `target/bench`, and after a full run of all scenarios the page
/// to `docs` too.
///
/// # Errors
///
/// If the build or the run fails.
pub(crate) fn run(options: &[String]) -> Result<()> {
    setup::say_what_benches_miss();
    let Built { mut command, output, root } = build()?;
    command.arg("run").arg("--output").arg(&output).arg("--docs").arg(root.join("docs"));
    perform(command.args(options))
}

/// Builds the same, and measures the slowest cycles of the engine and of Redis, with the harness's own
/// options.
///
/// # Errors
///
/// If the build or the run fails.
pub(crate) fn tail(options: &[String]) -> Result<()> {
    let Built { mut command, output, .. } = build()?;
    command.arg("tail").arg("--data").arg(output.join("data"));
    perform(command.args(options))
}

fn perform(benchmarks: &mut Command) -> Result<()> {
    let status = benchmarks.status().context("cannot start the benchmarks")?;
    ensure!(status.success(), "the benchmarks failed: {status}");
    Ok(())
}

/// The harness, built.
struct Built {
    /// The program, without arguments.
    command: Command,
    /// The output folder.
    output: Utf8PathBuf,
    /// The root of the workspace.
    root: Utf8PathBuf,
}

fn build() -> Result<Built> {
    let metadata = workspace()?;
    let output = metadata.target_directory.join("bench");

    // Built separately: in one build, the command would get the harness's features of their common libraries.
    for package in ["lockkeeper-cli", "lockkeeper-benches"] {
        let mut build = cargo::command(&["build", "--release", "--package", package]);
        ensure!(succeeds(&mut build)?, "{package} does not build");
    }

    let program = metadata.target_directory.join("release/lockkeeper-benches");
    let mut command = Command::new(program);
    // Servers of the test kit keep their data in the temporary folder, which may be in memory. All of them
    // must use the disk that is measured.
    let temporary = output.join("tmp");
    std::fs::create_dir_all(&temporary).with_context(|| format!("cannot create {temporary}"))?;
    command.env("TMPDIR", temporary).current_dir(&metadata.workspace_root);
    Ok(Built { command, output, root: metadata.workspace_root })
}
