//! The nodes that have a presence in this process. A client has at most one presence at a node: two would take
//! each other's node for their own after a lost reply, because it belongs to the session of both.
//!
//! The node of a presence that was ended or dropped exists for a moment more. The next presence waits for its
//! deletion; otherwise it would find the node taken by its own session.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use lockkeeper_client::{Client, ZnodePath};
use tokio::sync::watch;

/// The clients that have a presence, by path.
static RESERVATIONS: LazyLock<Mutex<HashMap<ZnodePath, Vec<ReservedNode>>>> =
    LazyLock::new(Mutex::default);

fn reservations() -> MutexGuard<'static, HashMap<ZnodePath, Vec<ReservedNode>>> {
    RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that has a presence at a node.
struct ReservedNode {
    client: Client,
    in_use: Weak<()>,
    /// Closed when the reservation is released.
    ended: watch::Receiver<()>,
}

/// The right to have a presence at a node. Released when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    client: Client,
    path: ZnodePath,
    /// Wakes those that wait for the reservation.
    _ended: watch::Sender<()>,
}

/// Shows that the presence is in use. After it is dropped, the node is about to be deleted.
#[derive(Debug)]
pub(super) struct InUse(Arc<()>);

/// Why the reservation was refused.
enum Reserved {
    InUse,
    /// The earlier presence is ending, until this is closed.
    Ending(watch::Receiver<()>),
}

impl Reservation {
    /// Waits for an earlier presence that is ending; `None` if the client has one that is in use.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn take(client: &Client, path: &ZnodePath) -> Option<(InUse, Self)> {
        loop {
            match Self::try_take(client, path) {
                Ok(taken) => return Some(taken),
                Err(Reserved::InUse) => return None,
                // No value is ever sent.
                Err(Reserved::Ending(mut ended)) => drop(ended.changed().await),
            }
        }
    }

    fn try_take(client: &Client, path: &ZnodePath) -> Result<(InUse, Self), Reserved> {
        let mut reservations = reservations();
        let there = reservations.entry(path.clone()).or_default();
        if let Some(other) = there.iter().find(|other| other.client.is_clone_of(client)) {
            return Err(match other.in_use.strong_count() {
                0 => Reserved::Ending(other.ended.clone()),
                _ => Reserved::InUse,
            });
        }

        let (in_use, (_ended, ended)) = (InUse(Arc::default()), watch::channel(()));
        there.push(ReservedNode {
            client: client.clone(),
            in_use: Arc::downgrade(&in_use.0),
            ended,
        });
        Ok((in_use, Self { client: client.clone(), path: path.clone(), _ended }))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reservations = reservations();
        let there = reservations.get_mut(&self.path);
        // Dropped after the lock is released, because the last handle of a client may end its session.
        let own = there.and_then(|there| {
            let own = there.iter().position(|other| other.client.is_clone_of(&self.client))?;
            Some(there.swap_remove(own))
        });
        if reservations.get(&self.path).is_some_and(Vec::is_empty) {
            reservations.remove(&self.path);
        }
        drop(reservations);
        drop(own);
    }
}
