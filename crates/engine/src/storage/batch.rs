//! What one group commit changes.

use std::collections::HashMap;

use bytes::{Buf, BufMut};
use foldhash::quality::RandomState;

/// The kinds of record, each with a key space of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    /// The engine's own counters, such as the last zxid.
    Meta,
    /// Live sessions.
    Sessions,
    /// The nodes of the tree.
    Nodes,
}

impl Table {
    /// Every table, in the order in which recovery hands them over.
    pub(crate) const ALL: [Table; 3] = [Table::Meta, Table::Sessions, Table::Nodes];

    /// The name in the database file: part of the format.
    pub(super) fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Sessions => "sessions",
            Table::Nodes => "nodes",
        }
    }
}

/// What happens to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change<'a> {
    pub(super) table: Table,
    pub(super) key: &'a [u8],
    /// The new value, or `None` to delete it.
    pub(super) value: Option<&'a [u8]>,
    /// Whether there was no such record before.
    pub(super) is_new: bool,
}

/// Beside the table's number: there was no such record before.
const NEW: u8 = 0x10;

const _: () = {
    let mut at = 0;
    while at < Table::ALL.len() {
        assert!((Table::ALL[at] as u8) < NEW, "the number of a table leaves room for the flag");
        at += 1;
    }
};

/// In the place of a value's length: the record is removed.
const REMOVED: u32 = u32::MAX;

/// How many bytes of changes there is room for at any time.
pub(super) const ROOM: usize = 256 * 1024;

/// Puts and deletes that take effect as a whole or not at all, one after the other.
///
/// Values are opaque here. The changes are held in the form in which a log holds them. For each:
///
/// | bytes | contents |
/// |---|---|
/// | 1 | number of the table, and [`NEW`] if there was no such record before |
/// | 4, little-endian, then that many | key |
/// | 4, little-endian, then that many | value; the length [`REMOVED`] stands for a removal |
#[derive(Debug, Default)]
pub(crate) struct Batch {
    encoded: Vec<u8>,
}

impl Batch {
    /// Sets the record under `key`, new or not.
    pub(crate) fn put(&mut self, table: Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.add(table as u8, key.as_ref(), Some(value.as_ref()));
    }

    /// Adds a record under `key`, where there is none.
    pub(crate) fn put_new(&mut self, table: Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.add(table as u8 | NEW, key.as_ref(), Some(value.as_ref()));
    }

    /// Removes the record under `key`, if there is one.
    pub(crate) fn delete(&mut self, table: Table, key: impl AsRef<[u8]>) {
        self.add(table as u8, key.as_ref(), None);
    }

    /// Keys and values come from frames, whose length fits into 31 bits.
    fn add(&mut self, table: u8, key: &[u8], value: Option<&[u8]>) {
        let out = &mut self.encoded;
        out.put_u8(table);
        out.put_u32_le(key.len() as u32);
        out.put_slice(key);
        match value {
            Some(value) => {
                out.put_u32_le(value.len() as u32);
                out.put_slice(value);
            }
            None => out.put_u32_le(REMOVED),
        }
    }

    /// Whether a commit would change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// Forgets all changes, and gives the memory of an exceptional number of them back.
    pub(crate) fn clear(&mut self) {
        self.encoded.clear();
        self.encoded.shrink_to(ROOM);
    }

    /// What happens, in order, as a log holds it.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.encoded
    }
}

/// Takes a change off the front of what a log holds; `None` if it makes no sense.
pub(super) fn take_change<'a>(input: &mut &'a [u8]) -> Option<Change<'a>> {
    let number = input.try_get_u8().ok()?;
    let table = *Table::ALL.iter().find(|table| **table as u8 == number & !NEW)?;
    let length = input.try_get_u32_le().ok()?;
    let key = take(input, length)?;
    let value = match input.try_get_u32_le().ok()? {
        REMOVED => None,
        length => Some(take(input, length)?),
    };
    Some(Change { table, key, value, is_new: number & NEW != 0 })
}

fn take<'a>(input: &mut &'a [u8], length: u32) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(length as usize)?;
    *input = rest;
    Some(taken)
}

/// The outcome of many commits: the last change of each record wins, so the parent that a thousand
/// creates touch is there once, and a record that came and went is not there at all.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    tables: [HashMap<Box<[u8]>, Last, RandomState>; Table::ALL.len()],
    /// Lengths of all keys and values.
    bytes: usize,
}

/// What happened last to a record.
#[derive(Debug)]
struct Last {
    value: Option<Vec<u8>>,
    /// Whether there was no such record before all that is in the outcome.
    is_new: bool,
}

/// A key, and its new value or `None` for its removal.
type Record<'a> = (&'a [u8], Option<&'a [u8]>);

impl Last {
    fn len(&self) -> usize {
        self.value.as_ref().map_or(0, Vec::len)
    }
}

