//! From stored records back to a server's state.

use bytes::Bytes;
use lockkeeper_wire::{SessionId, ZnodePath, Zxid};

use crate::nodes::{Node, Owner, SYSTEM_NODES, Tree, parent_of};
use crate::quota;
use crate::records::{self, STATE_KEY};
use crate::sessions::Sessions;
use crate::storage::{RestoreError, Table};

/// No server begins in this epoch: its last number would be the last one of an `i64`.
const LAST_EPOCH: u32 = i32::MAX as u32;

/// The state as far as it has been read.
pub(crate) struct Restoring {
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    pub(crate) last_zxid: Option<Zxid>,
}

impl Restoring {
    pub(crate) fn new(tick: std::time::Duration) -> Self {
        Self { tree: Tree::default(), sessions: Sessions::new(tick), last_zxid: None }
    }

    pub(crate) fn take(
        &mut self,
        table: Table,
        key: &[u8],
        value: Bytes,
    ) -> Result<(), RestoreError> {
        match table {
            Table::Nodes => self.take_node(key, value),
            Table::Sessions => self.take_session(key, value),
            Table::Meta => self.take_meta(key, value),
        }
    }

    fn take_node(&mut self, key: &[u8], value: Bytes) -> Result<(), RestoreError> {
        let path = std::str::from_utf8(key).ok().filter(|path| ZnodePath::is_valid(path));
        let path = path.ok_or_else(|| damaged_key("node", key))?;
        let node = records::take_node(value).map_err(|fault| fault.of(format!("node {path}")))?;
        if !self.tree.restore(path, node) {
            return Err(RestoreError::Inconsistent(format!("node {path} is there twice")));
        }
        Ok(())
    }

    fn take_session(&mut self, key: &[u8], value: Bytes) -> Result<(), RestoreError> {
        let id = key.try_into().map_err(|_| damaged_key("session", key))?;
        let id = SessionId(i64::from_be_bytes(id));
        let session = records::take_session(value);
        let session = session.map_err(|fault| fault.of(format!("session {id}")))?;
        if !self.sessions.restore(id, session) {
            return Err(RestoreError::Inconsistent(format!("session {id} is there twice")));
        }
        Ok(())
    }

    fn take_meta(&mut self, key: &[u8], value: Bytes) -> Result<(), RestoreError> {
        if key != STATE_KEY {
            return Err(damaged_key("server state", key));
        }
        let zxid = records::take_state(value);
        self.last_zxid = Some(zxid.map_err(|fault| fault.of("server state".to_owned()))?);
        Ok(())
    }

    /// Ties everything together; the last zxid.
    pub(crate) fn finish(&mut self) -> Result<Zxid, RestoreError> {
        let last = self.last_zxid.ok_or_else(|| {
            RestoreError::Inconsistent("the record of the last transaction is missing".to_owned())
        })?;
        if last < Zxid(0) || last >= Zxid::start_of(LAST_EPOCH) {
            return Err(RestoreError::Inconsistent(format!(
                "the last transaction is {last}, after which the numbers are used up"
            )));
        }

        self.tree.link_restored().map_err(|path| {
            let parent = parent_of(&path);
            RestoreError::Inconsistent(format!("node {path} has no parent {parent}"))
        })?;
        quota::find(&mut self.tree);
        self.check_system_nodes()?;
        self.check_owners()?;

        for (path, node) in self.tree.sorted() {
            check_node(path, node, last)?;
        }
        Ok(last)
    }

    fn check_system_nodes(&self) -> Result<(), RestoreError> {
        match SYSTEM_NODES.iter().find(|path| self.tree.get(path).is_none()) {
            Some(path) => Err(RestoreError::Inconsistent(format!("node {path} is missing"))),
            None => Ok(()),
        }
    }

    fn check_owners(&self) -> Result<(), RestoreError> {
        match self.tree.owners().find(|id| self.sessions.get(*id).is_none()) {
            Some(id) => Err(RestoreError::Inconsistent(format!(
                "ephemeral nodes belong to session {id}, which does not exist"
            ))),
            None => Ok(()),
        }
    }
}

fn check_node(path: &str, node: &Node, last: Zxid) -> Result<(), RestoreError> {
    let newest = node.czxid.max(node.mzxid).max(node.pzxid);
    if newest > last {
        return Err(RestoreError::Inconsistent(format!(
            "node {path} was changed by transaction {newest}, but the last one is {last}"
        )));
    }
    if matches!(node.owner, Owner::Session(_)) && !node.children.is_empty() {
        return Err(RestoreError::Inconsistent(format!("ephemeral node {path} has children")));
    }
    Ok(())
}

fn damaged_key(what: &str, key: &[u8]) -> RestoreError {
    RestoreError::Damaged {
        record: format!("{what} with key {:?}", key.escape_ascii().to_string()),
        problem: "no such key can exist".to_owned(),
    }
}
