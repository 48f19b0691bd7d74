//! Follows the path to a directory, one step at a time.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

/// As many symbolic links as the system follows.
const MAX_LINKS: u32 = 40;

/// A step on the path to a directory. The directory itself is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A directory that is passed. Its owner can replace the next step.
    Passage,
    /// A symbolic link. Its owner can point it elsewhere.
    Link,
}

/// Follows an absolute path to a directory, and returns the path without symbolic links; `None` if it is missing. With
/// `make`, missing directories are created with these permissions.
///
/// # Errors
/// The error of `judge` for a step, or of `failed` for an error of the system.
pub fn follow<E>(
    path: &Path,
    make: Option<u32>,
    judge: impl Fn(&Path, &Metadata, Step) -> Result<(), E>,
    failed: impl Fn(&Path, io::Error) -> E,
) -> Result<Option<PathBuf>, E> {
    let mut real = PathBuf::from("/");
    let mut ahead = steps(path);
    let mut links = 0;
    while let Some(step) = ahead.pop() {
        if step == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&step);
        let found = look_or_make(&next, make).map_err(|error| failed(&next, error))?;
        let Some(meta) = found else { return Ok(None) };
        if !meta.is_symlink() {
            if !ahead.is_empty() {
                judge(&next, &meta, Step::Passage)?;
            }
            real = next;
            continue;
        }

        judge(&next, &meta, Step::Link)?;
        links += 1;
        if links > MAX_LINKS {
            return Err(failed(path, rustix::io::Errno::LOOP.into()));
        }
        let target = fs::read_link(&next).map_err(|error| failed(&next, error))?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        ahead.extend(steps(&target));
    }
    Ok(Some(real))
}

/// The components of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let is_step =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(is_step).map(|part| part.as_os_str().to_owned()).collect()
}

fn look_or_make(path: &Path, make: Option<u32>) -> io::Result<Option<Metadata>> {
    if let (None, Some(mode)) = (look(path)?, make) {
        match DirBuilder::new().mode(mode).create(path) {
            // Another process was faster. Its directory is checked as well.
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    look(path)
}

/// The metadata of the file itself, even if it is a symbolic link; `None` if it is missing.
fn look(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_from_its_end() {
        let taken = steps(Path::new("/a/./b/../c/"));
        assert_eq!(taken, ["c", "..", "b", "a"]);
    }
}
