//! The `lockkeeper` command and the examples, as the suites run them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use crate::process;

/// The path of the command, built from the present source.
///
/// `cargo test` builds no program of another package for a test, so this asks cargo for it; that
/// is quick when it is up to date, and done once per test process.
///
/// # Errors
///
/// The build fails. The error contains the compiler's messages.
pub fn lockkeeper() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || build(&["--package", "lockkeeper-cli"], "lockkeeper");
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(|error| anyhow!(error))
}

/// The path of an example of the library, built from the present source each time.
///
/// # Errors
///
/// The build fails. The error contains the compiler's messages.
pub fn example(name: &str) -> Result<PathBuf> {
    // Built as part of the workspace, so that its dependencies are available since the build of the suite.
    build(&["--workspace", "--example", name], &format!("examples/{name}"))
}

fn build(what: &[&str], program: &str) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet"]).args(what).arg("--target-dir").arg(target_folder()?);
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    // Cargo sets these for this process. Build scripts that depend on them would run again, and all that uses their
    // crates would be built again, each time that another program starts cargo.
    for (name, _) in env::vars_os() {
        if let Some(text) = name.to_str()
            && (text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_"))
        {
            build.env_remove(name);
        }
    }
    process::run_tool(&mut build, &format!("{program} does not build"))?;

    let program = target_folder()?.join("debug").join(program);
    anyhow::ensure!(program.is_file(), "cargo did not build {}", program.display());
    Ok(program)
}

/// A test binary is `<target>/<profile>/deps/<name>`.
fn target_folder() -> Result<PathBuf> {
    let binary = env::current_exe().context("cannot determine this process's executable")?;
    let target = binary.ancestors().nth(3).map(Path::to_owned);
    target.context("this process is not a test binary of cargo")
}
