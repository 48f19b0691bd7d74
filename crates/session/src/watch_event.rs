//! What watchers are told.

use lockkeeper_wire::{EventKind, Zxid};

/// What happened to a node that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// The node.
    pub path: String,
    /// The transaction that did it. Servers before 3.9 do not say, nor does any for what a one-shot
    /// watch missed while there was no connection.
    pub zxid: Option<Zxid>,
}
