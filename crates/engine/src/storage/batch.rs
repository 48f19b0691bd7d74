//! The changes of one group commit.

use std::collections::HashMap;

use bytes::{Buf, BufMut};
use foldhash::quality::RandomState;
use lockkeeper_tree::{Change, Changes, Table};

/// The kinds of record, each with a key space of its own: at the index of its number, and in the order in which
/// recovery loads them.
pub(super) const TABLES: [Table; 3] = [Table::Meta, Table::Sessions, Table::Nodes];

/// The number of a table in the logs: part of the format.
fn number(table: Table) -> u8 {
    match table {
        Table::Meta => 0,
        Table::Sessions => 1,
        Table::Nodes => 2,
    }
}

/// The name of a table in the database file: part of the format.
pub(super) fn name(table: Table) -> &'static str {
    match table {
        Table::Meta => "meta",
        Table::Sessions => "sessions",
        Table::Nodes => "nodes",
    }
}

/// Added to the table's number: the record is new.
const NEW: u8 = 0x10;

/// In place of a value's length: the record is removed.
const REMOVED: u32 = u32::MAX;

/// The space for changes that is always kept, in bytes.
const KEPT_CAPACITY: usize = 256 * 1024;

/// The bytes that a log needs before the changes.
pub(super) const HEADER: usize = 16;

/// Puts and deletes that take effect together or not at all, in order.
///
/// Values are opaque here. The changes are held in the format of a log, after space for its [`HEADER`]. For each:
///
/// | bytes | contents |
/// |---|---|
/// | 1 | number of the table, plus [`NEW`] if the record is new |
/// | 4, little-endian, then that many | key |
/// | 4, little-endian, then that many | value; the length [`REMOVED`] means a removal |
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Initially without the header.
    encoded: Vec<u8>,
}

impl Batch {
    /// Adds the tree's changes.
    pub(crate) fn add_all(&mut self, changes: &Changes) {
        changes.iter().for_each(|change| self.add(change));
    }

    /// Sets the record under `key`, whether it is new or not.
    pub(super) fn put(&mut self, table: Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), Some(value.as_ref()));
        self.add(Change { table, key, value, is_new: false });
    }

    /// Keys and values come from frames, whose length fits into 31 bits.
    pub(super) fn add(&mut self, Change { table, key, value, is_new }: Change<'_>) {
        let is_new = is_new && value.is_some();
        let out = self.with_header();
        out.put_u8(number(table) | if is_new { NEW } else { 0 });
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
        self.encoded().is_empty()
    }

    /// Removes all changes, and frees the memory of an exceptionally large number.
    pub(crate) fn clear(&mut self) {
        self.encoded.clear();
        self.encoded.shrink_to(KEPT_CAPACITY);
    }

    /// The changes in order, in the format of a log.
    pub(super) fn encoded(&self) -> &[u8] {
        self.encoded.get(HEADER..).unwrap_or_default()
    }

    /// Calls `show` with the changes between a header and a trailer, without copying them.
    pub(super) fn between<T>(
        &mut self,
        header: [u8; HEADER],
        end: u8,
        show: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let encoded = self.with_header();
        encoded[..HEADER].copy_from_slice(&header);
        encoded.push(end);
        let shown = show(encoded);
        encoded.pop();
        shown
    }

    fn with_header(&mut self) -> &mut Vec<u8> {
        if self.encoded.is_empty() {
            self.encoded.put_bytes(0, HEADER);
        }
        &mut self.encoded
    }
}

#[cfg(test)]
impl Batch {
    /// Adds a record under `key`, which does not exist yet.
    pub(crate) fn put_new(&mut self, table: Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), Some(value.as_ref()));
        self.add(Change { table, key, value, is_new: true });
    }

    /// Removes the record under `key`, if it exists.
    pub(crate) fn delete(&mut self, table: Table, key: impl AsRef<[u8]>) {
        self.add(Change { table, key: key.as_ref(), value: None, is_new: false });
    }

    /// How many bytes fit into the allocated memory.
    pub(crate) fn room(&self) -> usize {
        self.encoded.capacity()
    }
}

