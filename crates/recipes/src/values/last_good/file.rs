//! The format of the file, and reading and replacing it.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use atomic_write_file::AtomicWriteFile;
use atomic_write_file::unix::OpenOptionsExt as _;
use bytes::Bytes;
use crc32c::crc32c;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::values::last_good::error::LastGoodError;
use crate::values::revision::Revision;

/// The file's mode.
const PRIVATE_MODE: u32 = 0o600;

/// The permission bits with which other users could write it.
const OTHERS_WRITE_BITS: u32 = 0o022;

/// The first bytes of every such file.
const MAGIC: &[u8] = b"{\"lockkeeper_last_known_good\":";

/// The version of the file's format.
const FORMAT: u32 = 1;

/// A value as bytes, its node, and its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredValue {
    /// The node's path from the servers' root.
    pub(super) path: String,
    pub(super) revision: Revision,
    pub(super) data: Bytes,
}

/// The first line. It is followed by the value, and a line with the CRC-32C of both.
#[derive(Serialize, Deserialize)]
struct FileHeader {
    lockkeeper_last_known_good: u32,
    path: String,
    #[serde(flatten)]
    revision: Revision,
    bytes: usize,
}

/// Reads the file of the node at this path; `None` if the file is missing.
pub(super) fn read(file: &Path, path: &str) -> Result<Option<StoredValue>, LastGoodError> {
    let Some(directory) = file.file_name().and(file.parent()) else {
        return Err(failed(file, &"this path is not a file name"));
    };
    let mut options = OpenOptions::new();
    // Opening a pipe must not block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.read(true).custom_flags(flags.bits().cast_signed()).open(file);
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory =
                if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
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
    let kept = parse(file, &bytes)?;
    match kept.path == path {
        true => Ok(Some(kept)),
        false => {
            let (file, found, path) = (file.to_owned(), kept.path, path.to_owned());
            Err(LastGoodError::OtherPath { file, found, path })
        }
    }
}

