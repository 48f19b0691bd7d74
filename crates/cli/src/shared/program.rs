//! Starts this program as a child process.

use std::fs::read_dir;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::shared::global::Digest;

/// The environment variable with the ids of the run that a process belongs to and of its outer runs, separated by
/// spaces.
pub(crate) const RUN: &str = "LOCKKEEPER_RUN";

/// This program, even if its file was replaced by a newer version.
#[cfg(target_os = "linux")]
pub(crate) fn this_program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// This program, if its file still exists at its path.
#[cfg(not(target_os = "linux"))]
pub(crate) fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// A child process of this program that does a part of its work. It does not belong to an outer run, which would
/// terminate it. Its environment contains no credentials, because other users might see them there.
pub(crate) fn helper_process() -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command.arg0("lockkeeper").env_remove(RUN).env_remove(Digest::VARIABLE);
    Ok(command)
}

/// Closes all inherited file descriptors: an open pipe or locked file would block other processes. Must be called
/// before this process opens files of its own.
pub(crate) fn close_inherited() {
    let Ok(entries) = read_dir("/proc/self/fd") else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let open: Vec<i32> = names.filter(|fd| *fd > 2).collect();
    for fd in open {
        // The list also contains the descriptor of the listing, which is already closed.
        let _ = nix::unistd::close(fd);
    }
}
