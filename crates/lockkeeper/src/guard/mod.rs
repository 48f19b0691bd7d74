//! What a holder may believe, and until when.
//!
//! ```text
//!   state        how a lock stands with its holder: a pure function of a look at the session
//!   owned_node   a holder's node, and the duty to delete it
//!   revocation   the mark of somebody who wants the lock
//! ```

pub(crate) mod owned_node;
pub(crate) mod revocation;
pub(crate) mod state;

use std::fmt;
use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{
    Client, Contact, ErrorCode, EventKind, Hold, Instant, SessionId, Stat, Transaction,
    TransactionError, Watcher, ZnodePath,
};
use tokio::sync::{Mutex, SetOnce};

use crate::contender::node::{Contender, Front};
use crate::contender::retry::retry_backoff;
use crate::error::{AcquireError, EnsureError, LossReason, ReleaseError, VerifyError};
use crate::guard::owned_node::{OwnedNode, Releasing};
use crate::guard::revocation::REQUEST;
use crate::guard::state::{State, judge};
use crate::token::FencingToken;

/// How often a proof of life is tried before a grant is given up.
const PROOFS: u32 = 3;

/// The right to be where only one may be, with a deadline.
///
/// It is held until it is released, dropped (which releases it in the background) or lost. A
/// holder that must never act without the lock checks [`Guard::ensure`] before each step, or runs
/// its work in [`Guard::run`], or gives [`Guard::token`] to a resource that checks it, or makes
/// its writes in [`Guard::transaction`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(Box<GuardInner>);

/// What a guard is. Behind a pointer, as a guard is passed on many times on its way to the holder
/// and back.
struct GuardInner {
    // Declared before the owned node, whose deletion must not fire it: dropped in this order.
    own_watch: Mutex<Option<Watcher>>,
    hold: Hold,
    /// The other nodes that belong to it, if it has several: the loss of any is its loss.
    others: Vec<(Hold, OwnedNode)>,
    owned: OwnedNode,
    token: FencingToken,
    /// The lease's generation at the grant: with another one, the lease was interrupted since.
    generation: u64,
    lost: SetOnce<LossReason>,
    /// Whether somebody was seen to ask for the lock.
    revoking: AtomicBool,
    /// What the node said of its owner before that, as far as it was read.
    owner: OnceLock<Bytes>,
}

impl Guard {
    /// Makes sure that a contender at the front really holds, and that this is proven for some
    /// time to come. Costs a round trip only if the newest proof of life is old.
    pub(crate) async fn grant(contender: Contender, front: Front) -> Result<Self, AcquireError> {
        Self::confirm(OwnedNode::of(contender)?, front.own).await
    }

    /// The same for a node of any kind. `own`: a watch on it, if there is one already.
    pub(crate) async fn confirm(
        owned: OwnedNode,
        own: Option<Watcher>,
    ) -> Result<Self, AcquireError> {
        let timing = owned.client.timing();
        let mut failed = None;
        // An old proof must be as good as the next heartbeat would be. A fresh one is the best that
        // these servers give; one that failed changes nothing.
        let mut enough = timing.left_at_grant();
        for proofs in 0..=PROOFS {
            let (hold, seen) = owned.client.hold_if_left(&owned.node.path, enough);
            if seen.lease.session != owned.session() {
                return Err(AcquireError::SessionExpired { path: owned.path.clone() });
            }
            if let Some(hold) = hold {
                return Ok(Self::new(owned, hold, own, seen.lease.generation));
            }
            if proofs == PROOFS {
                break;
            }

            // What is sent before this proves nothing.
            tokio::time::sleep(seen.lease.sure_from.since(seen.now)).await;
            match prove(&owned.client, &owned.node.path).await {
                Err(TransactionError::Failed { .. }) => {
                    return Err(AcquireError::NodeDeleted { node: owned.node.path.clone() });
                }
                Err(TransactionError::Request(error)) if !error.is_retryable() => {
                    return Err(AcquireError::from_client(&owned.path, error));
                }
                Err(TransactionError::Request(error)) => failed = Some(error),
                Err(_) => failed = None,
                Ok(()) => {
                    enough = timing.always_left();
                    failed = None;
                }
            }
        }

        let path = owned.path.clone();
        Err(match failed {
            Some(error) => AcquireError::from_client(&path, error),
            None => AcquireError::LeaseTooShort { path, lease: timing.lease() },
        })
    }

