//! The guard of a held lock: its deadline, and how its loss is noticed.
//!
//! ```text
//!   cancelling    the loss as a `CancellationToken` (feature `tokio-util`); methods of the guard
//!   cancellation  the cancellation token of a guard
//!   hold_report   reports the loss and the end of a hold: events and metrics
//!   state         whether a lock is held: a pure function of the state of the session
//!   jeopardy      running work across an outage, for one lock or several; methods of the guard
//!   owned_node    the node of a holder, and its deletion
//!   proving       the proof that a lock is held, and the wait of a grant for it
//!   revocation    requests to release a lock
//!   several       functions for locks that are held together
//!   waits         what a holder can wait for; methods of the guard
//! ```

#[cfg(feature = "tokio-util")]
mod cancellation;
#[cfg(feature = "tokio-util")]
pub(crate) mod cancelling;
pub(crate) mod hold_report;
pub(crate) mod jeopardy;
pub(crate) mod owned_node;
mod proving;
pub(crate) mod revocation;
pub(crate) mod several;
pub(crate) mod state;
mod waits;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper_client::{
    Client, Contact, Hold, Instant, NameUse, SessionId, Transaction, TransactionError, Watcher,
    ZnodePath,
};
use tokio::sync::{Mutex, SetOnce};

use crate::contender::node::{Contender, Front};
use crate::error::{AcquireError, EnsureError, LossReason, ReleaseError, VerifyError};
#[cfg(feature = "tokio-util")]
use crate::guard::cancellation::Cancellation;
use crate::guard::hold_report::HoldReport;
use crate::guard::owned_node::{OwnedNode, Releasing};
use crate::guard::proving::{Proof, Proofs, prove};
use crate::guard::state::{HolderState, Unheld, judge, unproven};
use crate::owner_info::RevokeRequest;
use crate::telemetry::acquiring::{Granted, Tokens};
use crate::token::FencingToken;

/// A held lock, with a deadline until which it is certain to be held.
///
/// The lock is held until the guard is released, dropped (which releases it in the background) or
/// lost. A holder that must never act without the lock calls [`Guard::ensure`] before each step, runs
/// its work in [`Guard::run`], passes [`Guard::token`] to a resource that checks it, or writes in
/// [`Guard::transaction`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(Box<GuardInner>);

/// The fields of a guard. They are boxed, because a guard is moved many times on its way to
/// the holder and back.
struct GuardInner {
    // Declared in drop order: work under the cancellation token ends first, the report reads
    // the hold, and the deletion of the owned node must not trigger its watch.
    #[cfg(feature = "tokio-util")]
    cancellation: Cancellation,
    report: HoldReport,
    own_watch: Mutex<Option<Watcher>>,
    hold: Hold,
    /// The other nodes of a guard with several nodes. The loss of any node is the loss of the lock.
    others: Vec<(Hold, OwnedNode)>,
    owned: OwnedNode,
    /// Whether the node may serve other holders in this process after this one.
    is_shared: bool,
    token: FencingToken,
    lost: SetOnce<LossReason>,
    /// Whether a request to release the lock was seen.
    revoking: AtomicBool,
    /// What is known about the contents of its node since it was created.
    notes: std::sync::Mutex<Notes>,
}

/// What this holder and other clients have written into the node.
#[derive(Debug, Default)]
struct Notes {
    /// The last request to release the lock.
    request: Option<RevokeRequest>,
    /// When the lock was granted.
    held_since_unix_ms: Option<u64>,
}

impl Guard {
    /// Confirms that the contender at the front holds the lock, with enough of the lease left. Costs a round trip
    /// only if the newest proof is old. After this program or the servers were suspended, it waits about one
    /// [relay](lockkeeper_client::Timing::relay) until a proof counts.
    pub(crate) async fn grant(contender: Contender, front: Front) -> Result<Self, AcquireError> {
        Self::confirm(OwnedNode::of(contender)?, front.own).await
    }

