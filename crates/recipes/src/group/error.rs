//! What can go wrong with groups.

use lockkeeper_client::{Outcome, PathError, ZnodePath, impl_failure};

use crate::watch::{CacheError, PresenceError};

/// Why a group cannot be, cannot be joined, or cannot be seen any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// It is no path.
    #[error("{0}; a group is named like /workers")]
    Path(#[from] PathError),
    /// It is `/`, or `/zookeeper` or below it, where the server keeps what is its own.
    #[error("{0} cannot be a group; name a path of its own for it, like /workers")]
    Reserved(ZnodePath),
    /// No node can stand for a member of this name.
    #[error("{id:?} cannot be the id of a member, which becomes the name of a node: {why}")]
    Id {
        /// The id.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// The layout has no room for what the member tells.
    #[error(
        "members of a kazoo Party have their id as their data, and no room for more; leave the data \
         out, or use the layout of ShallowParty or of Curator"
    )]
    NoRoom,
    /// The member's node cannot be made.
    #[error("cannot join: {0}")]
    Join(#[source] PresenceError),
    /// There is no view of the group any more, or none to be had.
    #[error("the members of {group} cannot be followed: {source}")]
    View {
        /// The group.
        group: ZnodePath,
        /// Why not.
        source: CacheError,
    },
}

impl_failure!(GroupError {
    Self::Join(error) => (error.is_retryable(), error.outcome()),
    Self::View { source, .. } => (source.is_retryable(), Outcome::NotApplied),
    Self::Path(_) | Self::Reserved(_) | Self::Id { .. } | Self::NoRoom => {
        (false, Outcome::NotApplied)
    }
});
