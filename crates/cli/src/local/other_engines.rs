//! Finds the other machine-local engines that run on this machine.
//!
//! The kernel's table lists all listening sockets, including those in other users' directories. It covers one network
//! namespace, so engines in containers are missing.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_engine::files::read_kernel_file;
use serde::Serialize;

use super::home::{ADMIN_SOCKET, Home, SOCKET, START_LOCK};
use crate::shared::{trust, view};

const TABLE: &str = "/proc/net/unix";

/// The flag of a listening socket.
const LISTENS: &str = "00010000";

/// The maximum number of engines in one warning.
const AT_ONCE: usize = 3;

/// An engine, and its owner.
#[derive(Debug, Serialize)]
pub(super) struct OtherEngine {
    directory: PathBuf,
    pub(super) owner: u32,
}

impl std::fmt::Display for OtherEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let directory = self.directory.to_string_lossy();
        write!(f, "{} of {}", view::printable(&directory), trust::user(self.owner))
    }
}

/// The engines in other directories than this one; empty on systems without such a table.
pub(super) fn of(directory: &Path) -> Vec<OtherEngine> {
    let table = read_kernel_file(TABLE).unwrap_or_default();
    let engines = engines(&table);
    let others = engines.into_iter().filter(|found| found != directory);
    others
        .filter_map(|directory| Some(OtherEngine { owner: owner(&directory)?, directory }))
        .collect()
}

/// The engines that the user of this home has not been warned about yet. They count as known afterwards: otherwise,
/// cron would mail the same warning after each job.
pub(super) fn unknown(home: &Home) -> Vec<OtherEngine> {
    let mut others = of(home.directory());
    if others.is_empty() {
        return others;
    }
    let known = home.warned_of();
    others.retain(|other| {
        known.split(|b| *b == b'\n').all(|line| line != other.directory.as_os_str().as_bytes())
    });
    others.truncate(AT_ONCE);
    if !others.is_empty() {
        let lines = others.iter().flat_map(|other| [other.directory.as_os_str().as_bytes(), b"\n"]);
        // If the list cannot be written, the user is warned again.
        let _ = home.note_warned(known, &lines.collect::<Vec<_>>().concat());
    }
    others
}

/// The directories where a machine-local engine listens. Another program may have a socket with one of these names, but
/// not both sockets and the file that exists before an engine does.
fn engines(table: &str) -> Vec<PathBuf> {
    let listening: HashSet<&Path> = table.lines().filter_map(listener).collect();
    let named = listening.iter().filter(|path| path.ends_with(SOCKET));
    let directories = named.filter_map(|path| path.parent());
    let is_ours = |directory: &&Path| {
        listening.contains(directory.join(ADMIN_SOCKET).as_path())
            || directory.join(START_LOCK).symlink_metadata().is_ok()
    };
    let mut engines: Vec<_> = directories.filter(is_ours).map(Path::to_owned).collect();
    engines.sort_unstable();
    engines
}

/// The path of a listening socket. A row has seven columns; the path is the rest.
fn listener(row: &str) -> Option<&Path> {
    let mut rest = row;
    for column in 0..7 {
        let (word, others) = rest.trim_start().split_once(' ')?;
        if column == 3 && word != LISTENS {
            return None;
        }
        rest = others;
    }
    Some(Path::new(rest)).filter(|path| path.is_absolute())
}

/// The owner of a directory or, if it cannot be accessed, of its nearest accessible parent. `None` if it does not
/// exist: it was removed, or is in a container.
fn owner(directory: &Path) -> Option<u32> {
    for path in directory.ancestors() {
        match path.symlink_metadata() {
            Ok(meta) => return Some(meta.uid()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_its_two_sockets() {
        let table = "\
Num       RefCount Protocol Flags    Type St Inode Path
000000003e0752b7: 00000002 00000000 00010000 0001 01 37875 /home/a b/engine.sock
0000000000000001: 00000002 00000000 00010000 0001 01     7 /home/a b/admin.sock
0000000000000002: 00000003 00000000 00000000 0001 03 37876 /home/a b/engine.sock
0000000000000003: 00000003 00000000 00000000 0001 03 37877
0000000000000004: 00000002 00000000 00010000 0001 01 37878 /run/other/engine.sock
0000000000000005: 00000002 00000000 00010000 0001 01 37879 @/abstract/engine.sock
0000000000000006: 00000002 00000000 00010000 0001 01 37880 @/abstract/admin.sock
0000000000000007: 00000003 00000000 00000000 0001 03 37881 /home/c/engine.sock
0000000000000008: 00000002 00000000 00010000 0001 01 37882 /home/c/admin.sock
";
        assert_eq!(engines(table), [PathBuf::from("/home/a b")]);
        assert!(engines("").is_empty());
    }
}