fn check_private(file: &Path, opened: &File) -> Result<(), LastGoodError> {
    let metadata = opened.metadata().map_err(|error| failed(file, &error))?;
    let owner = metadata.uid();
    let reason = if !metadata.is_file() {
        "it is not a regular file".to_owned()
    } else if owner != rustix::process::geteuid().as_raw() {
        format!("it belongs to user {owner}")
    } else if metadata.mode() & OTHERS_WRITE_BITS != 0 {
        format!("other users may write it (mode {:04o})", metadata.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(not_private(file, &reason))
}

/// Replaces the file with a value atomically: readers see the old value or the new one, also after a power
/// failure.
pub(super) fn replace(file: &Path, kept: &StoredValue) -> Result<(), LastGoodError> {
    let replaced = (|| {
        let mut options = AtomicWriteFile::options();
        options.preserve_mode(false).preserve_owner(false).mode(PRIVATE_MODE);
        let mut opened = options.open(file)?;
        opened.write_all(&written(kept))?;
        opened.commit()
    })();
    replaced.map_err(|error| failed(file, &error))
}

/// Deletes temporary files of programs that ended while they replaced the file: files with the library's names that
/// are older than an hour.
pub(super) fn tidy(file: &Path) {
    const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
    let (Some(name), Some(directory)) = (file.file_name(), file.parent()) else { return };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let start = format!(".{}.", name.to_string_lossy());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let named = entry.file_name();
        let random = named.to_str().and_then(|named| named.strip_prefix(&start));
        let is_temporary =
            |text: &str| text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if random.is_some_and(is_temporary) && age().is_some_and(|age| age > ABANDONED_AFTER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn written(kept: &StoredValue) -> Vec<u8> {
    let header = FileHeader {
        lockkeeper_last_known_good: FORMAT,
        path: kept.path.clone(),
        revision: kept.revision,
        bytes: kept.data.len(),
    };
    let mut bytes = serde_json::to_vec(&header).expect("names and numbers are always JSON");
    bytes.push(b'\n');
    bytes.extend_from_slice(&kept.data);
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(format!("\n{sum:08x}\n").as_bytes());
    bytes
}

fn parse(file: &Path, bytes: &[u8]) -> Result<StoredValue, LastGoodError> {
    let damaged =
        |reason: &str| LastGoodError::Damaged { file: file.to_owned(), reason: reason.to_owned() };
    // A file that was cut off in its first word is damaged, and has no data to preserve.
    if !bytes.starts_with(MAGIC) && !MAGIC.starts_with(bytes) {
        return Err(LastGoodError::Foreign { file: file.to_owned() });
    }
    // Checked first, because a later format may change everything after it.
    if form_of(bytes).is_some_and(|form| form > FORMAT) {
        return Err(LastGoodError::Later { file: file.to_owned() });
    }
    let cut_off = || damaged("it is cut off");
    let (body, end) = bytes.split_last_chunk::<10>().ok_or_else(cut_off)?;
    if end[..] != *format!("\n{:08x}\n", crc32c(body)).as_bytes() {
        return Err(damaged("its checksum is wrong"));
    }

    let line = body.iter().position(|byte| *byte == b'\n').ok_or_else(cut_off)?;
    let (line, data) = (&body[..line], Bytes::copy_from_slice(&body[line + 1..]));
    match serde_json::from_slice(line) {
        Ok(FileHeader { lockkeeper_last_known_good: FORMAT, path, revision, bytes })
            if bytes == data.len() =>
        {
            Ok(StoredValue { path, revision, data })
        }
        _ => Err(damaged("its first line is invalid")),
    }
}

/// The format version of a file; `None` if it has none.
fn form_of(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(MAGIC)?.split(|byte| !byte.is_ascii_digit()).next()?;
    str::from_utf8(digits).ok()?.parse().ok()
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

    /// As written by earlier versions of this library.
    const GOOD: &str = "{\"lockkeeper_last_known_good\":1,\"path\":\"/app/limits\",\"czxid\":3,\
        \"mzxid\":4294967303,\"version\":-2,\"bytes\":7}\n{\"a\":1}\n21a47983\n";

    fn kept(mzxid: i64, data: impl Into<Bytes>) -> StoredValue {
        let revision = Revision { czxid: Zxid(3), mzxid: Zxid(mzxid), version: -2 };
        StoredValue { path: "/app/limits".into(), revision, data: data.into() }
    }

    /// A value that contains its number.
    fn numbered(number: i64) -> StoredValue {
        let letter = u8::try_from(number % 26).unwrap() + b'a';
        kept(number, vec![letter; 1 + usize::try_from(number).unwrap() * 997 % 20_000])
    }

    fn parsed(bytes: impl AsRef<[u8]>) -> Result<StoredValue, LastGoodError> {
        parse(Path::new("limits"), bytes.as_ref())
    }

    /// Such paths were taken for a missing file, and every value failed later.
    #[test]
    fn what_a_program_left_that_ended_while_it_wrote_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        for name in [".limits.a1B2c3", ".limits.draft", ".limitsx.a1B2c3", "limits"] {
            File::create(at(name)).unwrap().set_times(old).unwrap();
        }
        File::create(at(".limits.young1")).unwrap();
        tidy(&at("limits"));
        assert!(!at(".limits.a1B2c3").exists());
        for name in [".limits.draft", ".limitsx.a1B2c3", "limits", ".limits.young1"] {
            assert!(at(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_path_that_names_no_file_is_refused_at_once() {
        for path in ["", "/", ".."] {
            let error = read(Path::new(path), "/app/limits").expect_err(path);
            assert!(matches!(error, LastGoodError::Io { .. }), "{path}: {error}");
        }
    }

    /// Programs may share a file: readers always see a whole value.
    ///
    /// Fails if all programs use one name for the temporary file.
    #[test]
    fn programs_that_share_it_do_not_tear_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = &folder.path().join("limits");
        replace(file, &numbered(0)).unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = |first: i64| {
                let numbers = (first..first + 150).step_by(3);
                scope.spawn(|| numbers.map(|number| replace(file, &numbered(number))).collect())
            };
            let writers = [0, 1, 2].map(writer);
            let reader = scope.spawn(|| {
                let mut reads = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let found = read(file, "/app/limits").unwrap().expect("it is always there");
                    assert_eq!(found, numbered(found.revision.mzxid.0));
                    reads += 1;
                }
                reads
            });
            let written: Vec<Result<Vec<()>, _>> =
                writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
            assert!(written.iter().all(Result::is_ok), "{written:?}");
        });
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn it_comes_back_as_it_was_written() {
        for data in [&b""[..], b"[1, 2]", b"\n\n", b"\xff\x00"] {
            let kept = kept(7, data);
            assert_eq!(parsed(written(&kept)), Ok(kept));
        }
        let good = kept(0x1_0000_0007, &b"{\"a\":1}"[..]);
        assert_eq!((parsed(GOOD), &written(&good)[..]), (Ok(good.clone()), GOOD.as_bytes()));
    }

    /// At each length, and with each bit changed.
    #[test]
    fn damage_is_found() {
        for end in 0..GOOD.len() {
            assert!(parsed(&GOOD[..end]).is_err(), "cut off at {end}");
        }
        for bit in 0..GOOD.len() * 8 {
            let mut changed = GOOD.as_bytes().to_owned();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(parsed(changed).is_err(), "bit {bit}");
        }
        assert!(matches!(parsed(GOOD.repeat(2)), Err(LastGoodError::Damaged { .. })));
    }

    /// Whatever follows the number.
    #[test]
    fn a_later_form_is_known() {
        let found = ["2,\"path\":\"/app/limits\",\"zone\":1}\n", "10}", "2, \"x\"", "0}\n"]
            .map(|rest| parsed([MAGIC, rest.as_bytes()].concat()).unwrap_err());
        let (earlier, later) = found.split_last().unwrap();
        assert!(
            later.iter().all(|error| matches!(error, LastGoodError::Later { .. })),
            "{later:?}"
        );
        assert!(matches!(earlier, LastGoodError::Damaged { .. }), "{earlier:?}");
    }

    #[test]
    fn what_is_something_else_is_known() {
        for foreign in ["root:x:0:0", "{}", "{\"lockkeeper_publication\":1}\n"] {
            let error = parsed(foreign).unwrap_err();
            assert!(matches!(error, LastGoodError::Foreign { .. }), "{foreign:?}: {error}");
        }
    }
}
