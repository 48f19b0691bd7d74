//! Being a member of a group.

use lockkeeper_client::{Error, ZnodePath};
use lockkeeper_locks::FencingToken;
use tokio::sync::watch;

use crate::watch::{Presence, PresenceState};

/// A member of a [`Group`](crate::Group), for as long as this is there: over lost connections, and again
/// with the next session. Dropping it leaves in the background.
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

    /// What the member calls itself.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its node.
    pub fn node(&self) -> &ZnodePath {
        &self.node
    }

    /// The token of the present membership; `None` while the node is not there, as far as is known here.
    /// Others see it as [`Member::token`](crate::Member::token).
    pub fn token(&self) -> Option<FencingToken> {
        match self.state() {
            PresenceState::Present { czxid } => Some(FencingToken::new(czxid)),
            _ => None,
        }
    }

    /// How it stands.
    pub fn state(&self) -> PresenceState {
        self.presence.state()
    }

    /// How it stands, now and with every change. States that follow each other quickly may be left out,
    /// the last one never.
    pub fn changes(&self) -> watch::Receiver<PresenceState> {
        self.presence.changes()
    }

    /// The node that it is.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Leaves, and waits until that is certain: everybody else is told at once. Costs 2 round trips.
    ///
    /// # Errors
    /// If the delete is refused, or the client is closed; or if no server could be reached for a session
    /// timeout: it goes on in the background then.
    ///
    /// # Cancel safety
    /// It leaves in the background.
    ///
    /// # Session loss
    /// The member has left with its session.
    pub async fn leave(self) -> Result<(), Error> {
        self.presence.end().await
    }
}
