//! The changes that must become durable, and the stored state from which a server starts.

/// A key space in the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The key is a node's path in UTF-8.
    Nodes,
    /// The key is a session's id, 8 bytes big-endian.
    Sessions,
    /// Single values, such as the last zxid.
    Meta,
}

/// The new state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key space.
    pub table: Table,
    /// The key.
    pub key: &'a [u8],
    /// The new value; `None` to remove the key, which may already be absent.
    pub value: Option<&'a [u8]>,
    /// Whether the key is known to be absent before.
    pub is_new: bool,
}

/// New values, at most one per key, to commit in one atomic step.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Each key followed by its value, in one allocation.
    bytes: Vec<u8>,
    records: Vec<ChangeRecord>,
}

/// The position of a change in the bytes.
#[derive(Clone, Copy, Debug)]
struct ChangeRecord {
    table: Table,
    is_new: bool,
    key: usize,
    value: Option<usize>,
    end: usize,
}

impl Changes {
    /// Empty, with capacity for this many changes.
    pub(crate) fn with_room(count: usize) -> Self {
        // The size of a path and a short record, as nodes of locks have.
        Self { bytes: Vec::with_capacity(96 * count), records: Vec::with_capacity(count) }
    }

    /// Adds a change of `key`: `value` writes the new value; `None` removes the key.
    pub(crate) fn add(
        &mut self,
        (table, is_new): (Table, bool),
        key: &[u8],
        value: Option<impl FnOnce(&mut Vec<u8>)>,
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value = value.map(|write| {
            let start = self.bytes.len();
            write(&mut self.bytes);
            start
        });
        let end = self.bytes.len();
        self.records.push(ChangeRecord { table, is_new, key: start, value, end });
    }

    /// The changes, in the order in which their keys were first changed.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        self.records.iter().map(|&ChangeRecord { table, is_new, key, value, end }| Change {
            table,
            key: &self.bytes[key..value.unwrap_or(end)],
            value: value.map(|value| &self.bytes[value..end]),
            is_new,
        })
    }

    /// The number of changed keys.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The total length of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a> FromIterator<Change<'a>> for Changes {
    fn from_iter<I: IntoIterator<Item = Change<'a>>>(changes: I) -> Self {
        let mut all = Self::default();
        for Change { table, key, value, is_new } in changes {
            let value = value.map(|value| |out: &mut Vec<u8>| out.extend_from_slice(value));
            all.add((table, is_new), key, value);
        }
        all
    }
}

/// Why stored records do not form a valid state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A record cannot be decoded.
    #[error("the stored {record} is damaged: {problem}")]
    Damaged {
        /// The record.
        record: String,
        /// The reason.
        problem: String,
    },
    /// A record has a format that this version does not know.
    #[error(
        "the stored {record} has format {format}, which only newer versions can read; use a newer version"
    )]
    Newer {
        /// The record.
        record: String,
        /// The format.
        format: u8,
    },
    /// Records contradict each other, or a record is missing.
    #[error("the stored state is inconsistent: {0}")]
    Inconsistent(String),
}
