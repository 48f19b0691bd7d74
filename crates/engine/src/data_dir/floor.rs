//! The floor: a file next to a data directory that outlives the directory.
//!
//! A directory that is replaced or removed loses what its engine has granted, and an engine that keeps everything in
//! memory loses it at each end. So the file `<directory>.floor` keeps two values: an upper bound of the transactions
//! made at that place, and the longest session timeout granted there. It is written before the engine sends anything
//! that exceeds these values. It is next to the directory, not in it, so that it exists when the directory does not;
//! and it is not in a user's home, because a restore and the engine may run as different users.
//!
//! It has two lines of the same length, which are written in turn. Each contains everything twice, so that a partly
//! written line is not taken for a complete one; the other line is complete then.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper_wire::Zxid;

use crate::files::{Access, Directory, real_way};
use crate::storage::{IoResultExt, LockedFile, StorageError, make_directory};

/// The length of a line, including its end.
const LINE: usize = 160;

/// How much of the file is read, in bytes: more than its two lines.
const LONGEST: u64 = 4096;

/// How many transactions an engine in memory may make before it writes again.
const AHEAD: i64 = 1 << 20;

/// The content of a floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FloorRecord {
    /// No transaction had a higher number.
    pub(crate) zxid: Zxid,
    /// No session that may be alive had a longer timeout.
    pub(crate) longest_timeout: Duration,
}

/// The floor of one directory; this process owns it until the value is dropped.
#[derive(Debug)]
pub(crate) struct Floor {
    path: PathBuf,
    /// The directory that contains the file.
    above: Directory,
    file: LockedFile,
    record: Option<FloorRecord>,
    writes: u64,
    /// After an error the content of the disk is unknown.
    failed: bool,
}

impl Floor {
    /// Claims the floor of a directory; the file is created if it is missing.
    pub(crate) fn claim(directory: &Path) -> Result<Self, StorageError> {
        let found = Self::find(directory, Access::Create)?;
        found.ok_or_else(|| StorageError::io(directory, ErrorKind::NotFound.into()))
    }

    /// Like [`Floor::claim`]; `None` if the file is missing.
    pub(crate) fn claim_existing(directory: &Path) -> Result<Option<Self>, StorageError> {
        Self::find(directory, Access::Write)
    }

    fn find(directory: &Path, access: Access) -> Result<Option<Self>, StorageError> {
        let (parent, name) = place_of(directory)?;
        let path = parent.join(&name);
        let above = match access {
            Access::Create => Some(make_directory(&parent)?),
            _ => Directory::open(&parent).at(&parent)?,
        };
        let Some(above) = above else { return Ok(None) };
        let Some(file) = above.open_file(&name, access).if_exists().at(&path)? else {
            return Ok(None);
        };
        Self::lock(directory, path, above, file).map(Some)
    }

