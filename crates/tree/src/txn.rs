//! The transactions that `prepare` creates, and the outcomes of `apply`.

use std::sync::Arc;

use lockkeeper_wire::{NodeData, Stat, Zxid};

use crate::acl::AclRef;
use crate::nodes::Owner;

/// The number and the time of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) zxid: Zxid,
    pub(crate) unix_ms: i64,
}

/// A validated change. Applying it cannot fail.
#[derive(Clone, Debug)]
pub(crate) enum Txn {
    Create {
        /// One copy for the table, the parent, the reply and the watchers.
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

/// The outcome of a [`Txn`].
#[derive(Clone, Debug)]
pub(crate) enum Applied {
    Created { path: Arc<str>, stat: Stat },
    Deleted,
    Changed(Stat),
    Checked,
}

/// A change for which watches may fire.
#[derive(Clone, Debug)]
pub(crate) struct TreeEvent {
    pub(crate) what: TreeEventKind,
    pub(crate) path: Arc<str>,
    /// The node's access control list, which decides which clients receive the event.
    pub(crate) acl: AclRef,
}

/// The kind of the change. A change of children has the parent's list too.
#[derive(Clone, Debug)]
pub(crate) enum TreeEventKind {
    Created(AclRef),
    Deleted(AclRef),
    DataChanged,
}

/// The effects of some of a server's transactions on its tree, in order.
#[cfg(any(test, feature = "following"))]
#[derive(Clone, Debug)]
pub struct Transactions {
    pub(crate) txns: Vec<(Stamp, Txn)>,
    /// The last transaction. It may not have changed the tree.
    pub(crate) last_zxid: Zxid,
}

/// The transactions of a leader that have not been taken yet.
#[cfg(any(test, feature = "following"))]
pub(crate) struct Record {
    pub(crate) txns: Vec<(Stamp, Txn)>,
    /// The last transaction that was taken.
    pub(crate) taken: Zxid,
}

#[cfg(any(test, feature = "following"))]
impl Record {
    pub(crate) fn push(&mut self, stamp: Stamp, txn: &Txn) {
        self.txns.push((stamp, txn.clone()));
    }
}
