//! Checks that no other user can have written a file.
//!
//! A user who may write to a directory can replace any file in it by another file or a symbolic link, and so redirect
//! root to another user's socket or make it overwrite any file. So a path is followed one component at a time, and
//! each component must belong to root or to this user.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_engine::files::{self, Step, is_unmapped};
use nix::unistd::{Uid, User};
use rustix::process::{getegid, geteuid};

use crate::shared::exit::{Exit, Failure};

/// The superuser.
pub(crate) const ROOT: u32 = 0;

/// The write permission bits of the group and of others.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// In a directory with this bit, only the owner of a file may rename or remove it.
const STICKY: u32 = 0o1000;

/// What to do if a directory is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missing {
    /// Create it, with these permissions.
    Make(u32),
    Report,
}

/// Follows an absolute path to a directory, and returns it without symbolic links; `None` if the directory is missing.
/// The last component itself is not checked.
///
/// # Errors
/// If another user can replace a component of the path.
pub(crate) fn follow(path: &Path, missing: Missing) -> Result<Option<PathBuf>, Failure> {
    let make = match missing {
        Missing::Make(mode) => Some(mode),
        Missing::Report => None,
    };
    let judge = |path: &Path, meta: &Metadata, step: Step| match step {
        Step::Passage => check_passage(path, meta),
        Step::Link => check_owner(path, meta),
    };
    files::follow(path, make, judge, |path, error| cannot_use(path, &error))
}

/// Follows a path to a file that only root and this user can have written, and returns it without symbolic links.
pub(crate) fn check_file(path: &Path) -> Result<PathBuf, Failure> {
    let missing = || cannot_use(path, &rustix::io::Errno::NOENT.into());
    let real = follow(path, Missing::Report)?.ok_or_else(missing)?;
    let meta = look(&real)?.ok_or_else(missing)?;
    check_owner(&real, &meta)?;
    check_closed(&real, &meta)?;
    Ok(real)
}

/// The metadata of a path, without following a symbolic link; `None` if it is missing.
pub(crate) fn look(path: &Path) -> Result<Option<Metadata>, Failure> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot_use(path, &error)),
    }
}

/// Checks a directory on the path.
fn check_passage(path: &Path, meta: &Metadata) -> Result<(), Failure> {
    check_owner(path, meta)?;
    let mode = meta.mode();
    // Many systems give each user a private group with write permission.
    let group_writes = mode & GROUP_WRITES != 0 && meta.gid() != getegid().as_raw();
    let is_open = group_writes || mode & OTHERS_WRITE != 0;
    if is_open && mode & STICKY == 0 { Err(open_to_others(path, mode)) } else { Ok(()) }
}

/// Fails if users other than the owner may write to the file.
pub(crate) fn check_closed(path: &Path, meta: &Metadata) -> Result<(), Failure> {
    match meta.mode() & (GROUP_WRITES | OTHERS_WRITE) {
        0 => Ok(()),
        _ => Err(open_to_others(path, meta.mode())),
    }
}

fn open_to_others(path: &Path, mode: u32) -> Failure {
    let (path, mode) = (path.display(), mode & 0o7777);
    Failure::new(
        Exit::CannotCreate,
        format!("other users can write to {path} (mode {mode:04o}): chmod go-w {path}"),
    )
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<(), Failure> {
    let uid = meta.uid();
    if uid == ROOT || is_unmapped(uid) { Ok(()) } else { check_owned_by(me(), path, meta) }
}

/// Fails if another user owns the file.
pub(crate) fn check_owned_by(owner: u32, path: &Path, meta: &Metadata) -> Result<(), Failure> {
    if meta.uid() == owner {
        return Ok(());
    }
    let message = format!("{} belongs to {}", path.display(), user(meta.uid()));
    let why = match owner == me() {
        true => format!("you are {}", user(owner)),
        // Files of the machine's engine belong to root for every user.
        false => format!("it must belong to {}", user(owner)),
    };
    Err(Failure::new(Exit::CannotCreate, message).advise(&why))
}

/// The user of this process.
pub(crate) fn me() -> u32 {
    geteuid().as_raw()
}

/// The name of a user, or else the number.
pub(crate) fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

/// The failure if the system denies the use of a file.
pub(crate) fn cannot_use(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::CannotCreate, format!("cannot use {} ({error})", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: "belongs to nobody; you are nobody", for a file that had to belong to root.
    #[test]
    fn the_error_names_the_required_owner() {
        let (mine, another) = (std::env::temp_dir(), me() + 1);
        let file = tempfile::NamedTempFile::new_in(mine).unwrap();
        let meta = file.as_file().metadata().unwrap();
        assert!(check_owned_by(me(), file.path(), &meta).is_ok());
        let failure = check_owned_by(another, file.path(), &meta).unwrap_err().to_string();
        assert!(failure.ends_with(&format!("it must belong to {}", user(another))), "{failure}");
    }
}
