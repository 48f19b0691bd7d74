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
