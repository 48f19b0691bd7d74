//! Counted re-entry: one hold of a lock, shared by all entries of one owner.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lockkeeper_client::{Client, ZnodePath};

use crate::error::{AcquireError, ReleaseError};
use crate::guard::Guard;
use crate::guard::state::State;

/// A hold that entries can share.
pub(crate) trait Held {
    fn guard(&self) -> &Guard;
    async fn give_back(self) -> Result<(), ReleaseError>;
}

impl Held for Guard {
    fn guard(&self) -> &Guard {
        self
    }

    async fn give_back(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

/// One entry. The lock is given back with the last one.
#[derive(Debug)]
pub(crate) struct Entry<G> {
    hold: Arc<G>,
    door: Arc<Door<G>>,
}

/// Where the entries of one owner into one lock pass, one at a time.
#[derive(Debug)]
pub(crate) struct Door<G> {
    client: Client,
    path: ZnodePath,
    /// Locked while somebody waits for the lock: others of this owner must wait for the outcome,
    /// or they would stand in line behind their own owner.
    hold: tokio::sync::Mutex<Weak<G>>,
}

/// All that one owner has to do with locks of one type.
#[derive(Debug)]
pub(crate) struct Entries<G> {
    doors: Mutex<Vec<Weak<Door<G>>>>,
    /// Entries that no guard stands for.
    kept: Mutex<Vec<Entry<G>>>,
}

impl<G> Default for Entries<G> {
    fn default() -> Self {
        Self { doors: Mutex::default(), kept: Mutex::default() }
    }
}

impl<G: Held> Entries<G> {
    /// The door of a lock. Locks of clones of one client are the same if their paths are.
    pub(crate) fn door(&self, client: &Client, path: &ZnodePath) -> Arc<Door<G>> {
        let mut doors = locked(&self.doors);
        doors.retain(|door| door.strong_count() > 0);
        let known = doors.iter().filter_map(Weak::upgrade).find(|door| door.is_of(client, path));
        known.unwrap_or_else(|| {
            let (client, path) = (client.clone(), path.clone());
            let door = Arc::new(Door { client, path, hold: Default::default() });
            doors.push(Arc::downgrade(&door));
            door
        })
    }

    /// Keeps an entry until it is taken back.
    pub(crate) fn keep(&self, entry: Entry<G>) {
        locked(&self.kept).push(entry);
    }

    /// Takes back an entry that was kept; the last one of a lock first.
    pub(crate) fn take_back(&self, client: &Client, path: &ZnodePath) -> Option<Entry<G>> {
        let mut kept = locked(&self.kept);
        let index = kept.iter().rposition(|entry| entry.door.is_of(client, path))?;
        Some(kept.remove(index))
    }
}

impl<G: Held> Door<G> {
    /// Enters again if the owner holds the lock, and else acquires it.
    pub(crate) async fn enter(
        self: Arc<Self>,
        acquire: impl Future<Output = Result<G, AcquireError>>,
    ) -> Result<Entry<G>, AcquireError> {
        let mut hold = self.hold.lock().await;
        let held = match self.current(&hold)? {
            Some(held) => held,
            None => Arc::new(acquire.await?),
        };
        *hold = Arc::downgrade(&held);
        drop(hold);
        Ok(Entry { hold: held, door: self })
    }

    /// The same without waiting.
    pub(crate) async fn try_enter(
        self: Arc<Self>,
        acquire: impl Future<Output = Result<Option<G>, AcquireError>>,
    ) -> Result<Option<Entry<G>>, AcquireError> {
        // Another task of this owner waits in line.
        let Ok(mut hold) = self.hold.try_lock() else { return Ok(None) };
        let held = match self.current(&hold)? {
            Some(held) => held,
            None => match acquire.await? {
                Some(held) => Arc::new(held),
                None => return Ok(None),
            },
        };
        *hold = Arc::downgrade(&held);
        drop(hold);
        Ok(Some(Entry { hold: held, door: self }))
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> usize {
        self.hold.try_lock().map_or(0, |hold| hold.strong_count())
    }

    /// The hold, if there is one. One that was lost can never be entered again; who would wait for
    /// another one may be waiting for their own earlier entries to end.
    fn current(&self, hold: &Weak<G>) -> Result<Option<Arc<G>>, AcquireError> {
        match hold.upgrade().map(|held| (held.guard().state(), held)) {
            Some((State::Lost(reason), _)) => {
                Err(AcquireError::OwnerLost { path: self.path.clone(), reason })
            }
            held => Ok(held.map(|(_, held)| held)),
        }
    }

    fn is_of(&self, client: &Client, path: &ZnodePath) -> bool {
        self.path == *path && self.client.is_clone_of(client)
    }
}

impl<G: Held> Entry<G> {
    pub(crate) fn guard(&self) -> &Guard {
        self.hold.guard()
    }

    /// Ends this entry; the last one gives the lock back.
    pub(crate) async fn leave(self) -> Result<(), ReleaseError> {
        let state = self.guard().state();
        // Of entries that leave at the same time, exactly one is the last.
        match (Arc::into_inner(self.hold), state) {
            (Some(last), _) => last.give_back().await,
            (None, State::Lost(reason)) => Err(ReleaseError::Lost(reason)),
            (None, _) => Ok(()),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
