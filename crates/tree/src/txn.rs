//! The transactions that `prepare` makes, and the outcomes that `apply` makes of them.

use std::sync::Arc;

use lockkeeper_wire::{NodeData, Stat, Zxid};

use crate::acl::AclRef;
use crate::nodes::Owner;

/// When and as which transaction something is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) zxid: Zxid,
    pub(crate) unix_ms: i64,
}

/// A change that has been found possible; applying it cannot fail.
#[derive(Clone, Debug)]
pub(crate) enum Txn {
    Create {
        /// One copy for the table, the parent, the reply and whoever watches.
        path: Arc<str>,
        data: NodeData,
        acl: AclRef,
        owner: Owner,
    },
    Delete {
        path: Arc<str>,
    },
    SetData {
        path: Arc<str>,
        data: NodeData,
        /// The new version.
        version: i32,
    },
    SetAcl {
        path: String,
        acl: AclRef,
        /// The new version of the list.
        version: i32,
    },
    /// Changes nothing.
    Check,
}

/// What applying a [`Txn`] led to.
#[derive(Clone, Debug)]
pub(crate) enum Applied {
    Created { path: Arc<str>, stat: Stat },
    Deleted,
    Changed(Stat),
    Checked,
}

/// A change that watches may wait for.
#[derive(Clone, Debug)]
pub(crate) struct TreeEvent {
    pub(crate) what: TreeEventKind,
    pub(crate) path: Arc<str>,
    /// Who may hear of the node.
    pub(crate) acl: AclRef,
}

/// What happened; with the parent's list where its children changed: who may hear of them.
#[derive(Clone, Debug)]
pub(crate) enum TreeEventKind {
    Created(AclRef),
    Deleted(AclRef),
    DataChanged,
}

/// What some of a server's transactions did to its tree, in order.
#[cfg(any(test, feature = "following"))]
#[derive(Clone, Debug)]
pub struct Transactions {
    pub(crate) txns: Vec<(Stamp, Txn)>,
    /// The last one. It may have done nothing to the tree.
    pub(crate) last_zxid: Zxid,
}

/// The transactions of a leader that nobody has taken yet.
#[cfg(any(test, feature = "following"))]
pub(crate) struct Record {
    pub(crate) txns: Vec<(Stamp, Txn)>,
    /// The last one of those that were taken.
    pub(crate) taken: Zxid,
}

#[cfg(any(test, feature = "following"))]
impl Record {
    pub(crate) fn push(&mut self, stamp: Stamp, txn: &Txn) {
        self.txns.push((stamp, txn.clone()));
    }
}
