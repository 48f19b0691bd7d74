//! Finds znodes above a lock whose access control lists let other clients bypass the lock's own list.
//!
//! Servers check the permissions to create and to delete a znode on its *parent*. If everyone has all permissions
//! on the znode of a queue, which is the usual list, then the lists of the contenders do not protect
//! it: any client can delete the holder's znode and acquire the lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_client::{Acl, Client, Error, Permissions, ZnodePath};

/// A znode that gives everyone permissions that affect a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The znode: the lock's own, or its parent.
    pub node: ZnodePath,
    /// The permissions of everyone among [`Permissions::CREATE`], [`Permissions::DELETE`] and
    /// [`Permissions::ADMIN`].
    pub permissions: Permissions,
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (Permissions::CREATE, "create znodes below it"),
            (Permissions::DELETE, "delete znodes below it"),
            (Permissions::ADMIN, "change its access control list"),
        ];
        let may = words.into_iter().filter(|(one, _)| self.permissions.contains(*one));
        let may: Vec<_> = may.map(|(_, words)| words).collect();
        write!(f, "{}: everyone may {}", self.node, may.join(", "))
    }
}

/// Returns what everyone may do with the znode of a lock and with its parent, except `/`. Such permissions make the
/// lists of the znodes below largely useless. Empty if there are none, if the znodes do not exist,
/// or if this client may not read their lists. Costs one round trip.
///
/// # Errors
/// If no server replies.
///
/// # Session loss
/// Fails like any [`Reply`](lockkeeper_client::Reply).
///
/// # Cancel safety
/// Safe: it only reads.
pub async fn exposures(client: &Client, lock: &ZnodePath) -> Result<Vec<Exposure>, Error> {
    let nodes = [Some(lock.clone()), lock.parent()].into_iter().flatten();
    let nodes: Vec<_> = nodes.filter(|node| !node.is_root()).collect();
    let asked: Vec<_> = nodes.into_iter().map(|node| (client.acl(&node), node)).collect();

    let mut found = Vec::new();
    for (reply, node) in asked {
        match reply.await {
            Ok((acl, _)) => found.extend(exposure(node, &acl)),
            Err(error) if error.code().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn exposure(node: ZnodePath, acl: &[Acl]) -> Option<Exposure> {
    let harmful = [Permissions::CREATE, Permissions::DELETE, Permissions::ADMIN];
    let open: Vec<_> = acl.iter().filter(|entry| entry.scheme == "world").collect();
    let may = |one: &Permissions| open.iter().any(|entry| entry.permissions.contains(*one));
    let permissions = harmful.into_iter().filter(may).reduce(|a, b| a | b)?;
    Some(Exposure { node, permissions })
}

/// Warns once in the life of a handle, for clients that create znodes with a restrictive list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warned(Arc<AtomicBool>);

impl Warned {
    /// Checks for exposures, and logs a warning for each.
    pub(crate) async fn look(&self, client: &Client, lock: &ZnodePath) {
        if client.creates_open() || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        // A check that fails is ignored: the requests of the lock report such failures.
        for exposure in exposures(client, lock).await.unwrap_or_default() {
            tracing::warn!(
                "the access control list of {lock} does not protect it, because of {exposure}; \
                 change that znode's list"
            );
        }
    }
}
