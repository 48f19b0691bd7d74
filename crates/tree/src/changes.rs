//! The changes that must become durable, and the stored state that a server starts from.

/// A key space of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The key is a node's path in UTF-8.
    Nodes,
    /// The key is a session's id, 8 bytes big-endian.
    Sessions,
    /// A few single values, such as the last zxid.
    Meta,
}

/// The new state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Where.
    pub table: Table,
    /// Which key.
    pub key: &'a [u8],
    /// The new value; `None`: the key is to be removed (it may be absent already).
    pub value: Option<&'a [u8]>,
    /// Whether it is certain that the key was absent before.
    pub is_new: bool,
}

/// New states, at most one per key, to be committed as one atomic step.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Each key, followed by its value: one allocation for all.
    bytes: Vec<u8>,
    records: Vec<ChangeRecord>,
}

/// Where a change stands in the bytes.
#[derive(Clone, Copy, Debug)]
struct ChangeRecord {
    table: Table,
    is_new: bool,
    key: usize,
    value: Option<usize>,
    end: usize,
}

impl Changes {
    /// None, with room for so many.
    pub(crate) fn with_room(count: usize) -> Self {
        // A path and a short record, as the nodes of locks have.
        Self { bytes: Vec::with_capacity(96 * count), records: Vec::with_capacity(count) }
    }

    /// Adds a change of `key`: `value` writes the new value; `None`: it is to be removed.
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

    /// The changes, in the order in which the keys were first touched.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        self.records.iter().map(|&ChangeRecord { table, is_new, key, value, end }| Change {
            table,
            key: &self.bytes[key..value.unwrap_or(end)],
            value: value.map(|value| &self.bytes[value..end]),
            is_new,
        })
    }

    /// How many keys change.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Lengths of all keys and values.
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

/// Why stored records do not make up a server's state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A record whose bytes cannot be read.
    #[error("the stored {record} is damaged: {problem}")]
    Damaged {
        /// Which record.
        record: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A record in a format that this version does not know.
    #[error(
        "the stored {record} has format {format}, which a newer version wrote: use that version"
    )]
    Newer {
        /// Which record.
        record: String,
        /// Its format.
        format: u8,
    },
    /// Records that contradict each other, or miss another one.
    #[error("the stored state is inconsistent: {0}")]
    Inconsistent(String),
}
