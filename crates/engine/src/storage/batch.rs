//! What one group commit changes.

use std::collections::HashMap;

use bytes::Bytes;
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

/// What happens to a record: its new value, or `None` to delete it.
pub(super) type Change = (Table, Bytes, Option<Bytes>);

/// Puts and deletes that take effect as a whole or not at all, one after the other.
///
/// Values are opaque here.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// Sets the record under `key`, new or not.
    pub(crate) fn put(&mut self, table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.changes.push((table, key.into(), Some(value.into())));
    }

    /// Removes the record under `key`, if there is one.
    pub(crate) fn delete(&mut self, table: Table, key: impl Into<Bytes>) {
        self.changes.push((table, key.into(), None));
    }

    /// Whether a commit would change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Forgets all changes.
    pub(crate) fn clear(&mut self) {
        self.changes.clear();
    }

    /// What happens, in order.
    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }
}

/// The outcome of many commits: the last change of each record wins, so the parent that a thousand
/// creates touch is there once.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    tables: [HashMap<Bytes, Option<Bytes>, RandomState>; Table::ALL.len()],
}

impl Outcome {
    pub(super) fn add(&mut self, (table, key, value): Change) {
        self.tables[table as usize].insert(key, value);
    }

    /// The tables that change, with their changes in the order of the keys.
    pub(super) fn sorted(&self) -> impl Iterator<Item = (Table, Vec<(&Bytes, &Option<Bytes>)>)> {
        Table::ALL.into_iter().zip(&self.tables).filter(|(_, changes)| !changes.is_empty()).map(
            |(table, changes)| {
                let mut sorted: Vec<_> = changes.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                (table, sorted)
            },
        )
    }

    /// Takes out what happens to a record: the new value, or `None` inside for its removal.
    pub(super) fn take(&mut self, table: Table, key: &[u8]) -> Option<Option<Bytes>> {
        self.tables[table as usize].remove(key)
    }

    /// What is set, as one batch.
    pub(super) fn into_puts(self) -> Batch {
        let mut batch = Batch::default();
        for (table, changes) in Table::ALL.into_iter().zip(self.tables) {
            let puts = changes.into_iter().filter(|(_, value)| value.is_some());
            batch.changes.extend(puts.map(|(key, value)| (table, key, value)));
        }
        batch
    }
}

impl From<&Batch> for Outcome {
    fn from(batch: &Batch) -> Self {
        let mut outcome = Self::default();
        batch.changes.iter().cloned().for_each(|change| outcome.add(change));
        outcome
    }
}
