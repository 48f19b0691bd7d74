//! Which nodes have a presence in this process: of one client, a node has one at most. Two would take
//! each other's node for their own after a lost reply, as it belongs to the session of both.
//!
//! A presence that was ended or dropped has its node for a moment more. The next one waits for that, as it
//! would find the node taken by its own session.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use lockkeeper_client::{Client, ZnodePath};
use tokio::sync::watch;

/// By path, the clients that have a presence there.
static RESERVATIONS: LazyLock<Mutex<HashMap<ZnodePath, Vec<ReservedNode>>>> =
    LazyLock::new(Mutex::default);

fn reservations() -> MutexGuard<'static, HashMap<ZnodePath, Vec<ReservedNode>>> {
    RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that has a presence at a node.
struct ReservedNode {
    client: Client,
    in_use: Weak<()>,
    /// Closed when the reservation is given back.
    ended: watch::Receiver<()>,
}

/// The right to have a presence at a node. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    client: Client,
    path: ZnodePath,
    /// The other end of those who wait for it.
    _ended: watch::Sender<()>,
}

/// Says that somebody wants the presence. Without it, its node is about to be deleted.
#[derive(Debug)]
pub(super) struct InUse(Arc<()>);

/// Why there is no reservation.
enum Reserved {
    InUse,
    /// Until this is closed.
    Ending(watch::Receiver<()>),
}

impl Reservation {
    /// Waits for a presence there that is about to end; `None` if the client has one that is not.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn take(client: &Client, path: &ZnodePath) -> Option<(InUse, Self)> {
        loop {
            match Self::try_take(client, path) {
                Ok(taken) => return Some(taken),
                Err(Reserved::InUse) => return None,
                // Nothing is ever sent.
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
        // Dropped when the lock is free again: the last handle of a client may end its session.
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