    fn new(owned: OwnedNode, hold: Hold, own: Option<Watcher>, generation: u64) -> Self {
        Self(Box::new(GuardInner {
            own_watch: Mutex::new(own),
            hold,
            others: Vec::new(),
            token: FencingToken::new(owned.node.stat.czxid),
            generation,
            lost: SetOnce::new(),
            revoking: AtomicBool::new(false),
            owner: OnceLock::new(),
            owned,
        }))
    }

    /// A value that is larger than that of every earlier holder of this lock. Give it to the
    /// resources that you use under the lock, and let them refuse lower ones.
    pub fn token(&self) -> FencingToken {
        self.0.token
    }

    /// The lock.
    pub fn path(&self) -> &ZnodePath {
        &self.0.owned.path
    }

    /// The holder's own node.
    pub fn node(&self) -> &ZnodePath {
        &self.0.owned.node.path
    }

    /// The session that holds it.
    pub fn session(&self) -> SessionId {
        self.0.owned.session()
    }

    /// How the lock stands. Decided here and now, without asking a server.
    ///
    /// A deletion of the node by somebody else shows when a heartbeat finds it (within a
    /// [renewal interval](crate::Timing::renewal_interval) under
    /// [`LeaseMode::Quorum`](crate::LeaseMode::Quorum)) or at once while [`Guard::lost`] or [`Guard::run`] is waiting.
    pub fn state(&self) -> State {
        State::of(self.lease())
    }

    /// Whether the lock is held, with or without a connection; see [`Guard::state`].
    pub fn is_held(&self) -> bool {
        self.lease().is_ok()
    }

    /// The deadline and the contact, or why the lock is lost. Lease and contact are from one look
    /// at the session: between two, it could have become another one.
    fn lease(&self) -> Result<(Instant, Contact), LossReason> {
        match self.0.lost.get().copied() {
            Some(reason) => Err(reason),
            None => self.look().map_err(|reason| self.lose(reason)),
        }
    }

    /// The local instant until which no other client can have been granted the lock, by the
    /// client's [`Clock`](crate::Clock); `None` if it is lost. It moves on while the session is
    /// alive.
    pub fn deadline(&self) -> Option<Instant> {
        self.lease().ok().map(|(deadline, _)| deadline)
    }

    /// What is left until the deadline; zero if the lock is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.client().now();
        self.deadline().map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Makes sure that the lock is held for some time to come. Asks no server.
    ///
    /// # Errors
    /// If it is lost, or the lease ends before that.
    pub fn ensure(&self, wanted: Duration) -> Result<(), EnsureError> {
        let (deadline, _) = self.lease().map_err(EnsureError::Lost)?;
        let left = deadline.since(self.client().now());
        if left < wanted { Err(EnsureError::TooShort { left, wanted }) } else { Ok(()) }
    }

