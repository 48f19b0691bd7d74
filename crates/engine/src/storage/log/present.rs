//! Determines which commits in a log file count: those of the file's present generation.
//!
//! A file whose commits are in the database is overwritten from its beginning: nothing is cleared, truncated or
//! renamed. So the commits of the present generation are followed by remains of an earlier one. Each commit contains
//! its generation. These numbers begin at random in each directory, so that a user who may write data cannot make it
//! look like a commit of a future generation.

use std::ops::Range;

use wal_db::{Result, Wal, WalError, WalStore};

use super::record;

/// How many bytes the library puts before a commit.
const FRAME: usize = 8;

/// Why a file is invalid.
#[derive(Debug)]
pub(super) enum Fault {
    Library(WalError),
    /// Damage, described by this text.
    Damage(String),
}

impl From<WalError> for Fault {
    fn from(e: WalError) -> Self {
        Self::Library(e)
    }
}

/// The length of the commits of this generation at the beginning of a file.
///
/// The following bytes may be anything except a complete commit of this generation, or one of a later generation at
/// exactly this place: then something before it is damaged.
pub(super) fn length(bytes: &[u8], generation: u64) -> Result<usize, Fault> {
    let log = Wal::with_store(Bytes(bytes))?;
    let mut end = 0;
    for record in log.iter()? {
        let record = record?;
        match record::generation(record.data()) {
            Some(found) if found == generation => end += FRAME + record.data().len(),
            Some(found) if found > generation => {
                let detail = format!("it belongs to log {found} instead of {generation}");
                return Err(Fault::Damage(detail));
            }
            _ => break,
        }
    }

    match whole_commit(bytes, end..bytes.len(), generation)? {
        None => Ok(end),
        Some(at) => Err(Fault::Damage(format!("a commit before byte {at} cannot be read"))),
    }
}

/// Where in a range a complete commit of this generation begins, if there is one. The length of a commit may be
/// damaged, so the beginning of the next one is unknown: each place with the number of the generation is tried.
fn whole_commit(
    bytes: &[u8],
    range: Range<usize>,
    generation: u64,
) -> Result<Option<usize>, Fault> {
    let number = generation.to_le_bytes();
    let first = range.start + FRAME;
    for (place, found) in bytes[..range.end].windows(number.len()).enumerate().skip(first) {
        if found != number {
            continue;
        }
        let start = place - FRAME;
        let log = Wal::with_store(Bytes(&bytes[start..]))?;
        if log.iter()?.next().transpose()?.is_some() {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// Bytes that are read as a log and not changed.
struct Bytes<'a>(&'a [u8]);

impl WalStore for Bytes<'_> {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(WalError::from(std::io::Error::from(std::io::ErrorKind::ReadOnlyFilesystem)))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..));
        let rest = rest.unwrap_or_default();
        let length = rest.len().min(buf.len());
        buf[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    /// An unreadable end is left out; here it is not truncated.
    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::batch::Batch;
    use crate::storage::log::record::{CommitPosition, encode};
    use lockkeeper_tree::Table;

    const PRESENT: u64 = (1 << 60) + 12_345;

    /// A log with commits of these lengths.
    fn log(generation: u64, lengths: &[usize]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Wal::open(&path).unwrap();
        for (sequence, &length) in (1..).zip(lengths) {
            let mut batch = Batch::default();
            batch.put(Table::Nodes, "/key", vec![b'x'; length]);
            let place = CommitPosition { generation, sequence };
            let _ = encode(place, &mut batch, |record| log.append(record)).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    /// The first commits of one log over the beginning of another.
    fn over(mut old: Vec<u8>, new: &[u8]) -> Vec<u8> {
        old[..new.len()].copy_from_slice(new);
        old
    }

    fn found(bytes: &[u8]) -> Result<usize, String> {
        length(bytes, PRESENT).map_err(|fault| format!("{fault:?}"))
    }

    #[test]
    fn what_an_earlier_generation_has_left_does_not_count() {
        for lengths in [[100, 100, 100], [90, 3, 700]] {
            let (new, old) = (log(PRESENT, &lengths[..2]), log(PRESENT - 2, &[100; 20]));
            assert_eq!(found(&over(old.clone(), &new)), Ok(new.len()));
            assert_eq!(found(&old), Ok(0));
        }
        assert_eq!(found(&[]), Ok(0));
        assert_eq!(found(&[0; 5_000]), Ok(0));
    }

    /// Where one ends in the middle of another, or a write was cut short, no commit is assembled from both.
    #[test]
    fn a_commit_that_was_cut_short_is_left_out_wherever_it_was() {
        let (new, old) = (log(PRESENT, &[50, 60, 100]), log(PRESENT - 2, &[100; 20]));
        let first_two = log(PRESENT, &[50, 60]).len();
        for cut in first_two..new.len() {
            let changed = old[first_two..cut] != new[first_two..cut];
            assert_eq!(found(&over(old.clone(), &new[..cut])), Ok(first_two), "{cut} {changed}");
        }
    }

    /// Lesson S2: a damaged commit that is followed by others is not the end.
    #[test]
    fn a_whole_commit_after_a_damaged_one_is_found() {
        let (new, old) = (log(PRESENT, &[50, 60, 100]), log(PRESENT - 2, &[100; 20]));
        let last = log(PRESENT, &[50, 60]).len();
        for at in 0..last {
            let mut bytes = over(old.clone(), &new);
            bytes[at] ^= 0x10;
            let error = found(&bytes).unwrap_err();
            assert!(error.contains(&format!("before byte {last}")) || at < last / 2, "{error}");
        }
    }

    #[test]
    fn a_later_log_in_the_place_of_this_one_is_damage() {
        let error = found(&log(PRESENT + 2, &[100])).unwrap_err();
        assert!(error.contains("belongs to log"), "{error}");
    }
}
