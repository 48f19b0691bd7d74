//! What one group commit changes.

use std::collections::BTreeMap;

use bytes::Bytes;

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

/// What a commit does to the records of one table: the new value, or `None` to delete.
pub(super) type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// A set of puts and deletes that takes effect as a whole or not at all.
///
/// The last change of a key wins, so the parent that a thousand creates touch is written once.
/// Values are opaque here.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    tables: [Changes; Table::ALL.len()],
}

impl Batch {
    /// Sets the record under `key`, new or not.
    pub(crate) fn put(&mut self, table: Table, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.tables[table as usize].insert(key.into(), Some(value.into()));
    }

    /// Removes the record under `key`, if there is one.
    pub(crate) fn delete(&mut self, table: Table, key: impl Into<Bytes>) {
        self.tables[table as usize].insert(key.into(), None);
    }

    /// Whether a commit would change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }

    /// Forgets all changes.
    pub(crate) fn clear(&mut self) {
        self.tables.iter_mut().for_each(BTreeMap::clear);
    }

    /// Takes out what happens to a record: the new value, or `None` inside for its removal.
    pub(super) fn take(&mut self, table: Table, key: &[u8]) -> Option<Option<Bytes>> {
        self.tables[table as usize].remove(key)
    }

    /// Forgets the removals; how many puts are left.
    pub(super) fn drop_removals(&mut self) -> u64 {
        for changes in &mut self.tables {
            changes.retain(|_, value| value.is_some());
        }
        self.tables.iter().map(|changes| changes.len() as u64).sum()
    }

    /// The tables that change, with their changes in the order of the keys.
    pub(super) fn changes(&self) -> impl Iterator<Item = (Table, &Changes)> {
        Table::ALL.into_iter().zip(&self.tables).filter(|(_, changes)| !changes.is_empty())
    }
}
