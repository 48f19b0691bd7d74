//! Guards whose methods wait.

#![expect(clippy::disallowed_types, reason = "wall time, for people to read")]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockkeeper_client::{Instant, SessionId, ZnodePath};

use crate::blocking::forward::{same, waits, waits_for_end};
use crate::blocking::runtime::Runtime;
use crate::blocking::transaction::Transaction;
use crate::error::{AcquireError, EnsureError, LossReason, ReleaseError, VerifyError};
use crate::guard;
use crate::guard::state::State;
use crate::locks::{self, Owner, UpgradeError};
use crate::names;
use crate::owner_info::RevokeRequest;
use crate::token::FencingToken;

/// Any guard of this crate, whose methods wait. What a holder may believe and do is described at
/// [`crate::Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<G> {
    // Dropped before the runtime, which sees to the release.
    pub(super) inner: G,
    pub(super) runtime: Arc<Runtime>,
}

impl<G> Guard<G> {
    pub(super) fn new(inner: G, runtime: &Arc<Runtime>) -> Self {
        Self { inner, runtime: Arc::clone(runtime) }
    }

    /// The guard for async code, and for futures that are given to
    /// [`Client::wait`](crate::blocking::Client::wait), as that of [`crate::Guard::run`].
    pub fn as_async(&self) -> &G {
        &self.inner
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// What the guards of a single lock can do.
impl<G: Deref<Target = guard::Guard>> Guard<G> {
    /// As [`crate::Guard::ensure`].
    ///
    /// # Errors
    /// As [`crate::Guard::ensure`].
    pub fn ensure(&self, wanted: Duration) -> Result<(), EnsureError> {
        self.inner.ensure(wanted)
    }

    /// Has the lock outlast its deadline, as [`crate::Guard::allow_jeopardy`]. A thread cannot be paused
    /// from outside, so there is no `run_through` here: call [`Guard::checkpoint`] before each step of
    /// the work, which must end before the deadline.
    ///
    /// # Errors
    /// As [`crate::Guard::allow_jeopardy`].
    pub fn allow_jeopardy(&self) -> Result<(), LossReason> {
        self.inner.allow_jeopardy()
    }

    /// As [`crate::Guard::transaction`].
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.inner.transaction(), &self.runtime)
    }

    /// Waits until the lock is lost, as [`crate::Guard::lost`].
    pub fn lost(&self) -> LossReason {
        self.runtime.wait(self.inner.lost())
    }
}

same! { Guard<G> where [G: Deref<Target = guard::Guard>], "Guard":
    token() -> FencingToken;
    path() -> &ZnodePath;
    node() -> &ZnodePath;
    session() -> SessionId;
    state() -> State;
    is_held() -> bool;
    deadline() -> Option<Instant>;
    remaining() -> Duration;
    revoke_request() -> Option<RevokeRequest>;
    note_held_since(since: SystemTime);
}

waits! { Guard<G> where [G: Deref<Target = guard::Guard>], "Guard":
    /// Makes sure that the lock is held for some time to come, and waits for it. A grace that is not zero
    /// allows jeopardy.
    checkpoint(wanted: Duration, grace: Duration) -> Result<(), EnsureError>;
    /// Waits until the lock is in jeopardy.
    jeopardy() -> Result<(), LossReason>;
    /// Waits until the lock is held again.
    held_again() -> Result<(), LossReason>;
    /// Has the servers confirm that the lock is held.
    verify() -> Result<(), VerifyError>;
    /// Waits until another client asks for the lock.
    revoke_requested() -> Result<(), LossReason>;
}

/// How each guard is given back.
macro_rules! released {
    ($($guard:ty),*) => { $(
        waits_for_end! { Guard<$guard>, "Guard":
            /// Gives the lock back, and waits until a server has confirmed it.
            release() -> Result<(), ReleaseError>;
        }
    )* };
}

