//! A lock name below a lock that is in use.
//!
//! The first use of a lock creates its znode as a child of the znode above. If that is a lock as well, its queue then
//! has a child that is not a contender, and all later contenders are rejected until the lower lock is idle. So the
//! command rejects the lower lock instead. `docs/decisions/0021-locks-below-locks.md` has the reasons.

use lockkeeper::inspect::LockQueue;
use lockkeeper::{Client, ZnodePath};

use crate::shared::exit::{Exit, Failure};
use crate::shared::view;

/// A znode with more children is a folder of locks and is not listed.
const MAX_CHILDREN: i32 = 1_000;

/// Rejects a lock without a znode if its nearest existing ancestor is a lock in use.
pub(super) async fn check(client: &Client, lock: &ZnodePath) -> Result<(), Failure> {
    let Some(above) = lowest_above(client, lock).await else { return Ok(()) };
    // A failed read is ignored: the request for the lock reports the error.
    let Ok(Some(queue)) = LockQueue::inspect(client, &above).await else { return Ok(()) };
    if queue.entries.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{lock} would be below {above}, which is a lock in use{}: locks cannot be nested",
        view::held_by(&queue)
    );
    Err(Failure::new(Exit::Data, message).advise("use another name"))
}

/// The nearest existing ancestor, which gets a child when the lock is used; `None` if the lock already has a znode, or
/// if the ancestor cannot be read.
async fn lowest_above(client: &Client, lock: &ZnodePath) -> Option<ZnodePath> {
    let mut above = lock.parent()?;
    let (own, mut found) = tokio::join!(client.exists(lock), client.exists(&above));
    if own.ok()?.is_some() {
        return None;
    }
    loop {
        match found.ok()? {
            Some(stat) if stat.num_children > MAX_CHILDREN => return None,
            Some(_) => return Some(above),
            None => above = above.parent()?,
        }
        found = client.exists(&above).await;
    }
}
