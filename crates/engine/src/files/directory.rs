//! An open directory and the files in it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::owners::{Distrust, check_owner};
use super::read::read_at_most;
use super::way::follow;

/// The permissions of files and directories for one user only.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// The purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading a file that exists.
    Read,
    /// Reading and writing a file that exists.
    Write,
    /// Reading and writing. A missing file is created, for this user only.
    Create,
    /// Appending. A missing file is created, for this user only.
    Append,
}

/// An open directory. Files are opened relative to the directory itself, so it does not matter where its path leads
/// later.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    handle: Arc<File>,
}

impl Directory {
    /// Opens a directory; `None` if it is missing. The directory and all directories on its path must belong to root or
    /// the user of this process.
    ///
    /// Other users may have write permission there, as in the volumes of containers: files that they create have
    /// another owner, and are refused.
    ///
    /// # Errors
    /// The path is not a directory, or belongs to another user.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        Self::find(path, None)
    }

    /// Like [`Directory::open`], but creates missing directories, for this user only; an existing one keeps its
    /// permissions.
    ///
    /// # Errors
    /// See [`Directory::open`]; or a directory cannot be created.
    pub fn open_or_make(path: &Path) -> io::Result<Self> {
        if let Some(found) = Self::find(path, None)? {
            return Ok(found);
        }
        let made = Self::find(path, Some(PRIVATE_DIRECTORY))?;
        let made = made.ok_or(io::ErrorKind::NotFound)?;
        // Its own name becomes durable too.
        if let Some(above) = Self::find(parent(&made.path), None)? {
            above.sync()?;
        }
        Ok(made)
    }

    fn find(path: &Path, make: Option<u32>) -> io::Result<Option<Self>> {
        let Some(real) = way(&std::path::absolute(path)?, make)? else { return Ok(None) };

        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |flags| openat(CWD, &real, flags, Mode::empty());
        let handle = match open(flags) {
            Err(Errno::NOENT) => return Ok(None),
            // A directory may allow entering but not listing: its files can still be opened.
            #[cfg(target_os = "linux")]
            Err(Errno::ACCESS) => File::from(open(flags | OFlags::PATH)?),
            opened => File::from(opened?),
        };
        check_owner(handle.metadata()?.uid())?;
        Ok(Some(Self { path: path.to_path_buf(), handle: Arc::new(handle) }))
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself.
    #[must_use]
    pub fn handle(&self) -> &File {
        &self.handle
    }

    /// The path of a file in it, for messages.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a regular file in it; symbolic links are refused. Never blocks.
    ///
    /// # Errors
    /// It is not a regular file, or belongs to another user; or it is to be written and has another name (a hard link)
    /// on which other programs may rely.
    pub fn open_file(&self, name: impl AsRef<OsStr>, access: Access) -> io::Result<File> {
        let wanted = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
            Access::Create => OFlags::RDWR | OFlags::CREATE,
            Access::Append => OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
        };
        // Otherwise, opening a pipe would wait for its other end.
        let flags = wanted | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&*self.handle, name.as_ref(), flags, Mode::from_raw_mode(PRIVATE_FILE));
        let file = match opened {
            Err(Errno::LOOP) => return Err(Distrust::Link.into()),
            // A pipe without a reader, a socket, a directory.
            Err(Errno::NXIO | Errno::ISDIR) => return Err(Distrust::NoFile.into()),
            opened => File::from(opened?),
        };

        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(Distrust::NoFile.into());
        }
        check_owner(meta.uid())?;
        if access != Access::Read && meta.nlink() > 1 {
            return Err(Distrust::TwoNames.into());
        }
        Ok(file)
    }

    /// Reads a file of at most `longest` bytes.
    ///
    /// # Errors
    /// See [`Directory::open_file`]; or the file is longer.
    pub fn read(&self, name: &str, longest: u64) -> io::Result<Vec<u8>> {
        read_at_most(self.open_file(name, Access::Read)?, longest)
    }

    /// Replaces a file durably: after a crash, either the old or the new content is there.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let draft = format!("{name}.new");
        let mut file = self.open_file(&draft, Access::Create)?;
        file.set_len(0)?;
        file.write_all(content)?;
        file.sync_all()?;
        self.rename(&draft, name)?;
        self.sync()
    }

    /// Renames a file in the directory.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&*self.handle, from, &*self.handle, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The system refuses it, or the file is missing.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&*self.handle, name, AtFlags::empty())?)
    }

    /// Whether an entry has this name, even a dangling link.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn has(&self, name: &str) -> io::Result<bool> {
        match statat(&*self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            found => Ok(found.map(|_| true)?),
        }
    }

    /// The names of all entries.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.handle)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Makes the names in it durable.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

