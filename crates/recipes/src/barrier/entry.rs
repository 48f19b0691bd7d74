//! The node of a party, from before its creation to its deletion.

use lockkeeper_client::{Cleanup, Client, SessionId, Stat, ZnodePath};

use crate::barrier::layout::PartyName;

/// The ephemeral node of a party. It is deleted when this goes away.
///
/// It exists before the request is sent that creates the node, so whatever may come of that is deleted.
#[derive(Debug)]
pub(super) struct PartyNode {
    client: Client,
    /// The round's directory.
    directory: ZnodePath,
    /// What its name begins with, and no other's.
    prefix: String,
    /// What was created.
    made: Option<(PartyName, Stat)>,
    /// Whether there may be a node.
    may_exist: bool,
}

impl PartyNode {
    pub(super) fn new(client: &Client, directory: ZnodePath, prefix: String) -> Self {
        Self { client: client.clone(), directory, prefix, made: None, may_exist: false }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The request is about to be sent that creates it.
    pub(super) fn sent(&mut self) {
        self.may_exist = true;
    }

    /// It was created like this.
    pub(super) fn made(&mut self, name: PartyName, stat: Stat) {
        self.made = Some((name, stat));
    }

    /// It was not created, or is deleted.
    pub(super) fn gone(&mut self) {
        self.may_exist = false;
    }

    /// Its name and its stat, if it is known to be created.
    pub(super) fn created(&self) -> Option<(&PartyName, Stat)> {
        self.made.as_ref().map(|(name, stat)| (name, *stat))
    }

    pub(super) fn session(&self) -> SessionId {
        self.made.as_ref().map_or(SessionId::NONE, |(_, stat)| stat.ephemeral_owner)
    }
}

impl Drop for PartyNode {
    fn drop(&mut self) {
        // Those of other sessions went with them.
        let lives_on = [SessionId::NONE, self.client.session_id()].contains(&self.session());
        if !self.may_exist || !lives_on {
            return;
        }
        let node =
            self.made.as_ref().and_then(|(name, _)| self.directory.child(name.as_str()).ok());
        self.client.clean_up(match node {
            Some(node) => Cleanup::Node(node),
            None => {
                Cleanup::ByPrefix { parent: self.directory.clone(), prefix: self.prefix.clone() }
            }
        });
    }
}
