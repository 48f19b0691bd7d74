//! Counts of the operations in a run.

use std::fmt;

use crate::data_event::DataEvent;
use crate::history::{History, What};

/// How many operations the programs that share data have completed. A run without operations proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Transactions on the tree.
    pub wrote: usize,
    /// Snapshots of the tree that were checked.
    pub saw: usize,
    /// Adds that began.
    pub begun: usize,
    /// Adds that were confirmed.
    pub added: usize,
    /// Adds that were refused.
    pub refused: usize,
    /// Items that were appended.
    pub appended: usize,
    /// Editions that were published.
    pub published: usize,
    /// Editions that followers received.
    pub editions: usize,
    /// Listings that directories recorded.
    pub listed: usize,
    /// Views of a group that watchers received.
    pub views: usize,
    /// Items whose put was confirmed.
    pub put: usize,
    /// Takes of items.
    pub taken: usize,
    /// Ends of items that were confirmed.
    pub ended: usize,
}

impl Done {
    /// Counts the operations in a history.
    pub fn of(history: &History) -> Self {
        let mut done = Self::default();
        for entry in history.entries() {
            let What::Data(told) = &entry.what else { continue };
            match told {
                DataEvent::Wrote { .. } => done.wrote += 1,
                DataEvent::Saw { .. } => done.saw += 1,
                DataEvent::Adds { .. } => done.begun += 1,
                DataEvent::Added { .. } => done.added += 1,
                DataEvent::NotAdded { .. } => done.refused += 1,
                DataEvent::Appended { .. } => done.appended += 1,
                DataEvent::Published { .. } => done.published += 1,
                DataEvent::Edition { .. } => done.editions += 1,
                DataEvent::Lists { .. } => done.listed += 1,
                DataEvent::View { .. } => done.views += 1,
                DataEvent::Put { items } => done.put += items.len(),
                DataEvent::Takes { .. } => done.taken += 1,
                DataEvent::Ended { .. } => done.ended += 1,
                _ => {}
            }
        }
        done
    }

    /// Whether there are enough operations of every kind, except for editions, which may be rare, and for views and
    /// queues, which not every run has.
    pub fn is_enough(&self) -> bool {
        let counts = [self.wrote, self.saw, self.added, self.appended, self.listed];
        counts.iter().all(|count| *count > 0)
    }

    /// Whether the run used a queue.
    pub fn is_enough_of_a_queue(&self) -> bool {
        [self.put, self.taken, self.ended].iter().all(|count| *count > 0)
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wrote, saw, begun, added, refused, appended, .. } = self;
        let Self { published, editions, listed, views, put, taken, ended, .. } = self;
        let unknown = begun - added - refused;
        write!(
            f,
            "{wrote} transactions on a tree, {saw} snapshots of it; {added} adds confirmed, {refused} \
             refused, {unknown} unknown; {appended} items appended; {published} editions published, \
             {editions} seen; {listed} lists of instances; {views} views of a group; {put} items put, \
             {taken} takes, {ended} ends"
        )
    }
}
