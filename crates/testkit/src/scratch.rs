//! Temporary directories that are removed with their handle, or at the end of this process.
//!
//! A handle in a static is never dropped, and a killed process drops nothing. So all directories are in one root per
//! process, and a shell removes the root when this process has ended.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Waits until the other end of its input is closed, which the kernel does when a process ends in any way. Servers are
/// killed at the same moment; the pause lets them end.
const REMOVE_AT_THE_END: &str = r#"read -r _; sleep 1; exec rm -rf "$1""#;

/// Creates a directory that is removed on drop.
///
/// # Errors
///
/// The system's directory for temporary files is not writable.
pub fn folder() -> io::Result<TempDir> {
    tempfile::tempdir_in(root()?)
}

fn root() -> io::Result<&'static Path> {
    static ROOT: OnceLock<Result<Root, String>> = OnceLock::new();
    let root = ROOT.get_or_init(|| Root::create().map_err(|error| error.to_string()));
    root.as_ref().map(|root| root.path.as_path()).map_err(|error| io::Error::other(error.as_str()))
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// Open while this process lives.
    _alive: Option<ChildStdin>,
}

impl Root {
    fn create() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("lockkeeper-test-").tempdir()?;
        let mut watcher = Command::new("sh")
            .args(["-c", REMOVE_AT_THE_END, "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C on the terminal is meant for the tests, not for the cleanup after them.
            .process_group(0)
            .spawn()?;
        Ok(Self { path: folder.keep(), _alive: watcher.stdin.take() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_handle_and_the_root_stays() {
        let one = folder().unwrap();
        let two = folder().unwrap();
        let path = one.path().to_owned();
        assert_ne!(path, two.path());
        assert_eq!(path.parent(), two.path().parent());
        drop(one);
        assert!(!path.exists());
        assert!(two.path().exists());
    }
}
