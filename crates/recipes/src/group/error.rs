//! Errors of groups.

use lockkeeper_client::{Outcome, PathError, ZnodePath, impl_failure};

use crate::watch::{CacheError, PresenceError};

/// An error of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The text is not a path.
    #[error("{0}; the path of a group looks like /workers")]
    Path(#[from] PathError),
    /// The path is `/`, or `/zookeeper` or below it, which the server uses itself.
    #[error("{0} cannot be used for a group; use another path, such as /workers")]
    Reserved(ZnodePath),
    /// The id is not valid for a member: its node could not have this name.
    #[error("{id:?} is not a valid member id, because a node gets this name: {why}")]
    Id {
        /// The id.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// The layout cannot store the member's data.
    #[error(
        "the data of a kazoo Party member is its id, so it cannot have other data; leave the data \
         out, or use the layout of ShallowParty or of Curator"
    )]
    NoRoom,
    /// The member's node cannot be created.
    #[error("cannot join: {0}")]
    Join(#[source] PresenceError),
    /// The group cannot be watched, or no longer.
    #[error("the members of {group} cannot be followed: {source}")]
    View {
        /// The group.
        group: ZnodePath,
        /// The cause.
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
