//! The node of a party, from before its creation to its deletion.

use lockkeeper_client::{Client, SessionId, Stat, ZnodePath};

use crate::barrier::layout::PartyName;
use crate::exact::AttemptNode;

/// The ephemeral node of a party. Dropping this deletes the node.
#[derive(Debug)]
pub(super) struct PartyNode {
    client: Client,
    /// The round's directory.
    directory: ZnodePath,
    /// A prefix of its name that no other node has.
    prefix: String,
    /// The created node.
    made: Option<(PartyName, Stat)>,
    /// Deletes the node when dropped, if the node may exist.
    node: Option<AttemptNode>,
}

impl PartyNode {
    pub(super) fn new(client: &Client, directory: ZnodePath, prefix: String) -> Self {
        Self { client: client.clone(), directory, prefix, made: None, node: None }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Call before sending the request that creates the node.
    pub(super) fn sent(&mut self) {
        let Self { client, directory, prefix, .. } = self;
        let new = || AttemptNode::numbered(client, directory.clone(), prefix.clone());
        self.node.get_or_insert_with(new);
    }

    /// Records the created node.
    pub(super) fn made(&mut self, name: PartyName, stat: Stat) {
        if let Some(node) = &mut self.node {
            node.made(&stat);
            if let Ok(path) = self.directory.child(name.as_str()) {
                node.found(path);
            }
        }
        self.made = Some((name, stat));
    }

    /// Records that the node was not created, or is deleted.
    pub(super) fn gone(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.gone();
        }
    }

    /// The node's name and stat, if it is known to exist.
    pub(super) fn created(&self) -> Option<(&PartyName, Stat)> {
        self.made.as_ref().map(|(name, stat)| (name, *stat))
    }

    pub(super) fn session(&self) -> SessionId {
        self.made.as_ref().map_or(SessionId::NONE, |(_, stat)| stat.ephemeral_owner)
    }
}
