//! Decoding stored records to a server's state.

use bytes::Bytes;
use lockkeeper_wire::{SessionId, ZnodePath, Zxid};

use crate::changes::{RestoreError, Table};
use crate::nodes::{Node, Owner, SYSTEM_NODES, Tree, parent_of};
use crate::quota;
use crate::records::{self, STATE_KEY};
use crate::sessions::Sessions;

/// The last valid epoch: its last number would be the maximum of an `i64`.
pub const LAST_EPOCH: u32 = i32::MAX as u32;

/// The state restored so far.
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
            return inconsistent(format!("node {path} is there twice"));
        }
        Ok(())
    }

    fn take_session(&mut self, key: &[u8], value: Bytes) -> Result<(), RestoreError> {
        let id = key.try_into().map_err(|_| damaged_key("session", key))?;
        let id = SessionId(i64::from_be_bytes(id));
        let session = records::take_session(value);
        let session = session.map_err(|fault| fault.of(format!("session {id}")))?;
        if !self.sessions.restore(id, session) {
            return inconsistent(format!("session {id} is there twice"));
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

    /// Links and validates everything. Returns the last zxid.
    pub(crate) fn finish(&mut self) -> Result<Zxid, RestoreError> {
        let Some(last) = self.last_zxid else {
            return inconsistent("the record of the last transaction is missing".to_owned());
        };
        if last < Zxid(0) || last >= Zxid::start_of(LAST_EPOCH) {
            let why = "after which the numbers are used up";
            return inconsistent(format!("the last transaction is {last}, {why}"));
        }

        if let Err(path) = self.tree.link_restored() {
            return inconsistent(format!("node {path} has no parent {}", parent_of(&path)));
        }
        quota::find(&mut self.tree);
        if let Some(path) = SYSTEM_NODES.iter().find(|path| self.tree.get(path).is_none()) {
            return inconsistent(format!("node {path} is missing"));
        }
        if let Some(id) = self.tree.owners().find(|id| self.sessions.get(*id).is_none()) {
            let why = "which does not exist";
            return inconsistent(format!("ephemeral nodes belong to session {id}, {why}"));
        }

        for (path, node) in self.tree.sorted() {
            check_node(path, node, last)?;
        }
        Ok(last)
    }
}

fn check_node(path: &str, node: &Node, last: Zxid) -> Result<(), RestoreError> {
    let newest = node.czxid.max(node.mzxid).max(node.pzxid);
    if newest > last {
        let change = format!("node {path} was changed by transaction {newest}");
        return inconsistent(format!("{change}, but the last one is {last}"));
    }
    if matches!(node.owner, Owner::Session(_)) && !node.children.is_empty() {
        return inconsistent(format!("ephemeral node {path} has children"));
    }
    Ok(())
}

fn inconsistent<T>(what: String) -> Result<T, RestoreError> {
    Err(RestoreError::Inconsistent(what))
}

fn damaged_key(what: &str, key: &[u8]) -> RestoreError {
    RestoreError::Damaged {
        record: format!("{what} with key {:?}", key.escape_ascii().to_string()),
        problem: "the key is invalid".to_owned(),
    }
}