    /// The same for a node of any kind. `own`: an existing watch on it, if any.
    pub(crate) async fn confirm(
        owned: OwnedNode,
        own: Option<Watcher>,
    ) -> Result<Self, AcquireError> {
        let proven = owned.client.prove_one_service(&owned.node.path, &owned.node.stat).await;
        proven.map_err(|error| AcquireError::from_service(&owned.path, error))?;

        let timing = owned.client.timing();
        // An old proof must be as good as the next heartbeat would be. A fresh one is the best that
        // these servers can give.
        let mut enough = timing.left_at_grant();
        let mut proofs = Proofs::new();
        loop {
            let (hold, seen) = owned.client.hold_if_left(&owned.node.path, owned.name, enough);
            if seen.lease.session != owned.session() {
                return Err(AcquireError::session_ended(&owned.client, &owned.path));
            }
            if let Some(hold) = hold {
                return Ok(Self::new(owned, hold, own));
            }

            proofs.next(&owned).await?;
            enough = timing.always_left();
        }
    }

    fn new(owned: OwnedNode, hold: Hold, own: Option<Watcher>) -> Self {
        let token = FencingToken::new(owned.node.stat.czxid);
        let report = HoldReport::new(&owned.path, token, owned.session(), || hold.probe());
        Self(Box::new(GuardInner {
            #[cfg(feature = "tokio-util")]
            cancellation: Cancellation::default(),
            report,
            own_watch: Mutex::new(own),
            hold,
            others: Vec::new(),
            is_shared: false,
            token,
            lost: SetOnce::new(),
            revoking: AtomicBool::new(false),
            notes: std::sync::Mutex::default(),
            owned,
        }))
    }

    /// The fencing token, which is larger than the token of every earlier holder of this lock. Pass it to the
    /// resources that you use under the lock, and let them reject lower ones.
    pub fn token(&self) -> FencingToken {
        self.0.token
    }

    /// The lock's path.
    pub fn path(&self) -> &ZnodePath {
        &self.0.owned.path
    }

    /// The holder's own node.
    pub fn node(&self) -> &ZnodePath {
        &self.0.owned.node.path
    }

    /// The session that holds the lock.
    pub fn session(&self) -> SessionId {
        self.0.owned.session()
    }

    /// Whether the lock is held, in doubt or lost. Makes no request.
    ///
    /// If another client deletes the node, the next heartbeat notices it, within a
    /// [renewal interval](lockkeeper_client::Timing::renewal_interval) and a round trip, even if another node has
    /// the same name by then. It is noticed at once while [`Guard::lost`] or [`Guard::run`] is waiting, and when a
    /// [`Guard::transaction`] fails because of it. Without heartbeats, in
    /// [`LeaseMode::Direct`](lockkeeper_client::LeaseMode::Direct), only these calls and [`Guard::verify`] notice it.
    pub fn state(&self) -> HolderState {
        HolderState::of(self.lease())
    }

    /// Whether the lock is held, with or without a connection; see [`Guard::state`].
    pub fn is_held(&self) -> bool {
        self.lease().is_ok()
    }

    /// The deadline and the contact, or why the lock is not held. Both come from one read of
    /// the session: between two reads, the session could have been replaced.
    fn lease(&self) -> Result<(Instant, Contact), Unheld> {
        if let Some(reason) = self.0.lost.get() {
            return Err(Unheld::Lost(*reason));
        }
        self.look().map_err(|unheld| match unheld {
            Unheld::Lost(reason) => Unheld::Lost(self.lose(reason)),
            Unheld::Jeopardy => Unheld::Jeopardy,
        })
    }

    /// The local instant until which no other client can have been granted the lock, by the
    /// client's [`Clock`](lockkeeper_client::Clock); `None` if it is lost or in jeopardy. It moves forward while the
    /// session is alive.
    pub fn deadline(&self) -> Option<Instant> {
        self.lease().ok().map(|(deadline, _)| deadline)
    }

