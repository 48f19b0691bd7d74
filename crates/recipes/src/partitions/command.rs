//! Commands for a member's task.

use tokio::sync::oneshot;

use crate::partitions::book::ItemLife;

/// A command of a handle or an assignment.
#[derive(Debug)]
pub(super) enum Command {
    /// An item was given back.
    Returned(ItemLife),
    /// Give all items back, and reply when that is done.
    Leave(Option<oneshot::Sender<()>>),
}