    fn lock(
        directory: &Path,
        path: PathBuf,
        above: Directory,
        file: File,
    ) -> Result<Self, StorageError> {
        let file = LockedFile::lock(file, &path, directory, File::try_lock)?;
        let mut text = Vec::new();
        (&*file).take(LONGEST).read_to_end(&mut text).at(&path)?;
        let newest = text.chunks(LINE).filter_map(parse).max_by_key(|(writes, _)| *writes);
        if newest.is_none() && text.len() >= LINE {
            return Err(StorageError::damaged(&path, "it contains no readable line"));
        }

        let writes = newest.map_or(0, |(writes, _)| writes);
        let record = newest.map(|(_, record)| record);
        Ok(Self { path, above, file, record, writes, failed: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its content; `None` if it was never written.
    pub(crate) fn record(&self) -> Option<FloorRecord> {
        self.record
    }

    /// Makes sure that it covers these values, and writes it if necessary. Returns how long the write took. No session
    /// gets a longer timeout than `max_timeout`, so the value is not rounded up beyond that.
    ///
    /// # Errors
    /// After an error, always: what it does not cover must not leave the engine.
    pub(crate) fn cover(
        &mut self,
        zxid: Zxid,
        longest_timeout: Duration,
        max_timeout: Duration,
    ) -> Result<Duration, StorageError> {
        let covered = self
            .record
            .is_some_and(|record| zxid <= record.zxid && longest_timeout <= record.longest_timeout);
        if covered && !self.failed {
            return Ok(Duration::ZERO);
        }
        let old = self.record.unwrap_or_default();
        let zxid = if zxid <= old.zxid { old.zxid } else { ahead_of(zxid) };
        let longest_timeout = match longest_timeout <= old.longest_timeout {
            true => old.longest_timeout,
            false => rounded_up(longest_timeout).min(max_timeout.max(longest_timeout)),
        };

        let began = Instant::now();
        self.write(FloorRecord { zxid, longest_timeout })?;
        Ok(began.elapsed())
    }

    /// Writes the state at an orderly end: the last transaction, and the longest timeout of the remaining sessions.
    pub(crate) fn rest(&mut self, record: FloorRecord) -> Result<(), StorageError> {
        if self.record == Some(record) {
            return Ok(());
        }
        self.write(record)
    }

    fn write(&mut self, record: FloorRecord) -> Result<(), StorageError> {
        if self.failed {
            return Err(StorageError::Stopped { path: self.path.clone() });
        }
        self.failed = true;
        let at = (self.writes % 2) * LINE as u64;
        self.writes += 1;

        let written = self.file.write_all_at(line(self.writes, record).as_bytes(), at);
        // The first time, the name of the file must become durable too.
        let named = |()| if self.record.is_none() { self.above.sync() } else { Ok(()) };
        written.and_then(|()| self.file.sync_all()).and_then(named).at(&self.path)?;

        self.record = Some(record);
        self.failed = false;
        Ok(())
    }
}

/// Rounds up, so that clients that request longer and longer timeouts cost a sync for each quarter of the timeout at
/// most. An engine that follows a killed one waits this much longer.
fn rounded_up(timeout: Duration) -> Duration {
    let ms = u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let step = (1 << ms.max(1).ilog2()) / 4;
    let rounded = ms.checked_next_multiple_of(step.max(1)).unwrap_or(ms);
    Duration::from_millis(rounded)
}

/// A number further ahead, but within the epoch: a floor with a higher epoch shows that the directory is older.
fn ahead_of(zxid: Zxid) -> Zxid {
    let epoch_end = zxid.0 | i64::from(u32::MAX);
    Zxid(zxid.0.saturating_add(AHEAD).min(epoch_end))
}

/// The location of a directory's floor, next to the directory without links, and its name.
fn place_of(directory: &Path) -> Result<(PathBuf, OsString), StorageError> {
    let real = real_path(directory)?;
    let path = real.with_added_extension("floor");
    match (real.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent.to_owned(), name.to_owned())),
        _ => Err(StorageError::NotADirectory { path: directory.to_path_buf() }),
    }
}

/// The directory without links and dots, whether it exists or not.
///
/// # Errors
/// A part of its path belongs to another user, who could redirect it.
pub(crate) fn real_path(directory: &Path) -> Result<PathBuf, StorageError> {
    let full = std::path::absolute(directory).at(directory)?;
    if let Some(real) = real_way(&full).at(directory)? {
        return Ok(real);
    }
    let real = match (full.parent().map(real_way), full.file_name()) {
        (Some(parent), Some(name)) => parent.at(directory)?.map(|parent| parent.join(name)),
        _ => None,
    };
    Ok(real.unwrap_or(full))
}

const MARK: &str = "lockkeeper-floor 1:";

fn line(writes: u64, record: FloorRecord) -> String {
    let longest_ms = record.longest_timeout.as_millis();
    let text = format!("{writes} {} {longest_ms}", record.zxid.0);
    format!("{:<width$}\n", format!("{MARK} {text}; {text}"), width = LINE - 1)
}

/// Parses a completely written line: the number of earlier lines, and its content.
fn parse(line: &[u8]) -> Option<(u64, FloorRecord)> {
    let text = std::str::from_utf8(line).ok().filter(|_| line.len() == LINE)?;
    let twice = text.strip_suffix('\n')?.strip_prefix(MARK)?.split_once(';')?;
    let text = Some(twice.0.trim()).filter(|text| *text == twice.1.trim())?;
    let mut words = text.split(' ');
    let writes = words.next()?.parse().ok()?;
    let zxid = words.next()?.parse().ok().filter(|zxid| *zxid >= 0)?;
    let longest_timeout = Duration::from_millis(words.next()?.parse().ok()?);
    Some((writes, FloorRecord { zxid: Zxid(zxid), longest_timeout }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LONG: Duration = Duration::from_secs(40);

    fn found(directory: &Path) -> Option<FloorRecord> {
        Floor::claim(directory).unwrap().record()
    }

    #[test]
    fn it_outlives_its_directory_and_covers_more_than_was_asked() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("data");
        assert!(Floor::claim_existing(&directory).unwrap().is_none());
        fs::create_dir(&directory).unwrap();
        let mut floor = Floor::claim(&directory).unwrap();
        assert_eq!(floor.record(), None);
        floor.cover(Zxid(5), LONG, LONG).unwrap();
        let covered = floor.record().unwrap();
        assert_eq!(covered, FloorRecord { zxid: Zxid(5 + AHEAD), longest_timeout: LONG });
        floor.cover(Zxid(6), Duration::ZERO, LONG).unwrap();
        assert_eq!(floor.writes, 1, "it was already covered");
        drop(floor);
        fs::remove_dir(&directory).unwrap();
        assert_eq!(found(&directory), Some(covered));
    }

    #[test]
    fn it_decreases_only_at_an_orderly_end() {
        let home = tempfile::tempdir().unwrap();
        let mut floor = Floor::claim(&home.path().join("data")).unwrap();
        floor.cover(Zxid(5), LONG, LONG).unwrap();
        floor.cover(Zxid(3), LONG * 2, LONG).unwrap();
        let record = FloorRecord { zxid: Zxid(5 + AHEAD), longest_timeout: LONG * 2 };
        assert_eq!(floor.record(), Some(record));
        let record = FloorRecord { zxid: Zxid(7), longest_timeout: Duration::ZERO };
        floor.rest(record).unwrap();
        drop(floor);
        assert_eq!(found(&home.path().join("data")), Some(record));
    }

    /// Symptom: each millisecond that a client requested beyond the longest timeout cost a sync on the tree thread: 302
    /// for 300 handshakes. Seen to fail without `rounded_up`.
    #[test]
    fn e38_timeouts_that_grow_little_by_little_are_written_seldom() {
        let home = tempfile::tempdir().unwrap();
        let mut floor = Floor::claim(&home.path().join("data")).unwrap();
        for ms in 4_000..=40_000 {
            let timeout = Duration::from_millis(ms);
            floor.cover(Zxid(5), timeout, LONG).unwrap();
            let covered = floor.record().unwrap().longest_timeout;
            assert!(
                (timeout..=LONG.min(timeout * 5 / 4)).contains(&covered),
                "{timeout:?}: {covered:?}"
            );
        }
        assert!(floor.writes <= 16, "{} writes for a tenfold timeout", floor.writes);

        for timeout in [Duration::from_nanos(1), LONG, Duration::MAX] {
            let covered = rounded_up(timeout);
            assert!(covered >= timeout.min(Duration::from_millis(u64::MAX)), "{timeout:?}");
        }
    }

    #[test]
    fn it_stays_within_the_epoch() {
        let end = Zxid(u32::MAX.into());
        assert_eq!(ahead_of(Zxid(end.0 - 5)), end);
        assert_eq!(ahead_of(Zxid::start_of(1)), Zxid(Zxid::start_of(1).0 + AHEAD));
    }

    #[test]
    fn links_and_dots_lead_to_the_same_one() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("data");
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink(&directory, home.path().join("link")).unwrap();
        let expected = home.path().canonicalize().unwrap().join("data.floor");
        for way in ["data", "data/", "link", "./data", "data/../data"] {
            let (parent, name) = place_of(&home.path().join(way)).unwrap();
            assert_eq!(parent.join(name), expected, "{way}");
        }
        assert!(place_of(Path::new("/")).is_err());
    }

    #[test]
    fn one_process_has_it_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let floor = Floor::claim(&home.path().join("data")).unwrap();
        let error = Floor::claim(&home.path().join("data")).unwrap_err();
        assert!(matches!(error, StorageError::InUse { .. }), "{error}");
        drop(floor);
        Floor::claim(&home.path().join("data")).unwrap();
    }

