//! What a member's task is asked to do.

use tokio::sync::oneshot;

use crate::partitions::book::ItemLife;

/// What a handle or an assignment has its member's task do.
#[derive(Debug)]
pub(super) enum Command {
    /// An item was given back.
    Returned(ItemLife),
    /// Gives everything back, and says when that is done.
    Leave(Option<oneshot::Sender<()>>),
}
