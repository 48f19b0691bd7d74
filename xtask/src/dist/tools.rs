//! Programs that are run to their ends, and files that are put into trees.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Runs a program that prints for people.
pub(super) fn run(program: &mut Command) -> Result<()> {
    let status = program.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {:?}", program.get_program()))?;
    ensure!(status.success(), "{program:?} failed: {status}");
    Ok(())
}

/// Runs a program, and returns what it printed.
pub(super) fn output(program: &mut Command) -> Result<String> {
    let output = program.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {:?}", program.get_program()))?;
    ensure!(output.status.success(), "{program:?} failed: {}", output.status);
    String::from_utf8(output.stdout).context("it printed something other than UTF-8")
}

/// Writes a file, with its folders, that everyone may read.
pub(super) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o644))?)
}

/// Copies a file, with its folders; everyone may read it, or also run it.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(fs::set_permissions(to, Permissions::from_mode(mode))?)
}

/// An empty folder.
pub(super) fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(fs::create_dir_all(folder)?)
}
