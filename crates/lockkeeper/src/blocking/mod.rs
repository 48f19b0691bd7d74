//! The locks for programs without async: the same names, and calls that wait.
//!
//! ```text
//!   Client            a session, served by a thread of its own
//!   Lock<L>           any lock of this crate: Mutex, ReentrantMutex, ExclusiveNode, …
//!   Guard<G>          any guard of this crate
//! ```
//!
//! Guarantees  those of each lock. It can be used and dropped anywhere, in async code too, where
//!             waiting blocks the thread, so that nothing else on that thread goes on.
//! Not         a way to stop work when a lock is lost: a thread cannot be stopped. Ask
//!             [`Guard::ensure`](crate::Guard::ensure) before each step, or use tokens.
//! Cost        that of each lock, and a thread for each [`Client`].
//!
//! ```
//! # let (send, servers) = std::sync::mpsc::channel();
//! # let (done, wait) = tokio::sync::oneshot::channel::<()>();
//! # let server = std::thread::spawn(move || {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! #         let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
//! #         send.send(engine.connect_string()).unwrap();
//! #         wait.await.ok();
//! #     })
//! # });
//! # let servers = servers.recv()?;
//! use lockkeeper::blocking::{Client, Mutex};
//!
//! let client = Client::connect(&servers)?;
//! let lock = Mutex::new(&client, "/locks/orders")?;
//!
//! let guard = lock.acquire()?;
//! println!("held; fencing token {}", guard.token());
//! guard.verify()?;
//! guard.release()?;
//! # drop((lock, client));
//! # done.send(()).ok();
//! # server.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod runtime;

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{
    ClientBuilder, ConnectError, OpResult, Transaction, TransactionError, ZnodePath,
};

use crate::blocking::runtime::Runtime;
use crate::error::{AcquireError, BuildError, LossReason, ReleaseError, VerifyError};
use crate::guard;
use crate::locks::{self, Owner};

// ----- the client -----------------------------------------------------------------------------

/// A session with a ZooKeeper service, as [`crate::Client`]. Cheap to clone; all clones, their
/// locks and guards share the session.
///
/// The last of them waits at its end until the session is closed, for a second at most.
#[derive(Clone, Debug)]
pub struct Client {
    // Dropped before the runtime, which sees to the rest.
    client: lockkeeper_client::Client,
    runtime: Arc<Runtime>,
}

impl Client {
    /// Connects with the default options.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`], and if no thread can be started.
    pub fn connect(servers: &str) -> Result<Self, ConnectError> {
        Self::connect_with(lockkeeper_client::Client::builder(), servers)
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with(options: ClientBuilder, servers: &str) -> Result<Self, ConnectError> {
        let mut runtime = Runtime::start().map_err(|error| ConnectError::Io(error.to_string()))?;
        let client = runtime.wait(options.connect(servers))?;
        runtime.serves(&client);
        Ok(Self { client, runtime: Arc::new(runtime) })
    }

    /// Runs any future with this client's runtime, and waits for it.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.wait(future)
    }

    /// Ends the session, as [`crate::Client::close`].
    pub fn close(&self) {
        self.wait(self.client.close());
    }
}

impl Deref for Client {
    type Target = lockkeeper_client::Client;

    fn deref(&self) -> &lockkeeper_client::Client {
        &self.client
    }
}

// ----- locks ----------------------------------------------------------------------------------

/// A lock whose methods wait. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lock<L> {
    lock: L,
    runtime: Arc<Runtime>,
}

/// As [`crate::Mutex`].
pub type Mutex = Lock<locks::Mutex>;
/// As [`crate::ReentrantMutex`].
pub type ReentrantMutex = Lock<locks::ReentrantMutex>;
/// As [`crate::ExclusiveNode`].
pub type ExclusiveNode = Lock<locks::ExclusiveNode>;
/// As [`crate::MultiLock`].
pub type MultiLock = Lock<locks::MultiLock>;
/// As [`crate::RwLock`].
pub type RwLock = Lock<locks::RwLock>;
/// As [`crate::Semaphore`].
pub type Semaphore = Lock<locks::Semaphore>;

impl<L> Lock<L> {
    /// Makes a lock with options of its own one whose methods wait. It must be of this client:
    /// `Mutex::of(&client, lockkeeper::Mutex::builder(&client, "/locks/orders").build()?)`.
    pub fn of(client: &Client, lock: L) -> Self {
        Self { lock, runtime: Arc::clone(&client.runtime) }
    }

    fn guard<G>(&self, held: G) -> Guard<G> {
        Guard { held, runtime: Arc::clone(&self.runtime) }
    }
}

impl<L> Deref for Lock<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.lock
    }
}

/// How a lock is made, where a path is enough for that.
macro_rules! made_by_path {
    ($($lock:ident),*) => { $(
        impl $lock {
            /// The lock at a path such as `/locks/orders`. No I/O.
            ///
            /// # Errors
            /// If the path cannot be that of a lock.
            pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
                Ok(Self::of(client, locks::$lock::new(client, path)?))
            }
        }
    )* };
}

made_by_path!(Mutex, ReentrantMutex, ExclusiveNode, RwLock);

impl MultiLock {
    /// The locks at these paths. No I/O.
    ///
    /// # Errors
    /// As [`crate::MultiLock::new`].
    pub fn new<'a>(
        client: &Client,
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, BuildError> {
        Ok(Self::of(client, locks::MultiLock::new(client, paths)?))
    }
}

