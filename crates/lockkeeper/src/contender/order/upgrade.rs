//! How a reader stands that upgrades.

use super::WaitQueue;
use crate::profile::Kind;

/// How a reader that holds, and may upgrade, stands on its way to being alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upgrade {
    /// No other reader holds, and none can for as long as this writer is in line: the first one.
    Clear(String),
    /// This reader holds too.
    WaitOn(String),
    /// It is not in the queue, or no writer keeps new readers out.
    Gone,
}

impl WaitQueue {
    /// How the reader with this name stands, which holds and wants to be alone.
    ///
    /// Readers behind a writer do not hold, and those in line for an upgrade wait for this one.
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
