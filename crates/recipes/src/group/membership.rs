//! Membership of this program in a group.

use lockkeeper_client::{Error, ZnodePath};
use lockkeeper_locks::FencingToken;
use tokio::sync::watch;

use crate::watch::{Presence, PresenceState};

/// A member of a [`Group`](crate::Group), as long as this value exists: over lost connections, and again with the
/// next session. Dropping it leaves the group in the background.
#[doc(alias = "GroupMember")]
#[doc(alias = "Party")]
#[must_use = "the member leaves when this is dropped"]
#[derive(Debug)]
pub struct Membership {
    id: String,
    node: ZnodePath,
    presence: Presence,
}

impl Membership {
    pub(super) fn new(id: String, node: ZnodePath, presence: Presence) -> Self {
        Self { id, node, presence }
    }

    /// The member's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its node.
    pub fn node(&self) -> &ZnodePath {
        &self.node
    }

    /// The token of the current membership; `None` while the node does not exist, as far as known here. Others
    /// see it as [`Member::token`](crate::Member::token).
    pub fn token(&self) -> Option<FencingToken> {
        match self.state() {
            PresenceState::Present { czxid } => Some(FencingToken::new(czxid)),
            _ => None,
        }
    }

    /// The state of the member's node.
    pub fn state(&self) -> PresenceState {
        self.presence.state()
    }

    /// The state, now and after every change. States that follow each other quickly may be skipped, but never the
    /// last one.
    pub fn changes(&self) -> watch::Receiver<PresenceState> {
        self.presence.changes()
    }

    /// The node that it is.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Leaves, and waits for the confirmation. The others learn of it at once. Costs 2 round trips.
    ///
    /// # Errors
    /// If the delete is refused, or the client is closed; or if no server could be reached for a session timeout:
    /// then the delete continues in the background.
    ///
    /// # Cancel safety
    /// The member leaves in the background.
    ///
    /// # Session loss
    /// The member has left with its session.
    pub async fn leave(self) -> Result<(), Error> {
        self.presence.end().await
    }
}
