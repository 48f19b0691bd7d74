//! The locks that can be held by one at a time, for the suites that are about all of them.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    AcquireError, BuildError, Client, Election, ExclusiveGuard, ExclusiveNode, Guard, Leadership,
    Mutex, MutexGuard, Owner, ReentrantGuard, ReentrantMutex, ReleaseError, RwLock,
    RwLockWriteGuard, Semaphore, SemaphoreGuard, ZnodePath,
};
use lockkeeper_testkit::backend::{Participant, children_reach};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode::{self, Create2, Exists, GetChildren2, GetData, Multi, RemoveWatches};

use crate::rw_lock::replies;
use crate::{Acquiring, LOCK, lock_path, queue_up};

/// A lock that one at a time can hold.
pub(crate) trait Exclusive: Clone + Debug + Send + Sync + 'static {
    type Held: Held;

    /// What is sent to acquire it when it is free, all at once.
    const ACQUIRE: &[OpCode];
    /// What is sent until it is acquired behind one other.
    const CONTENDED: &[OpCode];
    /// What is sent to verify that it is held, all at once.
    const VERIFY: &[OpCode] = &[Multi];
    /// Whether waiters have nodes and an order.
    const FAIR: bool = true;

    fn new(client: &Client, path: &str) -> Result<Self, BuildError>;

    fn acquire(&self) -> impl Future<Output = Result<Self::Held, AcquireError>> + Send;

    fn acquire_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<Self::Held, AcquireError>> + Send;

    fn try_acquire(&self) -> impl Future<Output = Result<Option<Self::Held>, AcquireError>> + Send;

    /// What has the nodes of its contenders as children.
    fn line() -> ZnodePath {
        lock_path()
    }
}

/// A lock whose waiters are in a queue.
pub(crate) trait InLine: Exclusive {}

impl InLine for Mutex {}
impl InLine for WriteLock {}
impl InLine for OnePermit {}
impl InLine for FirstEntry {}

/// Its guard.
pub(crate) trait Held: Deref<Target = Guard> + Debug + Send + Sync + 'static {
    fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send;
}

/// What gives each of them back.
macro_rules! released_by {
    ($($guard:ident::$release:ident),*) => { $(
        impl Held for $guard {
            async fn release(self) -> Result<(), ReleaseError> {
                $guard::$release(self).await
            }
        }
    )* };
}

released_by!(
    MutexGuard::release,
    Leadership::resign,
    RwLockWriteGuard::release,
    SemaphoreGuard::release,
    ReentrantGuard::release,
    ExclusiveGuard::release
);

/// The lock that each test is about.
pub(crate) fn lock_of<L: Exclusive>(participant: &Participant) -> Result<L> {
    Ok(L::new(&participant.client, LOCK)?)
}

/// Returns when there are so many contenders. Where only the holder has a node, when there is that
/// one or not.
pub(crate) async fn contenders<L: Exclusive>(
    participant: &Participant,
    number: usize,
) -> Result<()> {
    let nodes = if L::FAIR { number } else { number.min(1) };
    children_reach(&participant.observer().await?, &L::line(), nodes).await
}

/// Starts to acquire the lock, and returns when this contender is number `place` in the queue. Without a
/// queue, it returns when the contender watches the holder's node.
pub(crate) async fn line_up<L: Exclusive>(
    participant: &Participant,
    place: usize,
) -> Result<Acquiring<L::Held>> {
    let lock = lock_of::<L>(participant)?;
    if L::FAIR {
        return queue_up(participant, &lock, place).await;
    }
    let looks = |passed: &[Passed]| replies(passed, OpCode::GetData);
    let before = looks(&participant.proxy.passed());
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    participant.proxy.passes(|passed| looks(passed) > before).await;
    Ok(acquiring)
}

