//! The guard of several locks that are held together.

use std::fmt;
use std::time::Duration;

use lockkeeper_client::{ErrorCode, Instant, SessionId, Transaction, TransactionError, ZnodePath};

use crate::contender::node::{Contender, Front};
use crate::error::{AcquireError, EnsureError, LossReason, ReleaseError, VerifyError};
use crate::guard::owned_node::{OwnedNode, deleted};
use crate::guard::state::HolderState;
use crate::guard::{Guard, jeopardy, several};
use crate::telemetry::acquiring::{Granted, Tokens};
use crate::token::FencingToken;

/// Locks that are already acquired.
pub(crate) type Acquired = Vec<(Contender, Front)>;

/// All locks of a [`MultiLock`](crate::MultiLock), held together. It counts as lost as soon as one of them is lost.
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    /// Never empty.
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guard of granted locks. There must be at least one.
    pub(crate) fn of(guards: Vec<Guard>) -> Result<Self, AcquireError> {
        // A lease may have run out during the wait for the proof of the next lock.
        for guard in &guards {
            if let HolderState::Lost(reason) = guard.state() {
                return Err(AcquireError::Lost { path: guard.path().clone(), reason });
            }
        }
        Ok(Self { guards })
    }

    /// The guard of each lock, in the order of the paths.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The session that holds all locks.
    pub fn session(&self) -> SessionId {
        self.guards[0].session()
    }

    /// The fencing token of each lock.
    pub fn tokens(&self) -> impl Iterator<Item = (&ZnodePath, FencingToken)> {
        self.guards.iter().map(|guard| (guard.path(), guard.token()))
    }

    /// The worst state of the locks; see [`Guard::state`].
    pub fn state(&self) -> HolderState {
        several::worst(self.guards.iter().map(Guard::state))
    }

    /// Whether all locks are held; see [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        several::is_held(&self.guards)
    }

    /// The earliest deadline; see [`Guard::deadline`]. `None` if a lock is lost or in
    /// jeopardy.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines: Option<Vec<_>> = self.guards.iter().map(Guard::deadline).collect();
        deadlines?.into_iter().min()
    }

    /// The time until the earliest deadline. Zero if a lock is lost or in
    /// jeopardy.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Checks that all locks are held for at least `wanted` from now on. Makes no request.
    ///
    /// # Errors
    /// Same as [`Guard::ensure`], for any of them.
    pub fn ensure(&self, wanted: Duration) -> Result<(), EnsureError> {
        several::ensure(&self.guards, wanted)
    }

    /// Asks the servers to confirm that all locks are held. Costs one committed write.
    ///
    /// # Errors
    /// Same as [`Guard::verify`], for any of them.
    ///
    /// # Session loss
    /// Same as [`Guard::verify`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        several::verify(&self.guards).await
    }

    /// Waits until one of the locks is lost. Returns its path and the reason. Costs the same as [`Guard::lost`],
    /// for each lock.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn lost(&self) -> (&ZnodePath, LossReason) {
        several::first(&self.guards, Guard::lost).await
    }

    /// A token that is cancelled as soon as one of the locks is lost, or all are released; see
    /// [`Guard::cancellation_token`]. Costs the same as that, for each lock.
    #[cfg(feature = "tokio-util")]
    pub fn cancellation_token(&self) -> tokio_util::sync::CancellationToken {
        crate::guard::cancelling::cancellation_token(&self.guards)
    }

    /// Waits until a client requests one of the locks, and returns its path; see
    /// [`Guard::revoke_requested`]. The locks can only be released together. Costs the same as for
    /// one lock, for each of them.
    ///
    /// # Errors
    /// Why a lock was lost before a request came.
    ///
    /// # Session loss
    /// Ends the wait, as in [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn revoke_requested(&self) -> Result<&ZnodePath, LossReason> {
        let (path, asked) = several::first(&self.guards, Guard::revoke_requested).await;
        asked.map(|()| path)
    }

    /// Runs work only while all locks are held, and drops it when one is lost or in jeopardy; see
    /// [`Guard::run`]. Costs the same as that, for each lock.
    ///
    /// # Errors
    /// Why a lock was lost before the work was done, like [`Guard::run`].
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the locks stay held.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        jeopardy::run(&self.guards, work).await
    }

    /// Allows all locks to outlast their deadline; see [`Guard::allow_jeopardy`]. They are proven again
    /// together, with one committed write and one read for each lock.
    ///
    /// # Errors
    /// Why a lock is already lost.
    ///
    /// # Session loss
    /// Same as [`Guard::allow_jeopardy`].
    pub fn allow_jeopardy(&self) -> Result<(), LossReason> {
        several::allow_jeopardy(&self.guards)
    }

    /// Waits until a lock is in jeopardy; see [`Guard::jeopardy`]. Costs the same as that, for each lock.
    ///
    /// # Errors
    /// Why a lock is lost.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn jeopardy(&self) -> Result<(), LossReason> {
        several::jeopardy(&self.guards).await
    }

    /// Waits until no lock is in jeopardy; see [`Guard::held_again`]. Costs the same as that, for each lock.
    ///
    /// # Errors
    /// Why a lock is lost.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn held_again(&self) -> Result<(), LossReason> {
        several::held_again(&self.guards).await
    }

    /// Runs work only while all locks are held, and continues it after outages; see [`Guard::run_through`].
    /// Costs the same as that, for each lock.
    ///
    /// # Errors
    /// Same as [`Guard::run_through`], for any of them.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the locks stay held, and jeopardy stays allowed.
    pub async fn run_through<T>(
        &self,
        grace: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, LossReason> {
        jeopardy::run_through(&self.guards, grace, work).await
    }

    /// Checks that all locks are held for at least `wanted` from now on, and waits if they are not. A nonzero `grace`
    /// allows jeopardy. See [`Guard::checkpoint`]. Costs nothing while enough of the leases is left, and otherwise one
    /// committed write for all locks.
    ///
    /// # Errors
    /// Same as [`Guard::checkpoint`], for any of them.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe; jeopardy stays allowed.
    pub async fn checkpoint(&self, wanted: Duration, grace: Duration) -> Result<(), EnsureError> {
        jeopardy::checkpoint(&self.guards, wanted, grace).await
    }

    /// Starts a transaction that is applied only while all locks are held.
    pub fn transaction(&self) -> Transaction {
        several::checks(&self.guards)
    }

    /// Releases all locks in one transaction, and waits until a server has confirmed it. Costs
    /// one round trip.
    ///
    /// # Errors
    /// Same as [`Guard::release`], for any of them; the others are released.
    ///
    /// # Session loss
    /// The release fails, because the locks were lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let (state, session) = (self.state(), self.session());
        let client = self.guards[0].client().clone();
        let deletions: Vec<_> = self.guards.iter().map(Guard::deletion).collect();
        let mut nodes: Vec<_> = self.guards.into_iter().map(Guard::into_owned_node).collect();
        let transaction = nodes.iter().fold(client.transaction(), |all, owned: &OwnedNode| {
            all.delete(&owned.node.path, None)
        });

        // Dropping the nodes deletes them, until they are known to be gone.
        let deleted = match state {
            HolderState::Lost(reason) => return Err(ReleaseError::Lost(reason)),
            // Whether they were still held will never be known.
            HolderState::Jeopardy => return Err(ReleaseError::Lost(LossReason::DeadlinePassed)),
            HolderState::Held | HolderState::Suspect { .. } => {
                transaction.in_session(session).commit().await
            }
        };

        match deleted {
            Ok(_) => {
                nodes.iter_mut().for_each(|owned| owned.cleanup = None);
                Ok(())
            }
            Err(TransactionError::Request(error)) if error.is_session_expired() => {
                Err(ReleaseError::Lost(LossReason::SessionExpired))
            }
            // One node was missing, or the reply is lost: the nodes are deleted one by one.
            Err(error) => {
                release_each(nodes).await?;
                match error {
                    TransactionError::Failed { index, code: ErrorCode::NoNode, .. } => {
                        Err(ReleaseError::Lost(deletions[index]))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Granted for MultiGuard {
    fn tokens(&self) -> Tokens {
        Tokens::Several(self.guards.iter().map(Guard::token).collect())
    }
}

/// Shows the locks with their tokens, and the worst state.
impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MultiGuard(")?;
        for (path, token) in self.tokens() {
            write!(f, "{path}, token {token}; ")?;
        }
        write!(f, "{})", several::worst(self.guards.iter().map(Guard::seen)))
    }
}

async fn release_each(mut nodes: Vec<OwnedNode>) -> Result<(), ReleaseError> {
    let begin =
        |owned: &mut OwnedNode| Some(owned.client.clean_up_confirmed(owned.cleanup.take()?));
    let answers: Vec<_> = nodes.iter_mut().filter_map(begin).collect();

    for answer in answers {
        deleted(answer.await)?;
    }
    Ok(())
}
