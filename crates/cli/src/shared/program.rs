//! This program, as a process that it starts itself.

use std::fs::read_dir;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::shared::global::Digest;

/// The variable with the names of the run that a process belongs to, and of those around it, with blanks
/// between them.
pub(crate) const RUN: &str = "LOCKKEEPER_RUN";

/// This program, also after its file was replaced by a newer one.
#[cfg(target_os = "linux")]
pub(crate) fn this_program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// This program, if its file is still where it was.
#[cfg(not(target_os = "linux"))]
pub(crate) fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// A process of this program that does a part of its work. It does not belong to a run around this one, which
/// would end it, and gets no credentials by its environment, where others might see them.
pub(crate) fn helper_process() -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command.arg0("lockkeeper").env_remove(RUN).env_remove(Digest::VARIABLE);
    Ok(command)
}

/// Closes what the starter's parents had open: a pipe or a locked file that lived on in here would
/// keep others waiting. Nothing of our own is open yet.
pub(crate) fn close_inherited() {
    let Ok(entries) = read_dir("/proc/self/fd") else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let open: Vec<i32> = names.filter(|fd| *fd > 2).collect();
    for fd in open {
        // That of the listing is in the list, and closed already.
        let _ = nix::unistd::close(fd);
    }
}
