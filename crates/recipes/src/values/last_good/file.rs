//! Reading and replacing a file that only this user may read and write.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::values::last_good::error::LastGoodError;
use crate::values::last_good::form::{Kept, Unfit};

/// Who may read and write it.
const PRIVATE: u32 = 0o600;

/// Who may write it, besides its owner.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// How often a temporary file is made anew that another process takes for one that was left behind.
const TRIES: u32 = 8;

/// Reads the file; `None` if there is none.
pub(super) fn read(file: &Path) -> Result<Option<Kept>, LastGoodError> {
    if file.file_name().is_none() {
        return Err(failed(file, &"this path names no file"));
    }
    let mut options = OpenOptions::new();
    // A pipe must not keep it waiting.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.read(true).custom_flags(flags.bits().cast_signed()).open(file);
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = directory_of(file);
            let absent = |error| failed(file, &format!("{}: {error}", directory.display()));
            return fs::metadata(directory).map(|_| None).map_err(absent);
        }
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(not_private(file, "it is a symbolic link"));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(not_private(file, "this user may not read it"));
        }
        Err(error) => return Err(failed(file, &error)),
    };
    check_private(file, &opened)?;

    let mut bytes = Vec::new();
    opened.read_to_end(&mut bytes).map_err(|error| failed(file, &error))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    match Kept::from_bytes(&bytes) {
        Ok(kept) => Ok(Some(kept)),
        Err(Unfit::Damaged(reason)) => {
            Err(LastGoodError::Damaged { file: file.to_owned(), reason: reason.to_owned() })
        }
        Err(Unfit::Later) => Err(LastGoodError::Later { file: file.to_owned() }),
        Err(Unfit::Foreign) => Err(LastGoodError::Foreign { file: file.to_owned() }),
    }
}

fn check_private(file: &Path, opened: &File) -> Result<(), LastGoodError> {
    let metadata = opened.metadata().map_err(|error| failed(file, &error))?;
    let owner = metadata.uid();
    let reason = if !metadata.is_file() {
        "it is no regular file".to_owned()
    } else if owner != rustix::process::geteuid().as_raw() {
        format!("it belongs to user {owner}")
    } else if metadata.mode() & OTHERS_MAY_WRITE != 0 {
        format!("others may write it (mode {:04o})", metadata.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(not_private(file, &reason))
}

/// Puts a value in the place of the file, in one step: whoever reads it sees the old value or the new one,
/// also after a power cut.
pub(super) fn replace(file: &Path, kept: &Kept) -> Result<(), LastGoodError> {
    let replaced = (|| {
        let directory = directory_of(file);
        let (temporary, mut opened) = temporary(file, directory)?;
        let written = opened
            .write_all(&kept.to_bytes())
            .and_then(|()| opened.sync_all())
            .and_then(|()| fs::rename(&temporary, file));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        File::open(directory)?.sync_all()
    })();
    replaced.map_err(|error| failed(file, &error))
}

/// Deletes temporary files that processes have left behind which ended while they wrote.
pub(super) fn tidy(file: &Path) {
    let Ok(entries) = fs::read_dir(directory_of(file)) else { return };
    let (start, end) = temporary_name(file);
    for entry in entries.flatten() {
        let name = entry.file_name();

        let middle = name
            .as_encoded_bytes()
            .strip_prefix(start.as_encoded_bytes())
            .and_then(|rest| rest.strip_suffix(end.as_bytes()));
        if !middle.is_some_and(is_ours) {
            continue;
        }

        // One that is being written is locked.
        let opened = private(false).open(entry.path());
        if let Ok(opened) = opened
            && opened.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A new file in the same directory, locked while it is open. Its name is that of no other process.
fn temporary(file: &Path, directory: &Path) -> io::Result<(PathBuf, File)> {
    let (start, end) = temporary_name(file);
    for _ in 0..TRIES {
        let mut name = start.clone();
        name.push(format!("{}{end}", uuid::Uuid::new_v4()));
        let path = directory.join(name);
        let opened = private(true).open(&path)?;
        match opened.try_lock() {
            // It is still there: nobody has tidied it up before it was locked.
            Ok(()) if opened.metadata()?.nlink() > 0 => return Ok((path, opened)),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("temporary files are deleted as soon as they are made"))
}

/// Whether this is the middle of the name of a [`temporary`] file.
fn is_ours(middle: &[u8]) -> bool {
    let uuid = uuid::Uuid::try_parse_ascii(middle);
    uuid.is_ok_and(|uuid| uuid.to_string().as_bytes() == middle && uuid.get_version_num() == 4)
}

fn private(is_new: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(is_new).mode(PRIVATE);
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// What the name of a temporary file begins and ends with.
fn temporary_name(file: &Path) -> (OsString, &'static str) {
    let mut start = OsString::from(".");
    start.push(file.file_name().unwrap_or_default());
    start.push(".");
    (start, ".tmp")
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn not_private(file: &Path, reason: &str) -> LastGoodError {
    LastGoodError::NotPrivate { file: file.to_owned(), reason: reason.to_owned() }
}

fn failed(file: &Path, error: &dyn Display) -> LastGoodError {
    LastGoodError::Io { file: file.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use bytes::Bytes;
    use lockkeeper_client::Zxid;

    use super::*;
    use crate::values::revision::Revision;

    fn kept(mzxid: i64) -> Kept {
        let letter = u8::try_from(mzxid % 26).unwrap() + b'a';
        let data = Bytes::from(vec![letter; 1 + usize::try_from(mzxid).unwrap() * 997 % 20_000]);
        let revision = Revision { czxid: Zxid(1), mzxid: Zxid(mzxid), version: 0 };
        Kept { path: "/limits".into(), revision, data }
    }

    /// They were taken for a file that is not there yet, and every value failed later.
    #[test]
    fn a_path_that_names_no_file_is_refused_at_once() {
        for path in ["", "/", ".."] {
            let error = read(Path::new(path)).expect_err(path);
            assert!(matches!(error, LastGoodError::Io { .. }), "{path}: {error}");
        }
    }

    /// Programs that share a file: whoever reads it sees a whole value.
    ///
    /// Seen to fail with a temporary file of one name for all.
    #[test]
    fn programs_that_share_it_do_not_tear_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits");
        replace(&file, &kept(0)).unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let file = &file;
                    scope.spawn(move || {
                        for number in 0..50 {
                            replace(file, &kept(number * 3 + writer)).unwrap();
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut reads = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let found = read(&file).unwrap().expect("it is always there");
                    assert_eq!(found, kept(found.revision.mzxid.0));
                    // What another program is writing is not taken for a remainder.
                    tidy(&file);
                    reads += 1;
                }
                reads
            });
            let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
            assert!(written.iter().all(Result::is_ok), "{written:?}");
        });
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_a_program_left_that_ended_while_it_wrote_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits");
        let (left, _) = temporary(&file, folder.path()).unwrap();
        let (written, locked) = temporary(&file, folder.path()).unwrap();
        let others = [".limitsx.tmp", ".limits.tmp", ".limits..tmp", ".limits.draft.tmp"];
        for other in others {
            fs::write(folder.path().join(other), "somebody else's").unwrap();
        }
        tidy(&file);
        assert_eq!((left.exists(), written.exists()), (false, true));
        for other in others {
            assert!(folder.path().join(other).exists(), "{other}");
        }
        drop(locked);
        tidy(&file);
        assert!(!written.exists());
    }
}
