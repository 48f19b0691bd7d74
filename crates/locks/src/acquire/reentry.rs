//! Counted re-entry: all entries of one owner share one hold of the lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lockkeeper_client::{Client, ZnodePath};

use crate::attempt::unless_closed;
use crate::error::{AcquireError, ReleaseError};
use crate::guard::Guard;
use crate::guard::state::HolderState;

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

/// One entry. The last one releases the lock.
#[derive(Debug)]
pub(crate) struct OwnerEntry<G> {
    hold: Arc<G>,
    owner_hold: Arc<OwnerHold<G>>,
}

/// The hold of one owner on one lock, if any. Only one task at a time enters.
#[derive(Debug)]
pub(crate) struct OwnerHold<G> {
    client: Client,
    path: ZnodePath,
    /// Locked while a task of this owner waits for the lock. The owner's other tasks wait for the outcome, because
    /// in the queue they would wait behind their own owner.
    hold: tokio::sync::Mutex<Weak<G>>,
}

/// All holds and kept entries of one owner, for locks of one type.
#[derive(Debug)]
pub(crate) struct OwnerHolds<G> {
    holds: Mutex<Vec<Weak<OwnerHold<G>>>>,
    /// Entries that are kept without a guard.
    kept: Mutex<Vec<OwnerEntry<G>>>,
}

impl<G> Default for OwnerHolds<G> {
    fn default() -> Self {
        Self { holds: Mutex::default(), kept: Mutex::default() }
    }
}

impl<G: Held> OwnerHolds<G> {
    /// The owner's hold of a lock. Two handles are the same lock if they use clones of one client and have the
    /// same path.
    pub(crate) fn owner_hold(&self, client: &Client, path: &ZnodePath) -> Arc<OwnerHold<G>> {
        let mut holds = locked(&self.holds);
        holds.retain(|owner_hold| owner_hold.strong_count() > 0);
        let known = holds
            .iter()
            .filter_map(Weak::upgrade)
            .find(|owner_hold| owner_hold.is_of(client, path));
        known.unwrap_or_else(|| {
            let (client, path) = (client.clone(), path.clone());
            let owner_hold = Arc::new(OwnerHold { client, path, hold: Default::default() });
            holds.push(Arc::downgrade(&owner_hold));
            owner_hold
        })
    }

    /// Keeps an entry until it is taken back.
    pub(crate) fn keep(&self, entry: OwnerEntry<G>) {
        locked(&self.kept).push(entry);
    }

    /// Takes back the last entry that was kept for a lock.
    pub(crate) fn take_back(&self, client: &Client, path: &ZnodePath) -> Option<OwnerEntry<G>> {
        let mut kept = locked(&self.kept);
        let index = kept.iter().rposition(|entry| entry.owner_hold.is_of(client, path))?;
        Some(kept.remove(index))
    }
}

impl<G: Held> OwnerHold<G> {
    /// Enters again if the owner holds the lock, and acquires it otherwise.
    pub(crate) async fn enter(
        self: Arc<Self>,
        acquire: impl Future<Output = Result<G, AcquireError>>,
    ) -> Result<OwnerEntry<G>, AcquireError> {
        let mut hold = unless_closed(&self.client, &self.path, self.hold.lock()).await?;
        let held = loop {
            match self.current(&hold)? {
                // No entry is granted in jeopardy. The state shows how the jeopardy ends.
                Some(held) if held.guard().state() == HolderState::Jeopardy => {
                    let _ = held.guard().held_again().await;
                }
                Some(held) => break held,
                None => break Arc::new(acquire.await?),
            }
        };

        *hold = Arc::downgrade(&held);
        drop(hold);
        Ok(OwnerEntry { hold: held, owner_hold: self })
    }

    /// Like [`OwnerHold::enter`], but does not wait.
    pub(crate) async fn try_enter(
        self: Arc<Self>,
        acquire: impl Future<Output = Result<Option<G>, AcquireError>>,
    ) -> Result<Option<OwnerEntry<G>>, AcquireError> {
        // Another task of this owner is waiting for the lock.
        let Ok(mut hold) = self.hold.try_lock() else {
            return AcquireError::unless_closed(&self.client, &self.path);
        };
        let held = match self.current(&hold)? {
            Some(held) if held.guard().state() == HolderState::Jeopardy => return Ok(None),
            Some(held) => held,
            None => match acquire.await? {
                Some(held) => Arc::new(held),
                None => return Ok(None),
            },
        };
        *hold = Arc::downgrade(&held);
        drop(hold);
        Ok(Some(OwnerEntry { hold: held, owner_hold: self }))
    }

    /// The number of entries.
    pub(crate) fn count(&self) -> usize {
        self.hold.try_lock().map_or(0, |hold| hold.strong_count())
    }

    /// The owner's hold, if any. A lost hold is an error, and cannot be entered again. Waiting for a new hold
    /// could last forever if the caller itself has an entry into the lost one.
    fn current(&self, hold: &Weak<G>) -> Result<Option<Arc<G>>, AcquireError> {
        match hold.upgrade().map(|held| (held.guard().state(), held)) {
            Some((HolderState::Lost(reason), _)) => {
                Err(AcquireError::OwnerLost { path: self.path.clone(), reason })
            }
            held => Ok(held.map(|(_, held)| held)),
        }
    }

    fn is_of(&self, client: &Client, path: &ZnodePath) -> bool {
        self.path == *path && self.client.is_clone_of(client)
    }
}

impl<G: Held> OwnerEntry<G> {
    pub(crate) fn guard(&self) -> &Guard {
        self.hold.guard()
    }

    /// Ends this entry. The last one releases the lock.
    pub(crate) async fn leave(self) -> Result<(), ReleaseError> {
        let state = self.guard().state();
        // If entries leave at the same time, exactly one of them is the last.
        match (Arc::into_inner(self.hold), state) {
            (Some(last), _) => last.give_back().await,
            (None, HolderState::Lost(reason)) => Err(ReleaseError::Lost(reason)),
            (None, _) => Ok(()),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
