//! Deletes the nodes of idle locks from a queue, which should contain only contenders.
//!
//! The node of a lock below this one blocks the queue until the server removes it, a minute or more
//! after its last use. A contender that finds such a node deletes it. This does not affect other clients: the
//! server refuses to delete a node with children, and a client that is about to create a child
//! creates the parent again, as it does after the server has removed it.

use bytes::Bytes;
use lockkeeper_client::{Client, Error, ErrorCode, SessionId, Stat, ZnodePath};

use crate::permit_format::PermitFormat;
use crate::profile::Profile;

/// With more children than this, the node is a directory of locks and not a forgotten lock.
const MAX_IDLE_LOCKS: usize = 32;

/// Deletes children of a lock that are idle locks themselves. Returns whether all children with these
/// names are gone.
pub(crate) async fn clear(
    client: &Client,
    lock: &ZnodePath,
    profile: Profile,
    names: &[String],
) -> bool {
    // kazoo creates parent nodes once, and fails when they are gone.
    if profile == Profile::Kazoo || names.len() > MAX_IDLE_LOCKS {
        return false;
    }
    let nodes: Vec<_> = names.iter().filter_map(|name| lock.child(name).ok()).collect();
    let asked: Vec<_> = nodes.iter().map(|node| (node, client.data(node))).collect();
    let mut idle = Vec::new();
    for (node, reply) in asked {
        match reply.await {
            Ok((data, stat)) if is_idle_lock(&data, &stat) => idle.push((node, stat.version)),
            Err(error) if is_gone(&error) => {}
            _ => return false,
        }
    }

    // The version protects data that was written after the read.
    let asked = idle.iter().map(|(node, version)| client.delete(node, Some(*version)));
    let asked: Vec<_> = asked.collect();
    let mut cleared = true;
    for reply in asked {
        cleared &= reply.await.map_or_else(|error| is_gone(&error), |()| true);
    }
    cleared
}

/// Whether the node had contenders, does not have any now, and has nothing else to keep. Servers do not
/// report whether a node is a container.
fn is_idle_lock(data: &Bytes, stat: &Stat) -> bool {
    let was_used = stat.cversion > 0 && stat.num_children == 0;
    let is_plain = data.is_empty() || PermitFormat::Text.read(data).is_some();
    was_used && is_plain && stat.ephemeral_owner == SessionId::NONE
}

fn is_gone(error: &Error) -> bool {
    error.code() == Some(ErrorCode::NoNode)
}