/// The three ways to take a lock, by what its own type calls them.
macro_rules! taken_by {
    (
        $held:ident: $type:ident, $lock:ident => $inner:expr $(, $owner:expr)?;
        $take:ident, $within:ident, $try:ident
    ) => {
        type Held = $held;

        async fn acquire(&self) -> Result<$held, AcquireError> {
            let $lock = self;
            $type::$take($inner $(, $owner)?).await
        }

        async fn acquire_timeout(&self, timeout: Duration) -> Result<$held, AcquireError> {
            let $lock = self;
            $type::$within($inner, $($owner,)? timeout).await
        }

        async fn try_acquire(&self) -> Result<Option<$held>, AcquireError> {
            let $lock = self;
            $type::$try($inner $(, $owner)?).await
        }
    };
}

impl Exclusive for Mutex {
    taken_by!(MutexGuard: Mutex, lock => lock; acquire, acquire_timeout, try_acquire);

    const ACQUIRE: &[OpCode] = &[Create2, GetChildren2];
    const CONTENDED: &[OpCode] = &[Create2, GetChildren2, GetData, GetData];

    fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Mutex::new(client, path)
    }
}

/// Leads.
impl Exclusive for Election {
    taken_by!(Leadership: Election, lock => lock; campaign, campaign_timeout, try_campaign);

    const ACQUIRE: &[OpCode] = Mutex::ACQUIRE;
    const CONTENDED: &[OpCode] = Mutex::CONTENDED;

    fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Election::new(client, path)
    }
}

/// A read-write lock that is only used for writing.
#[derive(Clone, Debug)]
pub(crate) struct WriteLock(RwLock);

impl Exclusive for WriteLock {
    taken_by!(RwLockWriteGuard: RwLock, lock => &lock.0; write, write_timeout, try_write);

    const ACQUIRE: &[OpCode] = &[Create2, GetChildren2];
    // A second listing: the writer ahead may have left a reader in its place.
    const CONTENDED: &[OpCode] = &[Create2, GetChildren2, GetData, GetData, GetChildren2];

    fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        RwLock::new(client, path).map(Self)
    }
}

/// A semaphore with one permit.
#[derive(Clone, Debug)]
pub(crate) struct OnePermit(Semaphore);

impl Exclusive for OnePermit {
    taken_by!(SemaphoreGuard: Semaphore, lock => &lock.0; acquire, acquire_timeout, try_acquire);

    // It asks how many permits there are, and watches that number while it waits.
    const ACQUIRE: &[OpCode] = &[GetData, Create2, GetChildren2];
    const CONTENDED: &[OpCode] =
        &[GetData, Create2, GetChildren2, GetData, GetData, GetData, RemoveWatches];

    fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Semaphore::new(client, path, 1).map(Self)
    }
}

/// A reentrant mutex with first entries only: each acquire has an owner of its
/// own.
#[derive(Clone, Debug)]
pub(crate) struct FirstEntry(ReentrantMutex);

impl Exclusive for FirstEntry {
    taken_by!(
        ReentrantGuard: ReentrantMutex, lock => &lock.0, &Owner::default();
        acquire, acquire_timeout, try_acquire
    );

    const ACQUIRE: &[OpCode] = Mutex::ACQUIRE;
    const CONTENDED: &[OpCode] = Mutex::CONTENDED;

    fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        ReentrantMutex::new(client, path).map(Self)
    }
}

impl Exclusive for ExclusiveNode {
    taken_by!(ExclusiveGuard: ExclusiveNode, lock => lock; acquire, acquire_timeout, try_acquire);

    const ACQUIRE: &[OpCode] = &[Create2];
    const CONTENDED: &[OpCode] = &[Create2, GetData, Create2];
    // Whose node it is: others have the same name.
    const VERIFY: &[OpCode] = &[Multi, Exists];
    const FAIR: bool = false;

    fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        ExclusiveNode::new(client, path)
    }

    fn line() -> ZnodePath {
        lock_path().parent().expect("not the root")
    }
}