/// Takes a change from the front of a log's bytes; `None` if they are invalid.
pub(super) fn take_change<'a>(input: &mut &'a [u8]) -> Option<Change<'a>> {
    let flagged = input.try_get_u8().ok()?;
    let table = *TABLES.get(usize::from(flagged & !NEW))?;
    let length = input.try_get_u32_le().ok()?;
    let key = take(input, length)?;
    let value = match input.try_get_u32_le().ok()? {
        REMOVED => None,
        length => Some(take(input, length)?),
    };
    Some(Change { table, key, value, is_new: flagged & NEW != 0 })
}

fn take<'a>(input: &mut &'a [u8], length: u32) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(length as usize)?;
    *input = rest;
    Some(taken)
}

/// The combined effect of many commits: the last change of each record counts, so the parent that a thousand creates
/// modify is included once, and a record that was created and removed is not included.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    tables: [HashMap<Box<[u8]>, Last, RandomState>; TABLES.len()],
    bytes: usize,
}

/// The last change of a record.
#[derive(Debug)]
struct Last {
    value: Option<Vec<u8>>,
    /// Whether the record did not exist before the outcome's first commit.
    is_new: bool,
}

/// A key, and its new value or `None` for its removal.
type BatchRow<'a> = (&'a [u8], Option<&'a [u8]>);

impl Last {
    fn removal() -> Self {
        Self { value: None, is_new: false }
    }

    /// Replaces the value, and reuses its memory unless it had far more than needed.
    fn set(&mut self, value: &[u8]) {
        match &mut self.value {
            Some(kept) if kept.capacity() <= 2 * value.len() + 64 => {
                kept.clear();
                kept.extend_from_slice(value);
            }
            _ => self.value = Some(value.to_vec()),
        }
    }

