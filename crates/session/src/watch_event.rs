//! The events of watches.

use lockkeeper_wire::{EventKind, Zxid};

/// A change of a watched node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// The node.
    pub path: String,
    /// The transaction that caused the change. `None` from servers before 3.9, and for changes that a
    /// one-shot watch missed while the client was disconnected.
    pub zxid: Option<Zxid>,
}
