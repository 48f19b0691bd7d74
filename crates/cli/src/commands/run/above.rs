//! A name below a lock that is in use.
//!
//! The first use of a lock makes its znode, as a child of the one above. If that is a lock as well, its
//! queue then has a child that is no contender, and whoever comes next is refused until the lock below is
//! idle. So the newcomer is refused. `docs/decisions/0021-locks-below-locks.md` has the reasons.

use lockkeeper::inspect::LockQueue;
use lockkeeper::{Client, ZnodePath};

use crate::shared::exit::{Exit, Failure};
use crate::shared::view;

/// With more children it is a folder of locks, and not worth a listing.
const MOST_CHILDREN: i32 = 1_000;

/// Refuses a lock that was not used before, if the lowest znode above it is a lock in use.
pub(super) async fn check(client: &Client, lock: &ZnodePath) -> Result<(), Failure> {
    let Some(above) = lowest_above(client, lock).await else { return Ok(()) };
    // What cannot be seen now fails in so many words when the lock is asked for.
    let Ok(Some(queue)) = LockQueue::inspect(client, &above).await else { return Ok(()) };
    if queue.entries.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{lock} would be below {above}, which is a lock in use{}: a lock has no other locks below it",
        view::held_by(&queue)
    );
    Err(Failure::new(Exit::Data, message).advise("use another name"))
}

/// The znode that is to get a child when the lock is used; `None` if the lock has a znode already, or if
/// that cannot be seen.
async fn lowest_above(client: &Client, lock: &ZnodePath) -> Option<ZnodePath> {
    let mut above = lock.parent()?;
    let (own, mut found) = tokio::join!(client.exists(lock), client.exists(&above));
    if own.ok()?.is_some() {
        return None;
    }
    loop {
        match found.ok()? {
            Some(stat) if stat.num_children > MOST_CHILDREN => return None,
            Some(_) => return Some(above),
            None => above = above.parent()?,
        }
        found = client.exists(&above).await;
    }
}
