//! Whether an upgrading reader is the only holder.

use super::WaitQueue;
use crate::profile::Kind;

/// What a reader that holds the lock must wait for before it can become a writer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upgrade {
    /// No other reader holds, and none can while this node, the first writer, is in the queue.
    Clear(String),
    /// This other reader still holds.
    WaitOn(String),
    /// The reader is not in the queue, or no writer keeps new readers out.
    Gone,
}

impl WaitQueue {
    /// Whether the reader with this name is the only holder.
    ///
    /// Readers behind a writer do not hold the lock. Other upgradeable readers wait for this one.
    pub fn upgrade(&self, own: &str) -> Upgrade {
        let first = self.places.iter().position(|place| place.kind == Kind::Write);
        let listed = self.places.iter().any(|place| place.name == own);
        let Some(first) = first.filter(|_| listed) else { return Upgrade::Gone };
        match self.places[..first].iter().rev().find(|place| place.kind == Kind::Read) {
            Some(reader) => Upgrade::WaitOn(reader.name.clone()),
            None => Upgrade::Clear(self.places[first].name.clone()),
        }
    }
}
