//! The guard of several locks that are held together.

use std::fmt;
use std::time::Duration;

use lockkeeper_client::{ErrorCode, Instant, SessionId, Transaction, TransactionError, ZnodePath};

use crate::contender::node::{Contender, Front};
use crate::error::{AcquireError, EnsureError, LossReason, ReleaseError, VerifyError};
use crate::guard::owned_node::{OwnedNode, deleted};
use crate::guard::state::State;
use crate::guard::{Guard, jeopardy, several};
use crate::telemetry::acquiring::{Granted, Tokens};
use crate::token::FencingToken;

/// Locks that are held already.
pub(crate) type Acquired = Vec<(Contender, Front)>;

/// All locks of a [`MultiLock`](crate::MultiLock), held. It counts as lost as soon as one of them is.
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    /// At least one.
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// Of locks that were granted, at least one.
    pub(crate) fn of(guards: Vec<Guard>) -> Result<Self, AcquireError> {
        // A lease may have run out while the proof of the next one was waited for.
        for guard in &guards {
            if let State::Lost(reason) = guard.state() {
                return Err(AcquireError::Lost { path: guard.path().clone(), reason });
            }
        }
        Ok(Self { guards })
    }

    /// The hold of each lock, in the order of their paths.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The session that holds them all.
    pub fn session(&self) -> SessionId {
        self.guards[0].session()
    }

    /// Each lock's fencing token.
    pub fn tokens(&self) -> impl Iterator<Item = (&ZnodePath, FencingToken)> {
        self.guards.iter().map(|guard| (guard.path(), guard.token()))
    }

    /// How the worst of the locks stands; see [`Guard::state`].
    pub fn state(&self) -> State {
        several::worst(self.guards.iter().map(Guard::state))
    }

    /// Whether all locks are held; see [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        several::is_held(&self.guards)
    }

    /// The earliest of the deadlines; see [`Guard::deadline`]. `None` if one is lost or in
    /// jeopardy.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines: Option<Vec<_>> = self.guards.iter().map(Guard::deadline).collect();
        deadlines?.into_iter().min()
    }

    /// What is left until the earliest of the deadlines; zero if a lock is lost or in
    /// jeopardy.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Makes sure that all are held for some time to come. Asks no server.
    ///
    /// # Errors
    /// Same as [`Guard::ensure`], for any of them.
    pub fn ensure(&self, wanted: Duration) -> Result<(), EnsureError> {
        several::ensure(&self.guards, wanted)
    }

    /// Has the servers confirm that all are held. Costs one committed write.
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

    /// Waits until one of the locks is lost: which, and why. Costs the same as [`Guard::lost`], for each lock.
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
    /// [`Guard::cancellation_token`]. Costs what that does, for each lock.
    #[cfg(feature = "tokio-util")]
    pub fn cancellation_token(&self) -> tokio_util::sync::CancellationToken {
        crate::guard::cancelling::cancellation_token(&self.guards)
    }

    /// Waits until a client asks for one of the locks, and tells which; see
    /// [`Guard::revoke_requested`]. They can only be given back together. Costs what it costs for
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

    /// Does work only while all locks are held: drops it when one is lost or in jeopardy; see
    /// [`Guard::run`]. Costs what that does, for each lock.
    ///
    /// # Errors
    /// Why a lock was lost before the work was done, as [`Guard::run`].
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the locks stay held.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        jeopardy::run(&self.guards, work).await
    }

    /// Has all locks outlast their deadline; see [`Guard::allow_jeopardy`]. They are proven again
    /// together, with one committed write and a read for each.
    ///
    /// # Errors
    /// Why a lock has been lost already.
    ///
    /// # Session loss
    /// Same as [`Guard::allow_jeopardy`].
    pub fn allow_jeopardy(&self) -> Result<(), LossReason> {
        several::allow_jeopardy(&self.guards)
    }

    /// Waits until a lock is in jeopardy; see [`Guard::jeopardy`]. Costs what that does, for each lock.
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

    /// Waits until no lock is in jeopardy; see [`Guard::held_again`]. Costs what that does, for each lock.
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

    /// Does work only while all locks are held, and rides out outages; see [`Guard::run_through`]. Costs what
    /// that does, for each lock.
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

    /// Makes sure that all are held for some time to come, and waits for it; a `grace` that is not zero
    /// allows jeopardy. See [`Guard::checkpoint`]. Costs nothing while enough is left, and otherwise one committed write for all.
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

    /// Gives all locks back in one transaction, and waits until a server has confirmed it. Costs
    /// one round trip.
    ///
    /// # Errors
    /// Same as [`Guard::release`], for any of them; the others are released.
    ///
    /// # Session loss
    /// The release fails; the locks were lost.
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

        // Until they are known to be gone, dropping the nodes deletes them.
        let deleted = match state {
            State::Lost(reason) => return Err(ReleaseError::Lost(reason)),
            // Whatever has become of them, nobody will know.
            State::Jeopardy => return Err(ReleaseError::Lost(LossReason::DeadlinePassed)),
            State::Held | State::Suspect { .. } => transaction.in_session(session).commit().await,
        };

        match deleted {
            Ok(_) => {
                nodes.iter_mut().for_each(|owned| owned.cleanup = None);
                Ok(())
            }
            Err(TransactionError::Request(error)) if error.is_session_expired() => {
                Err(ReleaseError::Lost(LossReason::SessionExpired))
            }
            // One was missing, or the answer is lost: one by one.
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

/// The locks with their tokens, and how the worst of them stands.
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