    /// The approximate memory of it and its key, in bytes.
    fn bytes(&self, key: &[u8]) -> usize {
        size_of::<(Box<[u8]>, Self)>() + key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

impl Outcome {
    /// Adds a change. A record that is created, or created and removed, is looked up once.
    pub(super) fn add(&mut self, change: Change<'_>) {
        let Change { table, key, value, is_new } = change;
        match value {
            Some(value) if is_new => {
                self.insert(table, key, Last { value: Some(value.into()), is_new })
            }
            Some(value) => self.update(table, key, value),
            None => self.remove(table, key),
        }
    }

    /// Adds another value of an existing record.
    fn update(&mut self, table: Table, key: &[u8], value: &[u8]) {
        let records = &mut self.tables[usize::from(number(table))];
        let Some(last) = records.get_mut(key) else {
            let last = Last { value: Some(value.into()), is_new: false };
            return self.insert(table, key, last);
        };

        self.bytes -= last.bytes(key);
        last.set(value);
        self.bytes += last.bytes(key);
    }

    /// Adds the removal of a record. A record that is new in the outcome disappears from it.
    fn remove(&mut self, table: Table, key: &[u8]) {
        let records = &mut self.tables[usize::from(number(table))];
        let Some((key, last)) = records.remove_entry(key) else {
            return self.insert(table, key, Last::removal());
        };

        self.bytes -= last.bytes(&key);
        if !last.is_new {
            self.bytes += Last::removal().bytes(&key);
            records.insert(key, Last::removal());
        }
    }

    /// Adds a record that is not in the outcome, or is removed in it.
    fn insert(&mut self, table: Table, key: &[u8], last: Last) {
        let records = &mut self.tables[usize::from(number(table))];
        self.bytes += last.bytes(key);
        // It existed before the outcome's first commit: it may have to be removed again.
        if let Some(before) = records.insert(key.into(), last) {
            self.bytes -= before.bytes(key);
            if let Some(last) = records.get_mut(key) {
                last.is_new = before.is_new;
            }
        }
    }

    /// The approximate memory of the outcome, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The tables that change, with their changes in key order.
    pub(super) fn sorted(&self) -> impl Iterator<Item = (Table, Vec<BatchRow<'_>>)> {
        TABLES.into_iter().zip(&self.tables).filter(|(_, changes)| !changes.is_empty()).map(
            |(table, changes)| {
                let changes = changes.iter().map(|(key, last)| (&**key, last.value.as_deref()));
                let mut sorted: Vec<_> = changes.collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                (table, sorted)
            },
        )
    }

    /// Takes the change of a record: the new value, or an inner `None` for its removal.
    pub(super) fn take(&mut self, table: Table, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let last = self.tables[usize::from(number(table))].remove(key)?;
        self.bytes -= last.bytes(key);
        Some(last.value)
    }

    /// The values that are set as one batch, and their number.
    pub(super) fn into_puts(self) -> (Batch, u64) {
        let (mut batch, mut count) = (Batch::default(), 0);
        for (table, changes) in TABLES.into_iter().zip(&self.tables) {
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
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    /// The remaining changes of commits: `=` for a value, `-` for a removal.
    fn outcome(batches: &[Batch]) -> Vec<String> {
        let mut outcome = Outcome::default();
        for batch in batches {
            let mut rest = batch.encoded();
            while let Some(change) = take_change(&mut rest) {
                outcome.add(change);
            }
        }
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

    /// Applies an outcome to existing records.
    fn write(outcome: &Outcome, records: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        for (key, value) in outcome.sorted().flat_map(|(_, changes)| changes) {
            match value {
                Some(value) => drop(records.insert(key.to_vec(), value.to_vec())),
                None => drop(records.remove(key)),
            }
        }
    }

    proptest! {
        /// A checkpoint writes an outcome when it has become large, and continues with an empty one: a later outcome
        /// may delete a record that an earlier one puts.
        #[test]
        fn portions_end_in_the_state_that_the_changes_end_in(
            before in btree_map("[a-c]", "[0-9]{0,3}", 0..3),
            changes in vec(("[a-c]", option::of("[0-9]{0,200}"), any::<bool>()), 0..40),
        ) {
            let before = before.into_iter().map(|(key, value)| (key.into_bytes(), value.into_bytes()));
            let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = before.collect();
            let (mut written, mut outcome) = (expected.clone(), Outcome::default());
            for (key, value, ends_a_portion) in changes {
                let (key, value) = (key.into_bytes(), value.map(String::into_bytes));
                let (table, is_new) = (Table::Nodes, value.is_some() && !expected.contains_key(&key));
                outcome.add(Change { table, key: &key, value: value.as_deref(), is_new });
                match value {
                    Some(value) => expected.insert(key, value),
                    None => expected.remove(&key),
                };
                let left = outcome.tables.iter().flatten();
                prop_assert_eq!(outcome.bytes(), left.map(|(key, last)| last.bytes(key)).sum::<usize>());
                if ends_a_portion {
                    write(&std::mem::take(&mut outcome), &mut written);
                }
            }
            write(&outcome, &mut written);
            prop_assert_eq!(written, expected);
        }
    }

    #[test]
    fn what_a_log_puts_around_it_leaves_a_batch_as_it_was() {
        let mut batch = batch(|batch| batch.put(Table::Nodes, "a", "1"));
        let around = |batch: &mut Batch, header| batch.between([header; HEADER], 9, <[u8]>::to_vec);
        for header in [7, 8] {
            let before = batch.encoded().to_vec();
            let expected = [&[header; HEADER], &before[..], &[9]].concat();
            assert_eq!(around(&mut batch, header), expected);
            assert_eq!(batch.encoded(), before);
            batch.delete(Table::Nodes, "b");
        }
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(around(&mut batch, 7), [&[7; HEADER][..], &[9]].concat());
        assert!(batch.is_empty());
    }

    #[test]
    fn an_exceptional_commit_does_not_keep_its_memory() {
        let mut batch = batch(|batch| batch.put(Table::Nodes, "k", vec![0; 4 * KEPT_CAPACITY]));
        batch.clear();
        assert!(batch.encoded.capacity() <= KEPT_CAPACITY);
    }
}
