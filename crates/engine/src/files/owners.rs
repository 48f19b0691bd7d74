//! Checks the owners of files.

use std::io;

use rustix::process::geteuid;

use super::read::read_kernel_file;

const ROOT: u32 = 0;

/// Why a file, or a directory on its path, is refused: another user may have placed it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Distrust {
    #[error("it belongs to user {owner}, and this process runs as user {me}")]
    Owner { owner: u32, me: u32 },
    #[error("it is a symbolic link")]
    Link,
    #[error("it is not a regular file")]
    NoFile,
    /// Another program may rely on the other name.
    #[error("it has another name (a hard link)")]
    TwoNames,
}

impl From<Distrust> for io::Error {
    fn from(why: Distrust) -> Self {
        io::Error::other(why)
    }
}

/// Whether this is root or the user of this process, both of which may do everything that the process does.
#[must_use]
pub fn is_owner(uid: u32) -> bool {
    uid == ROOT || uid == geteuid().as_raw()
}

/// Checks that a file belongs to root or the user of this process. Files of other users are not trusted, even by root:
/// their owners could replace them at any moment.
pub(super) fn check_owner(owner: u32) -> io::Result<()> {
    match is_owner(owner) || is_unmapped(owner) {
        true => Ok(()),
        false => Err(Distrust::Owner { owner, me: geteuid().as_raw() }.into()),
    }
}

/// Whether this may be root, seen from within a user namespace that does not map all users: a sandbox, in which all
/// files of the system appear like this.
#[must_use]
pub fn is_unmapped(uid: u32) -> bool {
    let overflow = read_kernel_file("/proc/sys/kernel/overflowuid").unwrap_or_default();
    let map = read_kernel_file("/proc/self/uid_map").unwrap_or_default();
    overflow.trim().parse() == Ok(uid) && !map.is_empty() && !knows_all(&map)
}

/// Whether a table of user ids, in the format of `/proc/self/uid_map`, maps all of them.
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
    fn another_user_is_not_trusted() {
        let me = geteuid().as_raw();
        assert!(check_owner(me).is_ok() && check_owner(ROOT).is_ok());
        assert!(check_owner(me + 1).unwrap_err().to_string().contains("belongs to user"));
    }
}