    /// Has the servers confirm that the lock is held, and so renews the deadline. Costs one
    /// committed write.
    ///
    /// # Errors
    /// If it is lost, or no server answers.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        if let State::Lost(reason) = self.state() {
            return Err(VerifyError::Lost(reason));
        }
        let proof = self.transaction().commit().await;
        match (proof, self.state()) {
            (Err(TransactionError::Failed { code: ErrorCode::NoNode, .. }), _) => {
                Err(VerifyError::Lost(self.found_missing()))
            }
            (_, State::Lost(reason)) => Err(VerifyError::Lost(reason)),
            (Err(TransactionError::Request(error)), _) => Err(VerifyError::Unknown(error)),
            _ => Ok(()),
        }
    }

    /// Waits until the lock is lost.
    ///
    /// # Session loss
    /// This is how it is told: at once when the servers say so, and else at the deadline.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn lost(&self) -> LossReason {
        loop {
            let mut status = self.client().status();
            let reason = match self.state() {
                State::Lost(reason) => return reason,
                State::Held | State::Suspect { .. } => tokio::select! {
                    biased;
                    reason = self.node_deleted() => reason,
                    _ = status.changed() => None,
                    _ = self.0.lost.wait() => None,
                    () = self.deadline_near() => None,
                },
            };

            if let Some(reason) = reason {
                return self.lose(reason);
            }
        }
    }

    /// Waits until somebody asks for the lock with [`revoke`](crate::revoke::revoke), or with
    /// Curator's `Revoker`. Whoever asked may take the lock by force after a while, so release it
    /// soon. Costs one round trip, and one for each change of the node.
    ///
    /// # Errors
    /// Why the lock was lost before anybody asked.
    ///
    /// # Session loss
    /// Ends the wait, as in [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn revoke_requested(&self) -> Result<(), LossReason> {
        tokio::select! {
            biased;
            () = self.asked_for() => Ok(()),
            reason = self.lost() => Err(reason),
        }
    }

    /// Does work only while the lock is held: drops it when the lock is lost.
    ///
    /// # Errors
    /// Why the lock was lost before the work was done.
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the lock stays held.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(reason),
            output = work => Ok(output),
        }
    }

    /// Starts a transaction that is applied only while the lock is held: it begins with a check
    /// of the holder's own node, and of all of them if there are several.
    pub fn transaction(&self) -> Transaction {
        let others = self.0.others.iter().map(|(_, owned)| &owned.node.path);
        let own = self.client().transaction().check(self.node(), None);
        others.fold(own, |transaction, node| transaction.check(node, None))
    }

    /// Gives the lock back, and waits until a server has confirmed it. Costs one round trip.
    ///
    /// # Errors
    /// If the lock had been lost before, or no server could confirm it before the session ended;
    /// then the release goes on in the background.
    ///
    /// # Cancel safety
    /// The release goes on in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.begin_release().confirmed().await
    }

    /// Hands the deletion over for sending, so that what is sent from now on comes after it.
    pub(crate) fn begin_release(self) -> Releasing {
        let (others_are_gone, deletion) = (self.others_are_gone(), self.deletion());
        let GuardInner { own_watch, hold, others, mut owned, generation, lost, .. } = *self.0;
        // The others go first, so that the last answer is about all.
        drop((own_watch, others));

        let (client, session, cleanup) = (&owned.client, owned.session(), owned.cleanup.take());
        let (seen, answer) = match cleanup {
            Some(cleanup) => client.clean_up_held(hold, session, cleanup),
            None => (hold.state(), None),
        };

        let deletion = (seen.is_gone || others_are_gone).then_some(deletion);
        let lease = match lost.get() {
            Some(reason) => Err(*reason),
            None => judge(&seen, session, generation, deletion),
        };
        Releasing { state: State::of(lease), answer }
    }

    /// Gives up the belief, and leaves the deletion to the caller.
    pub(crate) fn into_owned_node(self) -> OwnedNode {
        self.0.owned
    }

    /// Somebody else found the node missing.
    pub(crate) fn found_missing(&self) -> LossReason {
        self.lose(self.deletion())
    }

    /// The same node for another holder of this process: a larger token, and the same belief.
    pub(crate) fn regrant(mut self) -> Self {
        self.0.token = self.0.token.next_grant();
        self
    }

    /// The same with a token that was made at the grant.
    pub(crate) fn with_token(mut self, token: FencingToken) -> Self {
        self.0.token = token;
        self
    }

    /// The same with more nodes, of which each is as much needed as its own.
    pub(crate) fn with_others(mut self, others: Vec<Contender>) -> Result<Self, AcquireError> {
        for other in others {
            let owned = OwnedNode::of(other)?;
            let hold = self.client().hold(&owned.node.path);
            self.0.others.push((hold, owned));
        }
        Ok(self)
    }

    /// Ends it without deleting its node: another one has taken the place.
    pub(crate) fn dissolve(mut self) {
        self.0.owned.cleanup = None;
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.owned.client
    }

    /// How it stands, for people; unlike [`Guard::state`], without making a loss final.
    pub(crate) fn seen(&self) -> State {
        State::of(self.0.lost.get().map_or_else(|| self.look(), |reason| Err(*reason)))
    }

    /// One line about a guard of this name.
    pub(crate) fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({}, token {}, {})", self.path(), self.token(), self.seen())
    }

    /// The deadline and the contact as the session has them now, or what has been lost.
    fn look(&self) -> Result<(Instant, Contact), LossReason> {
        let seen = self.0.hold.state();
        let is_gone = seen.is_gone || self.others_are_gone();
        judge(&seen, self.session(), self.0.generation, is_gone.then(|| self.deletion()))
    }

    fn others_are_gone(&self) -> bool {
        self.0.others.iter().any(|(hold, _)| hold.is_gone())
    }

    /// Makes a loss final; the first reason stays.
    fn lose(&self, reason: LossReason) -> LossReason {
        // It fails if a reason is known already.
        let _ = self.0.lost.set(reason);
        self.0.lost.get().copied().unwrap_or(reason)
    }

    /// Waits until the node is deleted (`Some`), or something else is to be looked at.
    async fn node_deleted(&self) -> Option<LossReason> {
        let mut own_watch = self.0.own_watch.lock().await;
        let watcher = match own_watch.take() {
            Some(watcher) => watcher,
            None => match self.client().data_watched(self.node()).await {
                Ok(((data, stat), watcher)) => {
                    self.look_for_revocation(&data, &stat);
                    watcher
                }
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    return Some(self.deletion());
                }
                // The connection is gone, and with it perhaps the lock: time will tell.
                Err(_) => std::future::pending().await,
            },
        };

        let event = own_watch.insert(watcher).changed().await;
        // An event comes once, and whoever else waits here has to look for itself.
        *own_watch = None;
        match event {
            Ok(event) if event.kind == EventKind::NodeDeleted => Some(self.deletion()),
            _ => None,
        }
    }

    /// Waits until the node carries the mark of somebody who wants the lock.
    async fn asked_for(&self) {
        while !self.0.revoking.load(Ordering::Acquire) {
            match self.client().data_watched(self.node()).await {
                Ok(((data, stat), mut watcher)) => {
                    if !self.look_for_revocation(&data, &stat) {
                        // The end of the session is seen elsewhere.
                        let _ = watcher.changed().await;
                    }
                }
                Err(error) => {
                    if retry_backoff(error).await.is_err() {
                        // The loss of the lock is seen elsewhere.
                        std::future::pending().await
                    }
                }
            }
        }
    }

    fn look_for_revocation(&self, data: &Bytes, stat: &Stat) -> bool {
        if data != REQUEST {
            // It fails if that is known already.
            let _ = self.0.owner.set(data.clone());
            return false;
        }
        self.0.revoking.store(true, Ordering::Release);
        // The mark has done its work, and people want to see who ignores it. With the version, as
        // another one who sees the mark may be quicker. Without an answer: nothing depends on it.
        let owner = revocation::answer(self.0.owner.get());
        drop(self.client().set_data(self.node(), owner, Some(stat.version)));
        true
    }

    /// What it means that the node is gone.
    fn deletion(&self) -> LossReason {
        if self.0.revoking.load(Ordering::Acquire) {
            LossReason::Revoked
        } else {
            LossReason::NodeDeleted
        }
    }

    /// Sleeps towards the deadline, at most a second: a timer does not count suspended time.
    async fn deadline_near(&self) {
        tokio::time::sleep(self.remaining().min(Duration::from_secs(1))).await;
    }
}

/// Its lock, its token and how it stands.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe("Guard", f)
    }
}

/// Has a guard of one lock offer all that [`Guard`] does, and print in the same way.
macro_rules! offers_guard {
    ($type:ident, $self:ident => $guard:expr) => {
        impl std::ops::Deref for $type {
            type Target = $crate::guard::Guard;

            fn deref(&$self) -> &$crate::guard::Guard {
                $guard
            }
        }

        /// Its lock, its token and how it stands.
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.describe(stringify!($type), f)
            }
        }
    };
}

pub(crate) use offers_guard;

/// Commits a check of a node: whoever led a quorum after it was sent has seen the node.
async fn prove(client: &Client, node: &ZnodePath) -> Result<(), TransactionError> {
    client.transaction().check(node, None).commit().await.map(drop)
}
