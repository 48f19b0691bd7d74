//! Applies transactions to the tree. This cannot fail, because `prepare` has validated them.

use std::sync::Arc;

use lockkeeper_wire::NodeData;

use crate::acl::AclRef;
use crate::nodes::{Node, Owner, Tree};
use crate::quota;
use crate::txn::{Applied, Stamp, TreeEvent, TreeEventKind, Txn};

/// Applies `txn` and records the events for watches.
pub(crate) fn apply(
    tree: &mut Tree,
    stamp: Stamp,
    txn: Txn,
    events: &mut Vec<TreeEvent>,
) -> Applied {
    match txn {
        Txn::Create { path, data, acl, owner } => {
            create(tree, stamp, path, (&data, acl, owner), events)
        }
        Txn::Delete { path } => delete(tree, stamp, &path, events),
        Txn::SetData { path, data, version } => {
            set_data(tree, stamp, path, (&data, version), events)
        }
        Txn::SetAcl { path, acl, version } => set_acl(tree, &path, acl, version),
        Txn::Check => Applied::Checked,
    }
}

fn create(
    tree: &mut Tree,
    stamp: Stamp,
    path: Arc<str>,
    (data, acl, owner): (&NodeData, AclRef, Owner),
    events: &mut Vec<TreeEvent>,
) -> Applied {
    let acl = tree.acls.intern(acl);
    let node = Node::new(data.detached(), acl, owner, stamp.zxid, stamp.unix_ms);
    let (stat, acl) = (node.stat(), node.acl.clone());
    let parent_acl = tree.insert(&path, node);
    quota::created(tree, &path, data.len());
    let what = TreeEventKind::Created(parent_acl);
    events.push(TreeEvent { what, path: Arc::clone(&path), acl });
    Applied::Created { path, stat }
}

fn delete(tree: &mut Tree, stamp: Stamp, path: &str, events: &mut Vec<TreeEvent>) -> Applied {
    let (path, node, parent_acl) = tree.remove(path, stamp.zxid);
    quota::deleted(tree, &path, node.data.len());
    events.push(TreeEvent { what: TreeEventKind::Deleted(parent_acl), path, acl: node.acl });
    Applied::Deleted
}

fn set_data(
    tree: &mut Tree,
    stamp: Stamp,
    path: Arc<str>,
    (data, version): (&NodeData, i32),
    events: &mut Vec<TreeEvent>,
) -> Applied {
    let old = tree.get(&path).map_or(0, |node| node.data.len());
    let node = tree.set_data(&path, data.detached());
    node.version = version;
    node.mzxid = stamp.zxid;
    node.mtime = stamp.unix_ms;
    let (stat, acl) = (node.stat(), node.acl.clone());
    quota::changed(tree, &path, data.len() as i64 - old as i64, 0);
    events.push(TreeEvent { what: TreeEventKind::DataChanged, path, acl });
    Applied::Changed(stat)
}

/// No watch fires for this.
fn set_acl(tree: &mut Tree, path: &str, acl: AclRef, version: i32) -> Applied {
    let acl = tree.acls.intern(acl);
    let node = tree.touch(path).expect("prepare checked that the node exists");
    let old = std::mem::replace(&mut node.acl, acl);
    node.aversion = version;
    let stat = node.stat();
    tree.acls.release(&old);
    Applied::Changed(stat)
}
