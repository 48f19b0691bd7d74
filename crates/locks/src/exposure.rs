//! Finds znodes above a lock that let strangers in despite its access control list.
//!
//! Servers check the permissions to create and to delete a znode on its *parent*. So a queue whose
//! znode everyone may do everything with, as most programs make them, is open whatever list its
//! contenders have: a stranger can delete the holder's znode, and hold.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkeeper_client::{Acl, Client, Error, Permissions, ZnodePath};

/// A znode with whose children everyone may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The znode: the lock's own, or the one above it.
    pub node: ZnodePath,
    /// What everyone may do, of [`Permissions::CREATE`], [`Permissions::DELETE`] and
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

/// Tells what everyone may do with the znode of a lock and with the one above it, except `/`, where
/// a list for what is below them is of little use then. Empty if that is nothing, they do not exist,
/// or this client may not read their lists. Costs one round trip.
///
/// # Errors
/// If no server answers.
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

/// Warns once in the life of a handle, for clients whose znodes not everyone may do everything with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warned(Arc<AtomicBool>);

impl Warned {
    /// Looks, and writes what it found to the log.
    pub(crate) async fn look(&self, client: &Client, lock: &ZnodePath) {
        if client.creates_open() || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        // A look that fails says nothing: the request that matters will tell.
        for exposure in exposures(client, lock).await.unwrap_or_default() {
            tracing::warn!(
                "the access control list of {lock} does not protect it, because of {exposure}; \
                 change that znode's list"
            );
        }
    }
}
