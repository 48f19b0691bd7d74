//! What is kept of a run that broke a promise.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file or folder of this seed, beside the test binary, so that `cargo clean` removes it.
pub(crate) fn place(seed: u64, kind: &str) -> PathBuf {
    let name = format!("ensemble-{seed}.{kind}");
    std::env::current_exe().unwrap_or_default().with_file_name(name)
}

/// Says where the text is, or why it is not there.
pub(crate) fn keep_text(seed: u64, kind: &str, text: &str) -> String {
    let file = place(seed, kind);
    match fs::write(&file, text) {
        Ok(()) => format!("The {kind} is in {}", file.display()),
        Err(error) => format!("The {kind} cannot be written: {error}"),
    }
}

/// Copies folders, in place of what was kept of this seed before, and says where they are.
pub(crate) fn keep_folders(seed: u64, folders: &[(String, &Path)]) -> String {
    let target = place(seed, "kept");
    let kept = || -> Result<()> {
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        for (name, folder) in folders {
            copy(folder, &target.join(name)).with_context(|| folder.display().to_string())?;
        }
        Ok(())
    };
    match kept() {
        Ok(()) => format!("Logs, and the servers' data, are in {}", target.display()),
        Err(error) => format!("Logs cannot be kept: {error:#}"),
    }
}

/// Sockets are left out, and what a server removes meanwhile.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let to = to.join(entry.file_name());
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_file() {
            match fs::copy(entry.path(), &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied?),
            }
        }
    }
    Ok(())
}