    /// The time until the deadline. Zero if the lock is lost or in jeopardy.
    pub fn remaining(&self) -> Duration {
        let now = self.client().now();
        self.deadline().map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Checks that the lock is held for at least `wanted` from now on. Makes no request.
    ///
    /// # Errors
    /// If the lock is lost or in jeopardy, or the lease ends earlier.
    pub fn ensure(&self, wanted: Duration) -> Result<(), EnsureError> {
        let (deadline, _) = self.lease().map_err(|unheld| match unheld {
            Unheld::Lost(reason) => EnsureError::Lost(reason),
            Unheld::Jeopardy => EnsureError::Jeopardy,
        })?;
        let left = deadline.since(self.client().now());
        if left < wanted { Err(EnsureError::TooShort { left, wanted }) } else { Ok(()) }
    }

    /// Asks the servers to confirm that the lock is held, which renews the deadline. Costs one
    /// committed write, and for an [`ExclusiveNode`](crate::ExclusiveNode) or a name a read in the same
    /// round trip. Right after this program was suspended, the deadline moves only with a later proof;
    /// [`Guard::checkpoint`] waits for it.
    ///
    /// # Errors
    /// If the lock is lost or in jeopardy, no server replies, or a server refuses the check.
    ///
    /// # Session loss
    /// Fails with [`VerifyError::Lost`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        if let HolderState::Lost(reason) = self.state() {
            return Err(VerifyError::Lost(reason));
        }
        match prove(self.checks(), &self.0.owned).await {
            Ok(Proof::NodeGone) => Err(VerifyError::Lost(self.found_missing())),
            Ok(Proof::Held) => verified(Ok(()), self.state()),
            Err(error) => verified(Err(error), self.state()),
        }
    }

    /// Allows the hold to outlast its deadline, from now on: it is then in [jeopardy](HolderState::Jeopardy) instead of
    /// lost. In jeopardy the lock counts as not held ([`Guard::ensure`] fails, [`Guard::deadline`] is
    /// `None`, [`Guard::run`] ends), and it is not granted within this process. If the
    /// servers then prove that the node of this holder has existed all the time, no other client can have
    /// been granted the lock, and it is held again with the same token. For work that can be suspended
    /// at any point, as in [`Guard::run_through`], or that checks between its steps, as with [`Guard::checkpoint`].
    ///
    /// It assumes that servers do not restore deleted nodes: see "Jeopardy" in
    /// `docs/guarantees.md`. Costs nothing until a deadline passes. Then it costs a committed write and a read
    /// on each new connection, until the lock is held again or lost. An upgrade or a downgrade waits
    /// until a jeopardy is over, and loses the lock at a deadline. Its result allows jeopardy if the
    /// guard before it did.
    ///
    /// # Errors
    /// Why the lock is already lost.
    ///
    /// # Session loss
    /// The lock is lost when a server reports the end of the session, also in jeopardy. While no server can be reached,
    /// jeopardy continues.
    pub fn allow_jeopardy(&self) -> Result<(), LossReason> {
        match self.state() {
            HolderState::Lost(reason) => Err(reason),
            HolderState::Jeopardy => Ok(()),
            HolderState::Held | HolderState::Suspect { .. } => {
                let mut nodes = self.nodes();
                match nodes.all(|(hold, owned)| hold.ride_out(owned.node.stat.czxid)) {
                    true => Ok(()),
                    false => Err(self.too_late()),
                }
            }
        }
    }

    /// Starts a transaction that is applied only while the lock is held. It begins with a check
    /// of the holder's own node, or of all its nodes if there are several.
    ///
    /// The guarantee is weaker for an [`ExclusiveNode`](crate::ExclusiveNode) and a [name](crate::NameClaim). A check
    /// names a path, and the next holder's node has the same path, so the transaction is applied
    /// while the node of *any* holder exists. It is sent only while this guard counts as held, and
    /// fails with [`Error::is_not_held`](lockkeeper_client::Error::is_not_held) otherwise. So it can be applied
    /// during another hold only if another client deletes the node, and only until
    /// [a heartbeat notices that](Guard::state). A [`Guard::verify`] that succeeds after the commit shows
    /// that it was applied while the lock was held. Where this is not enough, use a
    /// [`Mutex`](crate::Mutex).
    ///
    /// If the node of a [`Mutex`](crate::Mutex) serves several holders in this process (`linger`, `cohort`),
    /// the transaction is also sent only while this guard exists and counts as held. A transaction
    /// that is in flight when the guard is released may be applied when the next of these holders holds the
    /// lock, before any request of that holder.
    pub fn transaction(&self) -> Transaction {
        match self.0.owned.name {
            NameUse::Once if !self.0.is_shared => self.checks(),
            NameUse::Once | NameUse::Reused(_) | NameUse::Watched(_) => {
                self.checks().while_held(&self.0.hold)
            }
        }
    }

    /// Starts a transaction with checks of all nodes of the guard.
    fn checks(&self) -> Transaction {
        self.add_checks(self.client().transaction())
    }

    /// Adds checks of all nodes of the guard to a transaction. A missing node is the loss of the lock.
    pub(crate) fn add_checks(&self, transaction: Transaction) -> Transaction {
        let check = |checks: Transaction, (hold, owned): (&Hold, &OwnedNode)| {
            checks.check_held(hold, &owned.node.path)
        };
        self.nodes().fold(transaction, check)
    }

    /// Releases the lock, and waits until a server has confirmed it. Costs one round trip.
    ///
    /// # Errors
    /// If the lock was already lost, which is reported at once, or if no server could be reached for
    /// a session timeout. In the second case the release continues in the background.
    ///
    /// # Session loss
    /// The release fails, because the lock was lost.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.begin_release().confirmed().await
    }

    /// Queues the deletion, so that every later request is sent after it.
    pub(crate) fn begin_release(self) -> Releasing {
        let others_are_gone = self.others_are_gone();
        let GuardInner {
            #[cfg(feature = "tokio-util")]
            cancellation,
            report,
            own_watch,
            hold,
            others,
            mut owned,
            lost,
            revoking,
            ..
        } = *self.0;
        // The token is cancelled before any node is deleted.
        #[cfg(feature = "tokio-util")]
        drop(cancellation);
        // The other nodes are deleted first, so that the last reply confirms all of them.
        drop((own_watch, others));

        let (client, session, cleanup) = (&owned.client, owned.session(), owned.cleanup.take());
        let (seen, answer) = match cleanup {
            Some(cleanup) => client.clean_up_held(hold, session, cleanup),
            None => (hold.state(), None),
        };

        let is_gone = seen.is_gone || others_are_gone;
        let deletion = is_gone.then(|| deletion(client, session, &revoking));
        let lease = match lost.get() {
            Some(reason) => Err(Unheld::Lost(*reason)),
            None => judge(&seen, session, deletion),
        };
        report.ends(&lease);
        Releasing { state: HolderState::of(lease), answer }
    }

    /// Takes over the duty to delete the single node of this guard, so that the guard can be shared.
    pub(crate) fn take_duty(&mut self) -> OwnedNode {
        self.0.owned.take_duty()
    }

    /// Ends the guard for all its sharers, before its node is deleted. Returns the instant until which the node
    /// must stay, because a sharer may rely on that deadline; `None` if the lock was not held.
    pub(crate) fn end(&self, reason: LossReason) -> Option<Instant> {
        let is_held = self.is_held();
        self.lose(reason);
        // Read last, so that no later deadline can have been reported.
        let lease = self.client().lease();
        lease.deadline.filter(|_| is_held && lease.session == self.session())
    }

    /// Ends the guard, and leaves the deletion of its node to the caller.
    pub(crate) fn into_owned_node(self) -> OwnedNode {
        self.0.owned
    }

    /// Notes that the node is missing.
    pub(crate) fn found_missing(&self) -> LossReason {
        self.lose(self.deletion())
    }

    /// Turns the guard into that of another holder in this process, with a larger token.
    pub(crate) fn regrant(mut self) -> Self {
        self.0.token = self.0.token.next_grant();
        let GuardInner { owned, token, hold, .. } = &*self.0;
        let report = HoldReport::new(&owned.path, *token, owned.session(), || hold.probe());
        self.0.report = report;
        self
    }

    /// Allows the node to serve other holders in this process later.
    pub(crate) fn shared(mut self) -> Self {
        self.0.is_shared = true;
        self
    }

    /// Ends the hold of this holder, and keeps the node for another one. Requests of this holder that are not
    /// yet sent fail. Jeopardy is disallowed: an idle node does not outlast an outage.
    pub(crate) fn hand_on(&mut self) {
        self.cancel();
        self.0.report.lost(LossReason::Released);
        self.end_at_deadline();
        self.0.hold.hand_over();
        self.0.others.iter_mut().for_each(|(hold, _)| hold.hand_over());
    }

    /// Sets a token that was minted at the grant.
    pub(crate) fn with_token(mut self, token: FencingToken) -> Self {
        self.0.report.has_token(token);
        self.0.token = token;
        self
    }

    /// Adds more nodes. The loss of any of them is the loss of the lock.
    pub(crate) fn with_others(mut self, others: Vec<Contender>) -> Result<Self, AcquireError> {
        for other in others {
            let owned = OwnedNode::of(other)?;
            let hold = self.client().hold(&owned.node.path, owned.name);
            self.0.others.push((hold, owned));
        }
        Ok(self)
    }

    /// Ends the guard without deleting its node, which has been replaced.
    pub(crate) fn dissolve(mut self) {
        self.0.report.lost(LossReason::Released);
        self.0.owned.cleanup = None;
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.owned.client
    }

    /// The state for display. Unlike [`Guard::state`], this does not make a loss final.
    pub(crate) fn seen(&self) -> HolderState {
        HolderState::of(self.0.lost.get().map_or_else(|| self.look(), |r| Err(Unheld::Lost(*r))))
    }

    /// Writes one line about a guard of type `name`.
    pub(crate) fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({}, token {}, {})", self.path(), self.token(), self.seen())
    }

    /// The current deadline and contact, or why the lock is not held.
    fn look(&self) -> Result<(Instant, Contact), Unheld> {
        let seen = self.0.hold.state();
        let is_gone = seen.is_gone || self.others_are_gone();
        let held = judge(&seen, self.session(), is_gone.then(|| self.deletion()))?;
        // After a jeopardy, the nodes may be proven one after the other.
        match self.0.others.iter().all(|(hold, _)| hold.state().is_proven()) {
            true => Ok(held),
            false => Err(unproven(self.nodes().map(|(hold, _)| hold.state().proof))),
        }
    }

    /// Why the lock is lost after a deadline has passed.
    fn too_late(&self) -> LossReason {
        match self.state() {
            HolderState::Lost(reason) => reason,
            _ => self.lose(LossReason::DeadlinePassed),
        }
    }

    /// Whether jeopardy is allowed.
    fn rides_out(&self) -> bool {
        let rides_out = |hold: &Hold| hold.state().proof.is_some_and(|s| s.rides_out);
        self.nodes().all(|(hold, _)| rides_out(hold))
    }

    /// The nodes of the guard, with the hold that proves each.
    fn nodes(&self) -> impl Iterator<Item = (&Hold, &OwnedNode)> {
        let others = self.0.others.iter().map(|(hold, owned)| (hold, owned));
        std::iter::once((&self.0.hold, &self.0.owned)).chain(others)
    }

    /// Waits until a jeopardy is over, and disallows another one, because the following change of the node requires
    /// a hold without doubt. Returns whether jeopardy was allowed.
    pub(crate) async fn settle(&self) -> Result<bool, LossReason> {
        self.held_again().await?;
        let rides_out = self.rides_out();
        self.end_at_deadline();
        match self.state() {
            HolderState::Lost(reason) => Err(reason),
            _ => Ok(rides_out),
        }
    }

    /// Disallows jeopardy, so that the lock is lost at its deadline.
    pub(crate) fn end_at_deadline(&self) {
        self.nodes().for_each(|(hold, _)| hold.end_at_deadline());
    }

    /// Allows jeopardy if the guard that this one replaces allowed it.
    pub(crate) fn allowed(self, rides_out: bool) -> Self {
        if rides_out {
            // The state shows a loss.
            let _ = self.allow_jeopardy();
        }
        self
    }

    fn others_are_gone(&self) -> bool {
        self.0.others.iter().any(|(hold, _)| hold.is_gone())
    }

    /// Makes a loss final. The first reason is kept.
    fn lose(&self, reason: LossReason) -> LossReason {
        // This fails if a reason is already set.
        if self.0.lost.set(reason).is_ok() {
            self.0.report.lost(reason);
            self.cancel();
        }
        self.nodes().for_each(|(hold, _)| hold.give_up());
        self.0.lost.get().copied().unwrap_or(reason)
    }

    /// Cancels the guard's token.
    fn cancel(&self) {
        #[cfg(feature = "tokio-util")]
        self.0.cancellation.cancel();
    }

    /// The reason of the loss if the node is gone.
    pub(crate) fn deletion(&self) -> LossReason {
        deletion(self.client(), self.session(), &self.0.revoking)
    }
}