    /// A write that was cut short at any point keeps the previous one.
    #[test]
    fn a_write_that_was_cut_short_does_no_harm() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("data");
        for writes in 0..5 {
            let before = found(&directory);
            let (parent, name) = place_of(&directory).unwrap();
            let path = parent.join(name);
            let old = fs::read(&path).unwrap();
            let mut floor = Floor::claim(&directory).unwrap();
            floor.rest(FloorRecord { zxid: Zxid(writes), longest_timeout: LONG }).unwrap();
            let after = floor.record();
            drop(floor);
            let new = fs::read(&path).unwrap();
            let start = (writes as usize % 2) * LINE;
            for cut in start..start + LINE {
                let mut torn = old.clone();
                torn.resize(torn.len().max(cut), 0);
                torn[start..cut].copy_from_slice(&new[start..cut]);
                fs::write(&path, &torn).unwrap();
                // The missing part may equal what was there before.
                let expected = if torn == new { after } else { before };
                assert_eq!(found(&directory), expected, "write {writes} cut at {cut}");
            }
            fs::write(&path, &new).unwrap();
            assert_eq!(found(&directory), after);
        }
    }

    #[test]
    fn a_file_that_is_not_a_floor_is_refused() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("data.floor"), [b'x'; 200]).unwrap();
        let error = Floor::claim(&home.path().join("data")).unwrap_err().to_string();
        assert!(error.contains("data.floor is damaged"), "{error}");
    }
}