released! {
    locks::MutexGuard, locks::ReentrantGuard, locks::ExclusiveGuard, locks::MultiGuard,
    locks::RwLockReadGuard, locks::RwLockWriteGuard, locks::RwLockUpgradeableGuard,
    locks::SemaphoreGuard, names::NameClaim
}

impl Guard<locks::ReentrantGuard> {
    /// As [`crate::ReentrantGuard::keep`]. The entry lasts no longer than the handles of its client.
    pub fn keep(self) {
        self.inner.keep();
    }
}

same! { Guard<locks::ReentrantGuard>, "ReentrantGuard": owner() -> &Owner; }

same! { Guard<locks::SemaphoreGuard>, "SemaphoreGuard": permits() -> u32; }

same! { Guard<names::NameClaim>, "NameClaim": name() -> &str; }

impl Guard<locks::RwLockWriteGuard> {
    /// Goes on as a reader, as [`crate::RwLockWriteGuard::downgrade`].
    ///
    /// # Errors
    /// As [`crate::RwLockWriteGuard::downgrade`].
    pub fn downgrade(self) -> Result<Guard<locks::RwLockReadGuard>, AcquireError> {
        let Self { inner, runtime } = self;
        let inner = runtime.wait(inner.downgrade())?;
        Ok(Guard { inner, runtime })
    }
}

impl Guard<locks::RwLockUpgradeableGuard> {
    /// Goes on as a writer, as [`crate::RwLockUpgradeableGuard::upgrade`].
    ///
    /// # Errors
    /// As [`crate::RwLockUpgradeableGuard::upgrade`].
    pub fn upgrade(self) -> Result<Guard<locks::RwLockWriteGuard>, UpgradeError<Self>> {
        self.upgraded(locks::RwLockUpgradeableGuard::upgrade)
    }

    /// The same, but not for longer than `timeout`, which covers everything.
    ///
    /// # Errors
    /// As [`crate::RwLockUpgradeableGuard::upgrade_timeout`].
    pub fn upgrade_timeout(
        self,
        timeout: Duration,
    ) -> Result<Guard<locks::RwLockWriteGuard>, UpgradeError<Self>> {
        self.upgraded(|guard| guard.upgrade_timeout(timeout))
    }

    fn upgraded<F>(
        self,
        upgrade: impl FnOnce(locks::RwLockUpgradeableGuard) -> F,
    ) -> Result<Guard<locks::RwLockWriteGuard>, UpgradeError<Self>>
    where
        F: Future<Output = Result<locks::RwLockWriteGuard, UpgradeError>>,
    {
        let Self { inner, runtime } = self;
        match runtime.wait(upgrade(inner)) {
            Ok(inner) => Ok(Guard { inner, runtime }),
            Err(failed) => Err(failed.map(|inner| Guard { inner, runtime })),
        }
    }
}

impl Guard<locks::MultiGuard> {
    /// As [`crate::MultiGuard::tokens`].
    pub fn tokens(&self) -> impl Iterator<Item = (&ZnodePath, FencingToken)> {
        self.inner.tokens()
    }

    /// As [`crate::MultiGuard::transaction`].
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.inner.transaction(), &self.runtime)
    }

    /// Waits until one of the locks is lost, as [`crate::MultiGuard::lost`].
    pub fn lost(&self) -> (&ZnodePath, LossReason) {
        self.runtime.wait(self.inner.lost())
    }
}

same! { Guard<locks::MultiGuard>, "MultiGuard":
    session() -> SessionId;
    state() -> State;
    is_held() -> bool;
    deadline() -> Option<Instant>;
    remaining() -> Duration;
    ensure(wanted: Duration) -> Result<(), EnsureError>;
    allow_jeopardy() -> Result<(), LossReason>;
}

waits! { Guard<locks::MultiGuard>, "MultiGuard":
    verify() -> Result<(), VerifyError>;
    checkpoint(wanted: Duration, grace: Duration) -> Result<(), EnsureError>;
    jeopardy() -> Result<(), LossReason>;
    held_again() -> Result<(), LossReason>;
    revoke_requested() -> Result<&ZnodePath, LossReason>;
}
