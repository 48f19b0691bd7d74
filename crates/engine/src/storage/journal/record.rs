//! One commit in a log: its place in the history, and what it changes.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | generation of the log that it was written to, little-endian, as all numbers here |
//! | 8 | sequence number of the commit, one more than its predecessor's |
//! | for each change: 1 | table |
//! | 4, then that many | key |
//! | 4, then that many | value; the length [`REMOVED`] stands for a removal |
//! | 1 | [`END`] |
//!
//! The library below adds length and checksum.

use bytes::{Buf, BufMut, Bytes};

use crate::storage::batch::{Batch, Change, Table};

/// In the place of a value's length: the record is removed.
const REMOVED: u32 = u32::MAX;

/// Ends a commit. It is not zero, as zeros at the end of a log file are taken for its unused part.
const END: u8 = 0xff;

/// Where a commit stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) generation: u64,
    pub(super) sequence: u64,
}

/// Writes a commit into `out`, in the place of what is there.
pub(super) fn encode(place: Place, batch: &Batch, out: &mut Vec<u8>) {
    out.clear();
    out.put_u64_le(place.generation);
    out.put_u64_le(place.sequence);
    for (table, key, value) in batch.changes() {
        out.put_u8(*table as u8);
        put_bytes(out, key);
        match value {
            Some(value) => put_bytes(out, value),
            None => out.put_u32_le(REMOVED),
        }
    }
    out.put_u8(END);
}

/// Keys and values come from frames, whose length fits into 31 bits.
fn put_bytes(out: &mut Vec<u8>, bytes: &Bytes) {
    out.put_u32_le(bytes.len() as u32);
    out.put_slice(bytes);
}

/// Reads a commit and hands its changes to `each`; `None` if it makes no sense.
pub(super) fn decode(mut record: Bytes, mut each: impl FnMut(Change)) -> Option<Place> {
    let generation = record.try_get_u64_le().ok()?;
    let sequence = record.try_get_u64_le().ok()?;
    loop {
        let table = match record.try_get_u8().ok()? {
            END => break,
            number => *Table::ALL.iter().find(|table| **table as u8 == number)?,
        };
        let length = record.try_get_u32_le().ok()?;
        let key = take(&mut record, length)?;
        let value = match record.try_get_u32_le().ok()? {
            REMOVED => None,
            length => Some(take(&mut record, length)?),
        };
        each((table, key, value));
    }
    record.is_empty().then_some(Place { generation, sequence })
}

fn take(record: &mut Bytes, length: u32) -> Option<Bytes> {
    let length = length as usize;
    (length <= record.len()).then(|| record.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Place, Batch, Vec<u8>) {
        let place = Place { generation: 3, sequence: 17 };
        let mut batch = Batch::default();
        batch.put(Table::Meta, "zxid", "12");
        batch.put(Table::Nodes, "/a", "");
        batch.delete(Table::Nodes, "/b");
        let mut record = Vec::new();
        encode(place, &batch, &mut record);
        (place, batch, record)
    }

    #[test]
    fn a_commit_comes_back_as_it_was() {
        let (place, batch, record) = sample();
        let mut found = Vec::new();
        assert_eq!(decode(record.into(), |change| found.push(change)), Some(place));
        assert_eq!(found, batch.changes());
    }

    #[test]
    fn no_part_of_a_commit_is_a_commit() {
        let (_, _, record) = sample();
        for length in 0..record.len() {
            let part = Bytes::copy_from_slice(&record[..length]);
            assert_eq!(decode(part, |_| {}), None, "{length} bytes");
        }
        let longer = [&record[..], &[0]].concat();
        assert_eq!(decode(longer.into(), |_| {}), None);
    }
}
