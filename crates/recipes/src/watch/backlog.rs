//! The paths at which a tree may have changed, stored once for all readers. No I/O.
//!
//! Each publication is a batch of paths. All readers share it, and it is dropped when the last of them has read
//! it. A reader that is not polled must not use unlimited memory: above a bound, the oldest batches are dropped,
//! and a reader that has missed one compares whole snapshots.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Paths that were published together, sorted.
pub(super) type Paths = Arc<BTreeSet<String>>;

/// Identifies a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReaderId(u64);

/// The publications that a reader has not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// These batches.
    Batches(Vec<Paths>),
    /// More than the backlog keeps.
    TooMuch,
}

/// The batches that some reader has not read.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    batches: VecDeque<Batch>,
    /// The number of the first batch.
    first: u64,
    /// The number of paths in all batches.
    paths: usize,
    /// The number of the next batch of each reader.
    readers: BTreeMap<ReaderId, u64>,
    next_reader: u64,
}

#[derive(Debug)]
struct Batch {
    paths: Paths,
    unread_by: usize,
}

impl Backlog {
    /// Registers a reader of all later publications.
    pub(crate) fn subscribe(&mut self) -> ReaderId {
        let reader = ReaderId(self.next_reader);
        self.next_reader += 1;
        self.readers.insert(reader, self.end());
        reader
    }

    pub(crate) fn unsubscribe(&mut self, reader: ReaderId) {
        self.read(reader);
        self.readers.remove(&reader);
    }

    /// Adds a batch. Drops the oldest ones if there are more unread paths than `most`.
    pub(crate) fn publish(&mut self, paths: &BTreeSet<String>, most: usize) {
        if paths.is_empty() || self.readers.is_empty() {
            return;
        }
        self.paths += paths.len();
        let unread_by = self.readers.len();
        self.batches.push_back(Batch { paths: Arc::new(paths.clone()), unread_by });
        while self.paths > most && self.forget_first() {}
    }

    /// Takes the batches that a reader has not read.
    pub(crate) fn read(&mut self, reader: ReaderId) -> Unread {
        let end = self.end();
        let Some(next) = self.readers.get_mut(&reader) else { return Unread::TooMuch };
        let next = std::mem::replace(next, end);

        let skipped = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let unread = self.batches.iter_mut().skip(skipped).map(|batch| {
            batch.unread_by -= 1;
            Arc::clone(&batch.paths)
        });
        let unread = unread.collect();
        let is_behind = next < self.first;
        while self.batches.front().is_some_and(|batch| batch.unread_by == 0) {
            self.forget_first();
        }
        if is_behind { Unread::TooMuch } else { Unread::Batches(unread) }
    }

    /// The number of the next batch.
    fn end(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    /// Drops the oldest batch, and returns whether there was one.
    fn forget_first(&mut self) -> bool {
        let Some(batch) = self.batches.pop_front() else { return false };
        self.first += 1;
        self.paths -= batch.paths.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    fn batches(batches: &[&[&str]]) -> Unread {
        Unread::Batches(batches.iter().map(|names| Arc::new(paths(names))).collect())
    }

    #[test]
    fn each_reader_has_what_was_published_since_it_read() {
        let mut backlog = Backlog::default();
        backlog.publish(&paths(&["/nobody"]), 10);
        let early = backlog.subscribe();
        backlog.publish(&paths(&["/a", "/b"]), 10);
        let late = backlog.subscribe();
        backlog.publish(&paths(&[]), 10);
        backlog.publish(&paths(&["/b"]), 10);

        assert_eq!(backlog.read(late), batches(&[&["/b"]]));
        assert_eq!(backlog.read(late), batches(&[]));
        assert_eq!(backlog.read(early), batches(&[&["/a", "/b"], &["/b"]]));
        assert_eq!((backlog.batches.len(), backlog.paths), (0, 0), "all have read it");

        backlog.publish(&paths(&["/c"]), 10);
        backlog.unsubscribe(early);
        assert_eq!(backlog.batches.len(), 1);
        backlog.unsubscribe(late);
        assert_eq!((backlog.batches.len(), backlog.paths), (0, 0), "no reader is left");
    }

    /// The memory for a reader that was not polled grew with every node that came and went.
    ///
    /// Fails without the bound.
    #[test]
    fn unread_batches_are_bounded() {
        let mut backlog = Backlog::default();
        let (held, read) = (backlog.subscribe(), backlog.subscribe());
        for number in 0..1_000 {
            let name = format!("/{number}");
            backlog.publish(&paths(&[&name]), 10);
            assert_eq!(backlog.read(read), batches(&[&[&name]]));
            assert!(backlog.paths <= 10 && backlog.batches.len() <= 10);
        }
        assert_eq!(backlog.read(held), Unread::TooMuch);
        assert_eq!((backlog.batches.len(), backlog.paths), (0, 0));

        // Also a single batch that exceeds the bound.
        let long: Vec<_> = (0..11).map(|number| format!("/{number}")).collect();
        backlog.publish(&long.into_iter().collect(), 10);
        assert_eq!(backlog.read(held), Unread::TooMuch);
        backlog.publish(&paths(&["/a"]), 10);
        assert_eq!(backlog.read(held), batches(&[&["/a"]]));
        assert_eq!(backlog.read(read), Unread::TooMuch);
        assert_eq!(backlog.batches.len(), 0);
    }
}