impl Granted for Guard {
    fn tokens(&self) -> Tokens {
        Tokens::One(self.token())
    }
}

/// Shows the lock, the token and the state.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe("Guard", f)
    }
}

/// Gives the guard type of a lock the methods of [`Guard`] and the same `Debug` output.
macro_rules! offers_guard {
    ($type:ident, $self:ident => $guard:expr) => {
        impl std::ops::Deref for $type {
            type Target = $crate::guard::Guard;

            fn deref(&$self) -> &$crate::guard::Guard {
                $guard
            }
        }

        /// Shows the lock, the token and the state.
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.describe(stringify!($type), f)
            }
        }

        impl $crate::telemetry::acquiring::Granted for $type {
            fn tokens(&self) -> $crate::telemetry::acquiring::Tokens {
                $crate::telemetry::acquiring::Tokens::One(self.token())
            }
        }
    };
}

pub(crate) use offers_guard;

/// Interprets the result of committed checks for a lock in this state, if none of its nodes was missing.
pub(crate) fn verified(
    committed: Result<(), TransactionError>,
    state: HolderState,
) -> Result<(), VerifyError> {
    match (committed, state) {
        (_, HolderState::Lost(reason)) => Err(VerifyError::Lost(reason)),
        (Err(TransactionError::Request(error)), _) => Err(VerifyError::Unknown(error)),
        (Err(refused), _) => Err(VerifyError::Refused(refused)),
        (Ok(()), HolderState::Jeopardy) => Err(VerifyError::Jeopardy),
        (Ok(()), HolderState::Held | HolderState::Suspect { .. }) => Ok(()),
    }
}

/// The reason of the loss if the node of a holder in this session is gone. `revoking`: whether the holder was asked to
/// release the lock.
fn deletion(client: &Client, session: SessionId, revoking: &AtomicBool) -> LossReason {
    match revoking.load(Ordering::Acquire) {
        // A server sends the event of the deletion before it replies that it has closed the session.
        _ if client.is_closed() => LossReason::ClientClosed,
        // The node may be missing because the session was replaced.
        _ if client.session_id() != session => LossReason::SessionExpired,
        true => LossReason::Revoked,
        false => LossReason::NodeDeleted,
    }
}
