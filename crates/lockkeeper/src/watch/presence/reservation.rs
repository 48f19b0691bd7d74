//! Which nodes have a presence in this process: of one client, a node has one at most. Two would take
//! each other's node for their own after a lost reply, as it belongs to the session of both.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use lockkeeper_client::{Client, ZnodePath};

/// By path, the clients that have a presence there.
static RESERVATIONS: LazyLock<Mutex<HashMap<ZnodePath, Vec<Client>>>> =
    LazyLock::new(Mutex::default);

fn reservations() -> MutexGuard<'static, HashMap<ZnodePath, Vec<Client>>> {
    RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to have a presence at a node. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    client: Client,
    path: ZnodePath,
}

impl Reservation {
    /// `None` if the client has a presence there.
    pub(super) fn take(client: &Client, path: &ZnodePath) -> Option<Self> {
        let mut reservations = reservations();
        let there = reservations.entry(path.clone()).or_default();
        if there.iter().any(|other| other.is_clone_of(client)) {
            return None;
        }
        there.push(client.clone());
        Some(Self { client: client.clone(), path: path.clone() })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reservations = reservations();
        let there = reservations.get_mut(&self.path);
        // Dropped when the lock is free again: the last handle of a client may end its session.
        let own = there.and_then(|there| {
            let own = there.iter().position(|other| other.is_clone_of(&self.client))?;
            Some(there.swap_remove(own))
        });
        if reservations.get(&self.path).is_some_and(Vec::is_empty) {
            reservations.remove(&self.path);
        }
        drop(reservations);
        drop(own);
    }
}
