//! The locks that can be held by one at a time, for the suites that are about all of them.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    AcquireError, Client, Guard, LockPathError, Mutex, MutexGuard, ReleaseError, RwLock,
    RwLockWriteGuard, Semaphore, SemaphoreGuard,
};
use lockkeeper_testkit::backend::Participant;
use lockkeeper_wire::OpCode::{self, Create2, GetChildren2, GetData, RemoveWatches};

use crate::LOCK;

/// A lock that one at a time can hold.
pub(crate) trait Exclusive: Clone + Debug + Send + Sync + 'static {
    type Held: Held;

    /// What is sent to acquire it when it is free, all at once.
    const ACQUIRE: &[OpCode];
    /// What is sent until it is acquired behind one other.
    const CONTENDED: &[OpCode];

    fn new(client: &Client, path: &str) -> Result<Self, LockPathError>;

    fn acquire(&self) -> impl Future<Output = Result<Self::Held, AcquireError>> + Send;

    fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Self::Held, AcquireError>> + Send;

    fn try_acquire(&self) -> impl Future<Output = Result<Option<Self::Held>, AcquireError>> + Send;
}

/// Its guard.
pub(crate) trait Held: Deref<Target = Guard> + Debug + Send + Sync + 'static {
    fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send;
}

/// The lock that each test is about.
pub(crate) fn lock_of<L: Exclusive>(participant: &Participant) -> Result<L> {
    Ok(L::new(&participant.client, LOCK)?)
}

impl Exclusive for Mutex {
    type Held = MutexGuard;

    const ACQUIRE: &[OpCode] = &[Create2, GetChildren2];
    const CONTENDED: &[OpCode] = &[Create2, GetChildren2, GetData, GetData];

    fn new(client: &Client, path: &str) -> Result<Self, LockPathError> {
        Mutex::new(client, path)
    }

    async fn acquire(&self) -> Result<MutexGuard, AcquireError> {
        Mutex::acquire(self).await
    }

    async fn acquire_timeout(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        Mutex::acquire_timeout(self, timeout).await
    }

    async fn try_acquire(&self) -> Result<Option<MutexGuard>, AcquireError> {
        Mutex::try_acquire(self).await
    }
}

impl Held for MutexGuard {
    async fn release(self) -> Result<(), ReleaseError> {
        MutexGuard::release(self).await
    }
}

/// A read-write lock that nobody reads.
#[derive(Clone, Debug)]
pub(crate) struct WriteLock(RwLock);

impl Exclusive for WriteLock {
    type Held = RwLockWriteGuard;

    const ACQUIRE: &[OpCode] = &[Create2, GetChildren2];
    // A second listing: the writer ahead may have left a reader in its place.
    const CONTENDED: &[OpCode] = &[Create2, GetChildren2, GetData, GetData, GetChildren2];

    fn new(client: &Client, path: &str) -> Result<Self, LockPathError> {
        RwLock::new(client, path).map(Self)
    }

    async fn acquire(&self) -> Result<RwLockWriteGuard, AcquireError> {
        self.0.write().await
    }

    async fn acquire_timeout(&self, timeout: Duration) -> Result<RwLockWriteGuard, AcquireError> {
        self.0.write_timeout(timeout).await
    }

    async fn try_acquire(&self) -> Result<Option<RwLockWriteGuard>, AcquireError> {
        self.0.try_write().await
    }
}

impl Held for RwLockWriteGuard {
    async fn release(self) -> Result<(), ReleaseError> {
        RwLockWriteGuard::release(self).await
    }
}

/// A semaphore with one permit.
#[derive(Clone, Debug)]
pub(crate) struct OnePermit(Semaphore);

impl Exclusive for OnePermit {
    type Held = SemaphoreGuard;

    // It asks how many permits there are, and watches that number while it waits.
    const ACQUIRE: &[OpCode] = &[GetData, Create2, GetChildren2];
    const CONTENDED: &[OpCode] =
        &[GetData, Create2, GetChildren2, GetData, GetData, GetData, RemoveWatches];

    fn new(client: &Client, path: &str) -> Result<Self, LockPathError> {
        Semaphore::new(client, path, 1).map(Self)
    }

    async fn acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.0.acquire().await
    }

    async fn acquire_timeout(&self, timeout: Duration) -> Result<SemaphoreGuard, AcquireError> {
        self.0.acquire_timeout(1, timeout).await
    }

    async fn try_acquire(&self) -> Result<Option<SemaphoreGuard>, AcquireError> {
        self.0.try_acquire().await
    }
}

impl Held for SemaphoreGuard {
    async fn release(self) -> Result<(), ReleaseError> {
        SemaphoreGuard::release(self).await
    }
}
