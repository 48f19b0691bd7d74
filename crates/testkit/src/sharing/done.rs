//! How much was done in a run.

use std::fmt;

use crate::history::{History, What};
use crate::told::Told;

/// How much programs that share data have done in a run: one in which nothing was done says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Transactions on the tree.
    pub wrote: usize,
    /// Snapshots of it that were looked at.
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
    /// Editions that followers were told of.
    pub editions: usize,
    /// Times that a directory said whom it lists.
    pub listed: usize,
    /// Views of a group that watchers were told.
    pub views: usize,
    /// Items that were put into a queue for certain.
    pub put: usize,
    /// Times that an item was taken.
    pub taken: usize,
    /// Ends of items that were confirmed.
    pub ended: usize,
}

impl Done {
    /// What a history tells.
    pub fn of(history: &History) -> Self {
        let mut done = Self::default();
        for entry in history.entries() {
            let What::Told(told) = &entry.what else { continue };
            match told {
                Told::Wrote { .. } => done.wrote += 1,
                Told::Saw { .. } => done.saw += 1,
                Told::Adds { .. } => done.begun += 1,
                Told::Added { .. } => done.added += 1,
                Told::NotAdded { .. } => done.refused += 1,
                Told::Appended { .. } => done.appended += 1,
                Told::Published { .. } => done.published += 1,
                Told::Edition { .. } => done.editions += 1,
                Told::Lists { .. } => done.listed += 1,
                Told::View { .. } => done.views += 1,
                Told::Put { items } => done.put += items.len(),
                Told::Takes { .. } => done.taken += 1,
                Told::Ended { .. } => done.ended += 1,
                _ => {}
            }
        }
        done
    }

    /// Whether there is something of everything but editions, which are rare where they must be, and what there is not
    /// everywhere: views, and a queue.
    pub fn is_enough(&self) -> bool {
        let counts = [self.wrote, self.saw, self.added, self.appended, self.listed];
        counts.iter().all(|count| *count > 0)
    }

    /// Whether a queue was used.
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
