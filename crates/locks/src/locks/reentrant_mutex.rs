//! A fair lock that its owner can enter again: a [`Mutex`] whose guard the entries of one owner share.

use std::time::Duration;

use lockkeeper_client::{Client, ZnodePath};

use crate::acquire::queue_handle::within;
use crate::acquire::reentry::{Held, OwnerEntry};
use crate::admin::inspect::LockQueue;
use crate::error::{AcquireError, BuildError, ReleaseError};
use crate::guard::{Guard, offers_guard};
use crate::locks::mutex::{Mutex, MutexBuilder, MutexGuard};
use crate::locks::owner::Owner;

/// A fair lock that its owner can enter again.
///
/// Use it only where code that holds the lock calls code that acquires it: with a
/// [`Mutex`], it is clearer who holds. Cheap to clone; all that are made of clones of one client
/// and have the same path are the same lock.
///
/// # Guarantees
///
/// - Those of [`Mutex`].
/// - The owner enters again without a request to a server.
/// - The lock is given back with the last of the owner's entries.
///
/// # Not guaranteed
///
/// No thread or task owns the lock, as futures move between threads. Entries belong to an
/// [`Owner`], which is passed to the code that may enter. Two owners exclude each other, even if
/// they have the same name.
///
/// # Znodes
///
/// Those of [`Mutex`]: one contender for all entries.
///
/// # Cost
///
/// The first entry and the last release cost what they cost with a [`Mutex`]. The others are free.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Owner, ReentrantMutex};
///
/// let lock = ReentrantMutex::new(&client, "/locks/orders")?;
/// let (me, other) = (Owner::new("import"), Owner::new("report"));
///
/// let outer = lock.acquire(&me).await?;
/// let inner = lock.acquire(&me).await?;
/// assert_eq!(lock.entries(&me), 2);
/// outer.release().await?;
/// assert!(lock.try_acquire(&other).await?.is_none(), "one entry is left");
/// inner.release().await?;
/// assert!(lock.try_acquire(&other).await?.is_some());
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReentrantMutex {
    mutex: Mutex,
}

lockkeeper_client::shown_by_path!(ReentrantMutex);

/// The options of a [`ReentrantMutex`].
pub type ReentrantMutexBuilder = MutexBuilder<ReentrantMutex>;

impl ReentrantMutexBuilder {
    /// Builds the lock. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn build(self) -> Result<ReentrantMutex, BuildError> {
        Ok(ReentrantMutex { mutex: self.mutex()? })
    }
}

impl ReentrantMutex {
    /// The lock at a path such as `/locks/orders`. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a lock.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The options of a lock.
    pub fn builder(client: &Client, path: &str) -> ReentrantMutexBuilder {
        MutexBuilder::new(client, path)
    }

    /// The lock's path.
    pub fn path(&self) -> &ZnodePath {
        self.mutex.path()
    }

    /// Enters the lock: at once if the owner holds it, or else after a wait in the queue. Costs no
    /// round trip, or what [`Mutex::acquire`] costs.
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`], and [`AcquireError::OwnerLost`] if the owner has entries into a hold that
    /// was lost: they must end first.
    ///
    /// # Session loss
    /// Same as [`Mutex::acquire`]. A lock that was lost is not entered again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub async fn acquire(&self, owner: &Owner) -> Result<ReentrantGuard, AcquireError> {
        let owner_hold = owner.mutexes().owner_hold(self.mutex.client(), self.path());
        let entry = owner_hold.enter(self.mutex.acquire()).await?;
        Ok(ReentrantGuard { entry, owner: owner.clone() })
    }

    /// Enters the lock, but does not wait for longer than `timeout`, which covers everything. With less than
    /// 10 ms it tries once, as [`Mutex::acquire_timeout`]. Costs the same as [`ReentrantMutex::acquire`].
    ///
    /// # Errors
    /// Same as [`ReentrantMutex::acquire`], and [`AcquireError::Timeout`].
    ///
    /// # Session loss
    /// Same as [`ReentrantMutex::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`ReentrantMutex::acquire`].
    pub async fn acquire_timeout(
        &self,
        owner: &Owner,
        timeout: Duration,
    ) -> Result<ReentrantGuard, AcquireError> {
        let try_once = self.try_acquire(owner);
        within(self.mutex.client(), self.path(), timeout, || self.acquire(owner), try_once).await
    }

    /// Enters the lock only if the owner holds it, or no contender holds it or waits for it; `None`
    /// otherwise. Costs no round trip, or what [`Mutex::try_acquire`] costs.
    ///
    /// # Errors
    /// Same as [`ReentrantMutex::acquire`], except those of waiting.
    ///
    /// # Session loss
    /// Same as [`ReentrantMutex::acquire`].
    ///
    /// # Cancel safety
    /// Same as [`ReentrantMutex::acquire`].
    pub async fn try_acquire(&self, owner: &Owner) -> Result<Option<ReentrantGuard>, AcquireError> {
        let owner_hold = owner.mutexes().owner_hold(self.mutex.client(), self.path());
        let entry = owner_hold.try_enter(self.mutex.try_acquire()).await?;
        Ok(entry.map(|entry| ReentrantGuard { entry, owner: owner.clone() }))
    }

    /// How many entries the owner has.
    pub fn entries(&self, owner: &Owner) -> usize {
        owner.mutexes().owner_hold(self.mutex.client(), self.path()).count()
    }

    /// Ends an entry that was made by [`ReentrantGuard::keep`]; the last entry of all gives the
    /// lock back. Costs one round trip then, and none before.
    ///
    /// # Errors
    /// [`ReleaseError::NotHeld`], which names the holder, if the owner has no such entry; finding
    /// that out costs two round trips. Else as [`Guard::release`].
    ///
    /// # Session loss
    /// The release fails; the lock was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(&self, owner: &Owner) -> Result<(), ReleaseError> {
        match owner.mutexes().take_back(self.mutex.client(), self.path()) {
            Some(entry) => entry.leave().await,
            None => Err(self.not_held(owner).await),
        }
    }

    async fn not_held(&self, owner: &Owner) -> ReleaseError {
        let holder = if self.entries(owner) > 0 {
            Some(format!("{owner}, by guards that were not kept,"))
        } else {
            match LockQueue::inspect(self.mutex.client(), self.path()).await {
                Ok(queue) => queue.and_then(|queue| queue.holders().next().map(|e| e.to_string())),
                Err(error) => Some(format!("an unknown owner ({error})")),
            }
        };
        ReleaseError::NotHeld { path: self.path().clone(), owner: owner.to_string(), holder }
    }
}

impl Held for MutexGuard {
    fn guard(&self) -> &Guard {
        self
    }

    async fn give_back(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

/// One entry into a [`ReentrantMutex`]. What a holder may believe and do is described at
/// [`Guard`]; it is the same for all entries of one owner.
#[must_use = "the entry ends when the guard is dropped"]
pub struct ReentrantGuard {
    entry: OwnerEntry<MutexGuard>,
    owner: Owner,
}

impl ReentrantGuard {
    /// Whose entry this is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Ends this entry. The last one gives the lock back, which costs one round trip.
    ///
    /// # Errors
    /// Same as [`Guard::release`].
    ///
    /// # Session loss
    /// The release fails; the lock was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.entry.leave().await
    }

    /// Leaves the entry with its owner, for code that acquires in one place and releases in
    /// another: [`ReentrantMutex::release`] ends it, or the end of the owner's last clone.
    pub fn keep(self) {
        self.owner.mutexes().keep(self.entry);
    }
}

offers_guard!(ReentrantGuard, self => self.entry.guard());