/// Returns the absolute path without symbolic links, if it exists.
///
/// # Errors
/// A part of the path belongs to another user.
pub(crate) fn real_way(path: &Path) -> io::Result<Option<PathBuf>> {
    way(path, None)
}

fn way(path: &Path, make: Option<u32>) -> io::Result<Option<PathBuf>> {
    let judge = |_: &Path, meta: &Metadata, _| check_owner(meta.uid());
    follow(path, make, judge, |_, error| error)
}

/// The directory that contains a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
impl Directory {
    /// An empty directory that exists as long as the returned folder.
    pub(crate) fn temporary() -> (tempfile::TempDir, Self) {
        let folder = tempfile::tempdir().unwrap();
        let opened = Self::open(folder.path()).unwrap().unwrap();
        (folder, opened)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// Attack: another user places files that make root write elsewhere or wait.
    #[test]
    fn nothing_but_a_regular_file_with_one_name_is_opened() {
        let (folder, directory) = Directory::temporary();
        let victim = folder.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        symlink(&victim, folder.path().join("link")).unwrap();
        symlink(folder.path().join("new"), folder.path().join("dangling")).unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        fs::hard_link(&victim, folder.path().join("second")).unwrap();
        rustix::fs::mkfifoat(CWD, folder.path().join("pipe"), 0o600.into()).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();

        for name in ["link", "dangling", "folder", "pipe", "socket"] {
            for access in [Access::Read, Access::Write, Access::Create, Access::Append] {
                let opened = directory.open_file(name, access);
                assert!(opened.is_err(), "{name} was opened for {access:?}");
            }
        }
        for access in [Access::Write, Access::Create, Access::Append] {
            let error = directory.open_file("second", access).unwrap_err().to_string();
            assert!(error.contains("hard link"), "{error}");
        }
        assert_eq!(directory.read("second", 4).unwrap(), b"mine");
        assert!(directory.read("second", 3).is_err(), "the file is longer");
        assert!(!folder.path().join("new").exists(), "a file was created elsewhere");
    }

    #[test]
    fn a_file_is_made_for_its_user_alone_and_found_again() {
        let (folder, directory) = Directory::temporary();
        assert!(!directory.has("file").unwrap());
        directory.replace("file", b"one").unwrap();
        directory.replace("file", b"two").unwrap();
        assert!(directory.has("file").unwrap());
        assert_eq!(directory.read("file", 3).unwrap(), b"two");
        let mode = fs::metadata(folder.path().join("file")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(directory.names().unwrap(), ["file"]);
        directory.remove("file").unwrap();
        assert!(directory.names().unwrap().is_empty());
    }

    #[test]
    fn a_directory_that_is_moved_stays_the_same() {
        let home = tempfile::tempdir().unwrap();
        let (path, moved) = (home.path().join("data"), home.path().join("moved"));
        let directory = Directory::open_or_make(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        directory.replace("file", b"one").unwrap();
        assert!(moved.join("file").exists() && !path.join("file").exists());
    }

    #[test]
    fn a_missing_directory_is_none() {
        let home = tempfile::tempdir().unwrap();
        assert!(Directory::open(&home.path().join("data")).unwrap().is_none());
        let made = Directory::open_or_make(&home.path().join("a/b")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(made.path()), mode(&home.path().join("a"))), (0o700, 0o700));
        fs::write(home.path().join("file"), "").unwrap();
        assert!(Directory::open(&home.path().join("file")).is_err());
    }
}
