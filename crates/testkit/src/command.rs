//! The `lockkeeper` command and the examples, as the suites run them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use crate::process;

/// Where the command is, built from the present source.
///
/// `cargo test` builds no program of another package for a test, so this asks cargo for it; that
/// is quick when it is up to date, and done once per test process.
///
/// # Errors
///
/// It does not build. The compiler's messages are in the error.
pub fn lockkeeper() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || build(&["--package", "lockkeeper-cli"], "lockkeeper");
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(|error| anyhow!(error))
}

/// Where an example of the library is, built from the present source each time.
///
/// # Errors
///
/// It does not build. The compiler's messages are in the error.
pub fn example(name: &str) -> Result<PathBuf> {
    // As part of the workspace, so that all that it uses is there since the suite was built.
    build(&["--workspace", "--example", name], &format!("examples/{name}"))
}

fn build(what: &[&str], program: &str) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet"]).args(what).arg("--target-dir").arg(target_folder()?);
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    process::run_tool(&mut build, &format!("{program} does not build"))?;

    let program = target_folder()?.join("debug").join(program);
    anyhow::ensure!(program.is_file(), "cargo built no {}", program.display());
    Ok(program)
}

/// A test binary is `<target>/<profile>/deps/<name>`.
fn target_folder() -> Result<PathBuf> {
    let binary = env::current_exe().context("this process does not know its own file")?;
    let target = binary.ancestors().nth(3).map(Path::to_owned);
    target.context("this process is no test binary of cargo's")
}
