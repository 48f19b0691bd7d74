//! A fair lock that its owner can enter again: a [`Mutex`] whose guard is shared by the entries of one owner.

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
/// [`Mutex`], it is clearer which code holds the lock. Cheap to clone. Handles with the same path, built from clones of
/// one client, are the same lock.
///
/// # Guarantees
///
/// - Those of [`Mutex`].
/// - The owner can enter again without a request to a server.
/// - The last of the owner's entries releases the lock.
///
/// # Not guaranteed
///
/// The lock is not owned by a thread or a task, as futures move between threads. Entries belong to an
/// [`Owner`], which is passed to the code that may enter. Two owners exclude each other, even if
/// they have the same name.
///
/// # Znodes
///
/// Those of [`Mutex`]: one contender for all entries.
///
/// # Cost
///
/// The first entry and the last release cost the same as with a [`Mutex`]. The others are free.
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

    /// Enters the lock: at once if the owner holds it, and otherwise after a wait in the queue. Costs no
    /// round trip if the owner holds it, and otherwise the same as [`Mutex::acquire`].
    ///
    /// # Errors
    /// Same as [`Mutex::acquire`], and [`AcquireError::OwnerLost`] if the owner has entries into a lost hold,
    /// which must end first.
    ///
    /// # Session loss
    /// Same as [`Mutex::acquire`]. A lost hold cannot be entered again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub async fn acquire(&self, owner: &Owner) -> Result<ReentrantGuard, AcquireError> {
        let owner_hold = owner.mutexes().owner_hold(self.mutex.client(), self.path());
        let entry = owner_hold.enter(self.mutex.acquire()).await?;
        Ok(ReentrantGuard { entry, owner: owner.clone() })
    }

    /// [`ReentrantMutex::acquire`] with a time limit: `timeout` covers the whole call. A limit below
    /// 10 ms makes a single try, like [`Mutex::acquire_timeout`]. Costs the same as [`ReentrantMutex::acquire`].
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
    /// otherwise. Costs no round trip if the owner holds it, and otherwise the same as [`Mutex::try_acquire`].
    ///
    /// # Errors
    /// Same as [`ReentrantMutex::acquire`], except the errors of waiting.
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

    /// The number of the owner's entries.
    pub fn entries(&self, owner: &Owner) -> usize {
        owner.mutexes().owner_hold(self.mutex.client(), self.path()).count()
    }

    /// Ends an entry that [`ReentrantGuard::keep`] has kept. The last entry of all releases the
    /// lock, which costs one round trip. Ending an earlier entry makes no request.
    ///
    /// # Errors
    /// [`ReleaseError::NotHeld`], which names the holder, if the owner does not have such an entry; finding
    /// the holder costs two round trips. Otherwise the same as [`Guard::release`].
    ///
    /// # Session loss
    /// The release fails, because the lock was lost.
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
    /// The owner of this entry.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Ends this entry. The last one releases the lock, which costs one round trip.
    ///
    /// # Errors
    /// Same as [`Guard::release`].
    ///
    /// # Session loss
    /// The release fails, because the lock was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.entry.leave().await
    }

    /// Leaves the entry with its owner, for code that acquires in one place and releases in
    /// another. [`ReentrantMutex::release`] ends it, or the drop of the owner's last clone.
    pub fn keep(self) {
        self.owner.mutexes().keep(self.entry);
    }
}

offers_guard!(ReentrantGuard, self => self.entry.guard());
