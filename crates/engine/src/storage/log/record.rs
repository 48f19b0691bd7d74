//! One commit in a log: its position in the history, and its changes.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | generation of the log, little-endian, like all numbers here |
//! | 8 | sequence number of the commit, one more than that of the previous commit |
//! | any | the changes, in the format of a [`Batch`] |
//! | 1 | [`END`] |
//!
//! The library below adds a length and a checksum.

use bytes::Buf;
use lockkeeper_tree::Change;

use crate::storage::batch::{Batch, HEADER, take_change};

/// Ends a commit. It is not zero, because zeros at the end of a log file count as its unused part.
const END: u8 = 0xff;

/// The position of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CommitPosition {
    pub(crate) generation: u64,
    pub(crate) sequence: u64,
}

/// Calls `show` with a commit in the format of a log.
pub(crate) fn encode<T>(
    place: CommitPosition,
    batch: &mut Batch,
    show: impl FnOnce(&[u8]) -> T,
) -> T {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&place.generation.to_le_bytes());
    header[8..].copy_from_slice(&place.sequence.to_le_bytes());
    batch.between(header, END, show)
}

/// The generation that a commit contains.
pub(super) fn generation(mut record: &[u8]) -> Option<u64> {
    record.try_get_u64_le().ok()
}

/// Reads a commit and passes its changes to `each`; `None` if it is invalid.
pub(super) fn decode<'a>(
    mut record: &'a [u8],
    mut each: impl FnMut(Change<'a>),
) -> Option<CommitPosition> {
    let generation = record.try_get_u64_le().ok()?;
    let sequence = record.try_get_u64_le().ok()?;
    while *record.first()? != END {
        each(take_change(&mut record)?);
    }
    (record.len() == 1).then_some(CommitPosition { generation, sequence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_tree::Table;

    fn sample() -> (CommitPosition, Batch, Vec<u8>) {
        let place = CommitPosition { generation: 3, sequence: 17 };
        let mut batch = Batch::default();
        batch.put(Table::Meta, "zxid", "12");
        batch.put_new(Table::Nodes, "/a", "");
        batch.delete(Table::Nodes, "/b");
        let record = encode(place, &mut batch, <[u8]>::to_vec);
        (place, batch, record)
    }

    #[test]
    fn a_commit_comes_back_as_it_was() {
        let (place, batch, record) = sample();
        let mut found = Batch::default();
        let add = |change: Change<'_>| {
            let Change { table, key, value, is_new } = change;
            match value {
                Some(value) if is_new => found.put_new(table, key, value),
                Some(value) => found.put(table, key, value),
                None => found.delete(table, key),
            }
        };
        assert_eq!(decode(&record, add), Some(place));
        assert_eq!(found.encoded(), batch.encoded());
    }

    #[test]
    fn no_part_of_a_commit_is_a_commit() {
        let (_, _, record) = sample();
        for length in 0..record.len() {
            assert_eq!(decode(&record[..length], |_| {}), None, "{length} bytes");
        }
        let longer = [&record[..], &[0]].concat();
        assert_eq!(decode(&longer, |_| {}), None);
    }
}