impl Outcome {
    /// Adds a change. A record that comes, or that came and goes, is looked up once.
    pub(super) fn add(&mut self, change: Change<'_>) {
        let Change { table, key, value, is_new } = change;
        let records = &mut self.tables[table as usize];
        let Some(value) = value else {
            return match records.remove_entry(key) {
                Some((key, last)) if last.is_new => self.bytes -= key.len() + last.len(),
                Some((key, last)) => {
                    self.bytes -= last.len();
                    records.insert(key, Last { value: None, is_new: false });
                }
                None => self.insert(table, key, Last { value: None, is_new: false }),
            };
        };
        if !is_new && let Some(last) = records.get_mut(key) {
            self.bytes = self.bytes - last.len() + value.len();
            let kept = last.value.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(value);
        } else {
            self.insert(table, key, Last { value: Some(value.to_vec()), is_new });
        }
    }

    fn insert(&mut self, table: Table, key: &[u8], last: Last) {
        let records = &mut self.tables[table as usize];
        self.bytes += key.len() + last.len();
        // It was there and was removed: whatever comes in its place, it may have to be removed again.
        if let Some(before) = records.insert(key.into(), last) {
            self.bytes -= key.len() + before.len();
            if let Some(last) = records.get_mut(key) {
                last.is_new = before.is_new;
            }
        }
    }

    /// Lengths of all keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The tables that change, with their changes in the order of the keys.
    pub(super) fn sorted(&self) -> impl Iterator<Item = (Table, Vec<Record<'_>>)> {
        Table::ALL.into_iter().zip(&self.tables).filter(|(_, changes)| !changes.is_empty()).map(
            |(table, changes)| {
                let changes = changes.iter().map(|(key, last)| (&**key, last.value.as_deref()));
                let mut sorted: Vec<_> = changes.collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                (table, sorted)
            },
        )
    }

    /// Takes out what happens to a record: the new value, or `None` inside for its removal.
    pub(super) fn take(&mut self, table: Table, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let last = self.tables[table as usize].remove(key)?;
        self.bytes -= key.len() + last.len();
        Some(last.value)
    }

    /// What is set, as one batch, and how many records that are.
    pub(super) fn into_puts(self) -> (Batch, u64) {
        let (mut batch, mut count) = (Batch::default(), 0);
        for (table, changes) in Table::ALL.into_iter().zip(&self.tables) {
            for (key, last) in changes {
                if let Some(value) = &last.value {
                    batch.put(table, key, value);
                    count += 1;
                }
            }
        }
        (batch, count)
    }
}

impl From<&Batch> for Outcome {
    fn from(batch: &Batch) -> Self {
        let (mut outcome, mut rest) = (Self::default(), batch.encoded());
        while let Some(change) = take_change(&mut rest) {
            outcome.add(change);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of commits: `=` for a value, `-` for a removal.
    fn outcome(batches: &[Batch]) -> Vec<String> {
        let mut outcome = Outcome::default();
        for batch in batches {
            let mut rest = batch.encoded();
            while let Some(change) = take_change(&mut rest) {
                outcome.add(change);
            }
        }
        let left = outcome.tables.iter().flatten();
        let bytes: usize = left.map(|(key, last)| key.len() + last.len()).sum();
        assert_eq!(outcome.bytes(), bytes);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let tables = outcome.sorted().flat_map(|(_, changes)| changes);
        let told = tables.map(|(key, value)| match value {
            Some(value) => format!("{}={}", text(key), text(value)),
            None => format!("{}-", text(key)),
        });
        told.collect()
    }

    fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
        let mut batch = Batch::default();
        fill(&mut batch);
        batch
    }

    #[test]
    fn a_record_that_came_and_went_leaves_nothing() {
        let came = || batch(|batch| batch.put_new(Table::Nodes, "k", "1"));
        let changed = || batch(|batch| batch.put(Table::Nodes, "k", "2"));
        let went = || batch(|batch| batch.delete(Table::Nodes, "k"));
        let nothing: [&str; 0] = [];
        assert_eq!(outcome(&[came(), went()]), nothing);
        assert_eq!(outcome(&[came(), changed(), went()]), nothing);
        assert_eq!(outcome(&[came(), went(), came(), went()]), nothing);
        assert_eq!(outcome(&[came(), went(), came()]), ["k=1"]);
    }

    #[test]
    fn a_record_that_was_there_before_is_removed() {
        let came = || batch(|batch| batch.put_new(Table::Nodes, "k", "1"));
        let changed = || batch(|batch| batch.put(Table::Nodes, "k", "2"));
        let went = || batch(|batch| batch.delete(Table::Nodes, "k"));
        assert_eq!(outcome(&[went()]), ["k-"]);
        assert_eq!(outcome(&[changed(), went()]), ["k-"]);
        assert_eq!(outcome(&[went(), came(), went()]), ["k-"]);
        assert_eq!(outcome(&[changed(), went(), came(), changed(), went()]), ["k-"]);
        assert_eq!(outcome(&[went(), came(), changed()]), ["k=2"]);
    }

    #[test]
    fn an_exceptional_commit_does_not_keep_its_memory() {
        let mut batch = batch(|batch| batch.put(Table::Nodes, "k", vec![0; 4 * ROOM]));
        batch.clear();
        assert!(batch.encoded.capacity() <= ROOM);
    }
}
