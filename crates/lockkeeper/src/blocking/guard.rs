//! Guards whose methods wait.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::{Instant, SessionId, ZnodePath};

use crate::blocking::forward::{same, waits};
use crate::blocking::runtime::Runtime;
use crate::blocking::transaction::Transaction;
use crate::error::{AcquireError, EnsureError, LossReason, ReleaseError, VerifyError};
use crate::guard;
use crate::guard::state::State;
use crate::locks::{self, Owner};
use crate::names;
use crate::token::FencingToken;

/// Any guard of this crate, whose methods wait. What a holder may believe and do is described at
/// [`crate::Guard`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<G> {
    // Dropped before the runtime, which sees to the release.
    held: G,
    pub(super) runtime: Arc<Runtime>,
}

impl<G> Guard<G> {
    pub(super) fn new(held: G, runtime: &Arc<Runtime>) -> Self {
        Self { held, runtime: Arc::clone(runtime) }
    }

    /// The guard for async code, and for futures that are given to
    /// [`Client::wait`](crate::blocking::Client::wait), as that of [`crate::Guard::run`].
    pub fn as_async(&self) -> &G {
        &self.held
    }

    /// The guard, and the runtime that serves it.
    pub(super) fn into_parts(self) -> (G, Arc<Runtime>) {
        (self.held, self.runtime)
    }

    /// Makes another guard of it, or nothing.
    fn turn<T, F>(self, change: impl FnOnce(G) -> F) -> Result<Guard<T>, AcquireError>
    where
        F: Future<Output = Result<T, AcquireError>>,
    {
        let Self { held, runtime } = self;
        let held = runtime.wait(change(held))?;
        Ok(Guard { held, runtime })
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

/// What the guards of a single lock can do.
impl<G: Deref<Target = guard::Guard>> Guard<G> {
    /// As [`crate::Guard::token`].
    pub fn token(&self) -> FencingToken {
        self.held.token()
    }

    /// As [`crate::Guard::path`].
    pub fn path(&self) -> &ZnodePath {
        self.held.path()
    }

    /// As [`crate::Guard::node`].
    pub fn node(&self) -> &ZnodePath {
        self.held.node()
    }

    /// As [`crate::Guard::session`].
    pub fn session(&self) -> SessionId {
        self.held.session()
    }

    /// As [`crate::Guard::state`].
    pub fn state(&self) -> State {
        self.held.state()
    }

    /// As [`crate::Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// As [`crate::Guard::deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.held.deadline()
    }

    /// As [`crate::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// As [`crate::Guard::ensure`].
    ///
    /// # Errors
    /// As [`crate::Guard::ensure`].
    pub fn ensure(&self, wanted: Duration) -> Result<(), EnsureError> {
        self.held.ensure(wanted)
    }

    /// Has the lock outlast its deadline, as [`crate::Guard::allow_jeopardy`]. A thread cannot be paused
    /// from outside, so there is no `run_through` here: call [`Guard::checkpoint`] between the steps of
    /// the work, each of which must end before the deadline.
    ///
    /// # Errors
    /// As [`crate::Guard::allow_jeopardy`].
    pub fn allow_jeopardy(&self) -> Result<(), LossReason> {
        self.held.allow_jeopardy()
    }

    /// Makes sure that the lock is held for some time to come, and waits for it, as
    /// [`crate::Guard::checkpoint`].
    ///
    /// # Errors
    /// As [`crate::Guard::checkpoint`].
    pub fn checkpoint(&self, wanted: Duration, grace: Duration) -> Result<(), EnsureError> {
        self.runtime.wait(self.held.checkpoint(wanted, grace))
    }

    /// Waits until the lock is in jeopardy, as [`crate::Guard::jeopardy`].
    ///
    /// # Errors
    /// As [`crate::Guard::jeopardy`].
    pub fn jeopardy(&self) -> Result<(), LossReason> {
        self.runtime.wait(self.held.jeopardy())
    }

    /// Waits until the lock is held again, as [`crate::Guard::held_again`].
    ///
    /// # Errors
    /// As [`crate::Guard::held_again`].
    pub fn held_again(&self) -> Result<(), LossReason> {
        self.runtime.wait(self.held.held_again())
    }

    /// As [`crate::Guard::transaction`].
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.held.transaction(), &self.runtime)
    }

    /// Has the servers confirm that the lock is held, as [`crate::Guard::verify`].
    ///
    /// # Errors
    /// As [`crate::Guard::verify`].
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.runtime.wait(self.held.verify())
    }

    /// Waits until the lock is lost, as [`crate::Guard::lost`].
    pub fn lost(&self) -> LossReason {
        self.runtime.wait(self.held.lost())
    }

    /// Waits until another client asks for the lock, as [`crate::Guard::revoke_requested`].
    ///
    /// # Errors
    /// As [`crate::Guard::revoke_requested`].
    pub fn revoke_requested(&self) -> Result<(), LossReason> {
        self.runtime.wait(self.held.revoke_requested())
    }
}

/// How each guard is given back.
macro_rules! released {
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
        self.held.keep();
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
        self.turn(locks::RwLockWriteGuard::downgrade)
    }
}

impl Guard<locks::RwLockUpgradeableGuard> {
    /// Goes on as a writer, as [`crate::RwLockUpgradeableGuard::upgrade`].
    ///
    /// # Errors
    /// As [`crate::RwLockUpgradeableGuard::upgrade`].
    pub fn upgrade(self) -> Result<Guard<locks::RwLockWriteGuard>, AcquireError> {
        self.turn(locks::RwLockUpgradeableGuard::upgrade)
    }

    /// The same, but not for longer than `timeout`, which covers everything.
    ///
    /// # Errors
    /// As [`crate::RwLockUpgradeableGuard::upgrade_timeout`].
    pub fn upgrade_timeout(
        self,
        timeout: Duration,
    ) -> Result<Guard<locks::RwLockWriteGuard>, AcquireError> {
        self.turn(|guard| guard.upgrade_timeout(timeout))
    }
}

impl Guard<locks::MultiGuard> {
    /// As [`crate::MultiGuard::tokens`].
    pub fn tokens(&self) -> impl Iterator<Item = (&ZnodePath, FencingToken)> {
        self.held.tokens()
    }

    /// As [`crate::MultiGuard::transaction`].
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.held.transaction(), &self.runtime)
    }

    /// Waits until one of the locks is lost, as [`crate::MultiGuard::lost`].
    pub fn lost(&self) -> (&ZnodePath, LossReason) {
        self.runtime.wait(self.held.lost())
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
