//! Whose files are relied on.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

use super::read::read_kernel_file;

const ROOT: u32 = 0;

/// The users whose files and directories are relied on: root and the user of this process, and possibly
/// more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    also: Vec<u32>,
}

/// Why a file, or a directory on the way to it, is not used: another user may have put it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Distrust {
    #[error("it belongs to user {owner}, and this process runs as user {me}")]
    Owner { owner: u32, me: u32 },
    #[error("it is a symbolic link")]
    Link,
    #[error("it is no regular file")]
    NoFile,
    /// Under which another program may rely on it.
    #[error("it has another name too, by a hard link")]
    TwoNames,
}

impl From<Distrust> for io::Error {
    fn from(why: Distrust) -> Self {
        io::Error::other(why)
    }
}

impl Owners {
    /// Root and the user of this process: for what an engine runs on.
    #[must_use]
    pub fn own() -> Self {
        Self { also: Vec::new() }
    }

    /// The same, and the owners of `path` and of the directories above it, who could replace it anyway: for
    /// root that looks after the files of another user.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let full = std::path::absolute(path).unwrap_or_default();
        Self { also: full.ancestors().filter_map(|path| owner_of(path).ok()).collect() }
    }

    /// # Errors
    /// If none of them is this user.
    pub(super) fn check(&self, owner: u32) -> io::Result<()> {
        let me = geteuid().as_raw();
        if [ROOT, me].contains(&owner) || self.also.contains(&owner) || is_unmapped(owner) {
            return Ok(());
        }
        Err(Distrust::Owner { owner, me }.into())
    }
}

fn owner_of(path: &Path) -> io::Result<u32> {
    fs::metadata(path).map(|meta| meta.uid())
}

/// Whether this may be root, seen from within a user namespace that does not know all users: a
/// sandbox, where all that the system has installed looks like this.
#[must_use]
pub fn is_unmapped(uid: u32) -> bool {
    let overflow = read_kernel_file("/proc/sys/kernel/overflowuid").unwrap_or_default();
    let map = read_kernel_file("/proc/self/uid_map").unwrap_or_default();
    overflow.trim().parse() == Ok(uid) && !map.is_empty() && !knows_all(&map)
}

/// Whether a table of user ids, in the format of `/proc/self/uid_map`, has all of them.
fn knows_all(map: &str) -> bool {
    let counts = map.lines().filter_map(|row| row.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_namespace_without_all_users_has_unknown_ones() {
        assert!(knows_all("         0          0 4294967295\n"));
        assert!(!knows_all("0 1000 1\n"));
        assert!(!knows_all("0 1000 1\n1 100000 65536\n"));
    }

    #[test]
    fn another_user_is_trusted_only_with_their_own_files() {
        let me = geteuid().as_raw();
        let other = me + 1;
        assert!(Owners::own().check(me).is_ok());
        assert!(Owners::own().check(ROOT).is_ok());
        assert!(Owners::own().check(other).unwrap_err().to_string().contains("belongs to user"));
        assert!(Owners { also: vec![other] }.check(other).is_ok());
    }
}
