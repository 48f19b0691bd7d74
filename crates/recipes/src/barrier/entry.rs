//! The node of a party, from before its creation to its deletion.

use lockkeeper_client::{Client, SessionId, Stat, ZnodePath};

use crate::barrier::layout::PartyName;
use crate::exact::AttemptNode;

/// The ephemeral node of a party. It is deleted when this goes away.
#[derive(Debug)]
pub(super) struct PartyNode {
    client: Client,
    /// The round's directory.
    directory: ZnodePath,
    /// What its name begins with, and no other's.
    prefix: String,
    /// What was created.
    made: Option<(PartyName, Stat)>,
    /// The duty to delete it, if there may be one.
    node: Option<AttemptNode>,
}

impl PartyNode {
    pub(super) fn new(client: &Client, directory: ZnodePath, prefix: String) -> Self {
        Self { client: client.clone(), directory, prefix, made: None, node: None }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The request is about to be sent that creates it.
    pub(super) fn sent(&mut self) {
        let Self { client, directory, prefix, .. } = self;
        let new = || AttemptNode::numbered(client, directory.clone(), prefix.clone());
        self.node.get_or_insert_with(new);
    }

    /// It was created like this.
    pub(super) fn made(&mut self, name: PartyName, stat: Stat) {
        if let Some(node) = &mut self.node {
            node.made(&stat);
            if let Ok(path) = self.directory.child(name.as_str()) {
                node.found(path);
            }
        }
        self.made = Some((name, stat));
    }

    /// It was not created, or is deleted.
    pub(super) fn gone(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.gone();
        }
    }

    /// Its name and its stat, if it is known to be created.
    pub(super) fn created(&self) -> Option<(&PartyName, Stat)> {
        self.made.as_ref().map(|(name, stat)| (name, *stat))
    }

    pub(super) fn session(&self) -> SessionId {
        self.made.as_ref().map_or(SessionId::NONE, |(_, stat)| stat.ephemeral_owner)
    }
}