impl Semaphore {
    /// The semaphore at a path, with so many permits if nobody has said how many. No I/O.
    ///
    /// # Errors
    /// As [`crate::Semaphore::new`].
    pub fn new(client: &Client, path: &str, permits: u32) -> Result<Self, BuildError> {
        Ok(Self::of(client, locks::Semaphore::new(client, path, permits)?))
    }
}

/// One way to hold a lock: waiting, waiting for some time, not waiting.
macro_rules! held_by {
    ($($lock:ident: $acquire:ident $timeout:ident $try:ident => $guard:ty
        $(, $argument:ident: $type:ty)?;)*) => { $(
        impl $lock {
            #[doc = concat!("As [`crate::", stringify!($lock), "::", stringify!($acquire), "`].")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn $acquire(
                &self $(, $argument: $type)?
            ) -> Result<Guard<$guard>, AcquireError> {
                let held = self.runtime.wait(self.lock.$acquire($($argument)?))?;
                Ok(self.guard(held))
            }

            #[doc = concat!("As [`crate::", stringify!($lock), "::", stringify!($timeout), "`].")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn $timeout(
                &self $(, $argument: $type)?, timeout: Duration,
            ) -> Result<Guard<$guard>, AcquireError> {
                let held = self.runtime.wait(self.lock.$timeout($($argument,)? timeout))?;
                Ok(self.guard(held))
            }

            #[doc = concat!("As [`crate::", stringify!($lock), "::", stringify!($try), "`].")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn $try(
                &self $(, $argument: $type)?
            ) -> Result<Option<Guard<$guard>>, AcquireError> {
                let held = self.runtime.wait(self.lock.$try($($argument)?))?;
                Ok(held.map(|held| self.guard(held)))
            }
        }
    )* };
}

held_by! {
    Mutex: acquire acquire_timeout try_acquire => locks::MutexGuard;
    ReentrantMutex: acquire acquire_timeout try_acquire => locks::ReentrantGuard, owner: &Owner;
    ExclusiveNode: acquire acquire_timeout try_acquire => locks::ExclusiveGuard;
    MultiLock: acquire acquire_timeout try_acquire => locks::MultiGuard;
    RwLock: read read_timeout try_read => locks::RwLockReadGuard;
    RwLock: write write_timeout try_write => locks::RwLockWriteGuard;
    RwLock: upgradeable_read upgradeable_read_timeout try_upgradeable_read
        => locks::RwLockUpgradeableGuard;
    Semaphore: acquire_many acquire_many_timeout try_acquire_many => locks::SemaphoreGuard, permits: u32;
}

impl Semaphore {
    /// As [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn acquire(&self) -> Result<Guard<locks::SemaphoreGuard>, AcquireError> {
        self.acquire_many(1)
    }

    /// As [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn try_acquire(&self) -> Result<Option<Guard<locks::SemaphoreGuard>>, AcquireError> {
        self.try_acquire_many(1)
    }
}

impl ReentrantMutex {
    /// As [`crate::ReentrantMutex::release`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn release(&self, owner: &Owner) -> Result<(), ReleaseError> {
        self.runtime.wait(self.lock.release(owner))
    }
}

// ----- guards ---------------------------------------------------------------------------------

/// A guard whose methods wait. What asks no server is that of the guard itself.
#[must_use = "the lock is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard<G> {
    // Dropped before the runtime, which sees to the release.
    held: G,
    runtime: Arc<Runtime>,
}

impl<G> Guard<G> {
    /// Commits a transaction, such as `guard.transaction().set_data(&path, "1", None)`.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit(&self, transaction: Transaction) -> Result<Vec<OpResult>, TransactionError> {
        self.runtime.wait(transaction.commit())
    }
}

impl<G> Deref for Guard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.held
    }
}

/// What all guards can do.
macro_rules! guards {
    ($($guard:ty),*) => { $(
        impl Guard<$guard> {
            /// Gives the lock back, and waits until a server has confirmed it.
            ///
            /// # Errors
            /// As [`crate::Guard::release`].
            pub fn release(self) -> Result<(), ReleaseError> {
                let Self { held, runtime } = self;
                runtime.wait(held.release())
            }

            /// Has the servers confirm that the lock is held, as [`crate::Guard::verify`].
            ///
            /// # Errors
            /// As [`crate::Guard::verify`].
            pub fn verify(&self) -> Result<(), VerifyError> {
                self.runtime.wait(self.held.verify())
            }
        }
    )* };
}

guards! {
    locks::RwLockReadGuard, locks::MutexGuard, locks::ReentrantGuard, locks::ExclusiveGuard,
    locks::MultiGuard, locks::RwLockWriteGuard, locks::RwLockUpgradeableGuard,
    locks::SemaphoreGuard
}

/// What the guards of a single lock can do.
impl<G: Deref<Target = guard::Guard>> Guard<G> {
    /// Waits until the lock is lost, as [`crate::Guard::lost`].
    pub fn lost(&self) -> LossReason {
        self.runtime.wait(self.held.lost())
    }

    /// Waits until somebody asks for the lock, as [`crate::Guard::revoke_requested`].
    ///
    /// # Errors
    /// As [`crate::Guard::revoke_requested`].
    pub fn revoke_requested(&self) -> Result<(), LossReason> {
        self.runtime.wait(self.held.revoke_requested())
    }
}

impl Guard<locks::MultiGuard> {
    /// Waits until one of the locks is lost, as [`crate::MultiGuard::lost`].
    pub fn lost(&self) -> (&ZnodePath, LossReason) {
        self.runtime.wait(self.held.lost())
    }
}
