//! The guard of a held lock: how long the lock is certain, and how its loss is noticed.
//!
//! ```text
//!   cancelling   its loss as a `CancellationToken` (feature `tokio-util`); methods of the guard, as here
//!   cancellation the token of a guard
//!   hold_report  reports the loss and the end of a hold: events and metrics
//!   state        whether a lock is held: a pure function of the session's state
//!   jeopardy     running work across an outage, for one lock or several; methods of the guard, as here
//!   owned_node   a holder's node, and its deletion
//!   proving      the proof that a lock is held, and how a grant waits for one
//!   revocation   the mark by which another program asks for the lock
//!   several      what is true of locks that are held together
//!   waits        what a holder can wait for; methods of the guard, as here
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
use crate::guard::state::{State, Unheld, judge, unproven};
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

/// The fields of a guard. They are behind a pointer, because a guard is moved many times on its way to
/// the holder and back.
struct GuardInner {
    // Declared in the order in which they are dropped: what runs under the token ends first, the report looks at
    // the hold, and the deletion of the owned node must not fire its watch.
    #[cfg(feature = "tokio-util")]
    cancellation: Cancellation,
    report: HoldReport,
    own_watch: Mutex<Option<Watcher>>,
    hold: Hold,
    /// The other nodes that belong to it, if it has several: the loss of any is its loss.
    others: Vec<(Hold, OwnedNode)>,
    owned: OwnedNode,
    /// Whether the node may serve other holders of this process after this one.
    is_shared: bool,
    token: FencingToken,
    lost: SetOnce<LossReason>,
    /// Whether a request to release the lock was seen.
    revoking: AtomicBool,
    /// What is in its node besides what was there when it was created.
    notes: std::sync::Mutex<Notes>,
}

/// What a holder writes into its node, and what others have.
#[derive(Debug, Default)]
struct Notes {
    /// The last request to release the lock.
    request: Option<RevokeRequest>,
    /// Since when the lock is held.
    held_since_unix_ms: Option<u64>,
}

impl Guard {
    /// Confirms that a contender at the front holds, with enough of the lease left. Costs a round trip
    /// only if the newest proof is old. After this program or the servers stood still, it waits until a proof
    /// counts, for about a [relay](lockkeeper_client::Timing::relay).
    pub(crate) async fn grant(contender: Contender, front: Front) -> Result<Self, AcquireError> {
        Self::confirm(OwnedNode::of(contender)?, front.own).await
    }

    /// The same for a node of any kind. `own`: a watch on it, if there is one already.
    pub(crate) async fn confirm(
        owned: OwnedNode,
        own: Option<Watcher>,
    ) -> Result<Self, AcquireError> {
        let proven = owned.client.prove_one_service(&owned.node.path, &owned.node.stat).await;
        proven.map_err(|error| AcquireError::from_service(&owned.path, error))?;

        let timing = owned.client.timing();
        // An old proof must be as good as the next heartbeat would be. A fresh one is the best that
        // these servers give.
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

    /// A number that is larger than that of every earlier holder of this lock. Pass it to the
    /// resources that you use under the lock, and have them refuse lower ones.
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

    /// Whether the lock is held, in doubt or lost. Decided locally, without asking a server.
    ///
    /// If another client deletes the node, this is noticed when a heartbeat finds it, within a
    /// [renewal interval](lockkeeper_client::Timing::renewal_interval) and a round trip, also if another node has
    /// the same name by then; or at once while [`Guard::lost`] or [`Guard::run`] is waiting, and when a
    /// [`Guard::transaction`] fails because of it. Under [`LeaseMode::Direct`](lockkeeper_client::LeaseMode::Direct) there
    /// are no heartbeats: only these calls and [`Guard::verify`] notice it.
    pub fn state(&self) -> State {
        State::of(self.lease())
    }

    /// Whether the lock is held, with or without a connection; see [`Guard::state`].
    pub fn is_held(&self) -> bool {
        self.lease().is_ok()
    }

    /// The deadline and the contact, or why the lock is not held. Lease and contact are from one look
    /// at the session: between two, it could have become another one.
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
    /// client's [`Clock`](lockkeeper_client::Clock); `None` if it is lost or in jeopardy. It moves on while the
    /// session is alive.
    pub fn deadline(&self) -> Option<Instant> {
        self.lease().ok().map(|(deadline, _)| deadline)
    }

    /// The time until the deadline; zero if the lock is lost or in jeopardy.
    pub fn remaining(&self) -> Duration {
        let now = self.client().now();
        self.deadline().map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Checks that the lock is held for at least `wanted` from now on. Asks no server.
    ///
    /// # Errors
    /// If it is lost or in jeopardy, or the lease ends earlier.
    pub fn ensure(&self, wanted: Duration) -> Result<(), EnsureError> {
        let (deadline, _) = self.lease().map_err(|unheld| match unheld {
            Unheld::Lost(reason) => EnsureError::Lost(reason),
            Unheld::Jeopardy => EnsureError::Jeopardy,
        })?;
        let left = deadline.since(self.client().now());
        if left < wanted { Err(EnsureError::TooShort { left, wanted }) } else { Ok(()) }
    }

    /// Has the servers confirm that the lock is held, and so renews the deadline. Costs one
    /// committed write, and for an [`ExclusiveNode`](crate::ExclusiveNode) or a name a read in the same
    /// round trip. Right after this program stood still, the deadline moves only with a later proof, for
    /// which [`Guard::checkpoint`] waits.
    ///
    /// # Errors
    /// If it is lost or in jeopardy, no server answers, or one refuses the check.
    ///
    /// # Session loss
    /// Fails with [`VerifyError::Lost`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        if let State::Lost(reason) = self.state() {
            return Err(VerifyError::Lost(reason));
        }
        match prove(self.checks(), &self.0.owned).await {
            Ok(Proof::NodeGone) => Err(VerifyError::Lost(self.found_missing())),
            Ok(Proof::Held) => verified(Ok(()), self.state()),
            Err(error) => verified(Err(error), self.state()),
        }
    }

    /// Lets the lock outlast its deadline, from now on: it is then in [jeopardy](State::Jeopardy) and
    /// not lost. In jeopardy the lock counts as not held ([`Guard::ensure`] fails, there is no
    /// [`Guard::deadline`], [`Guard::run`] ends), and it is not granted within this process. If the
    /// servers then prove that the node of this holder existed all the time, no other client can have
    /// been granted the lock, and it is held again with the same token. For work that can be suspended
    /// at any point, as in [`Guard::run_through`], or that asks between its steps, as [`Guard::checkpoint`] does.
    ///
    /// It assumes servers that do not bring deleted nodes back: see "Jeopardy" in
    /// `docs/guarantees.md`. Costs nothing until a deadline passes; then a committed write and a read
    /// on each new connection, until the lock is held again or lost. An upgrade or a downgrade waits
    /// until a jeopardy is over, and is lost at a deadline; the guard that it gives is allowed what the
    /// one before was.
    ///
    /// # Errors
    /// Why the lock has been lost already.
    ///
    /// # Session loss
    /// The lock is lost when a server says so, in jeopardy too. While none can be reached, jeopardy
    /// goes on.
    pub fn allow_jeopardy(&self) -> Result<(), LossReason> {
        match self.state() {
            State::Lost(reason) => Err(reason),
            State::Jeopardy => Ok(()),
            State::Held | State::Suspect { .. } => {
                let mut nodes = self.nodes();
                match nodes.all(|(hold, owned)| hold.ride_out(owned.node.stat.czxid)) {
                    true => Ok(()),
                    false => Err(self.too_late()),
                }
            }
        }
    }

    /// Starts a transaction that is applied only while the lock is held: it begins with a check
    /// of the holder's own node, and of all of them if there are several.
    ///
    /// An [`ExclusiveNode`](crate::ExclusiveNode) and a [name](crate::NameClaim) promise less. A check
    /// names a path, and there the next holder's node has the same one, so the transaction is applied
    /// while *somebody's* node is there. It is sent only while this holder believes that it holds, and
    /// fails with [`Error::is_not_held`](lockkeeper_client::Error::is_not_held) otherwise. So it can be applied
    /// beside another holder only if another client deletes the node, and only until
    /// [a heartbeat finds that](Guard::state). A [`Guard::verify`] that succeeds after the commit shows
    /// that it was applied while the lock was held. Where that is not enough, use a
    /// [`Mutex`](crate::Mutex).
    ///
    /// Where `linger` or `cohort` lets the node of a [`Mutex`](crate::Mutex) serve several holders of this
    /// process, the transaction is also sent only while this guard is there and believes that it holds. One
    /// that is on its way when the guard is given back may be applied when the next of them holds, ahead of
    /// all that this one asks of the same client.
    pub fn transaction(&self) -> Transaction {
        match self.0.owned.name {
            NameUse::Once if !self.0.is_shared => self.checks(),
            NameUse::Once | NameUse::Reused(_) | NameUse::Watched(_) => {
                self.checks().while_held(&self.0.hold)
            }
        }
    }

    /// Starts a transaction with checks of all its nodes.
    fn checks(&self) -> Transaction {
        self.add_checks(self.client().transaction())
    }

    /// Adds checks of all its nodes to a transaction. One that is missing is the loss of the lock.
    pub(crate) fn add_checks(&self, transaction: Transaction) -> Transaction {
        let check = |checks: Transaction, (hold, owned): (&Hold, &OwnedNode)| {
            checks.check_held(hold, &owned.node.path)
        };
        self.nodes().fold(transaction, check)
    }

    /// Releases the lock, and waits until a server has confirmed it. Costs one round trip.
    ///
    /// # Errors
    /// If the lock had been lost before, which is reported at once, or if no server could be reached for
    /// a session timeout. In the second case the release goes on in the background.
    ///
    /// # Session loss
    /// The release fails; the lock was lost.
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
        // What runs under the token ends before anything is deleted.
        #[cfg(feature = "tokio-util")]
        drop(cancellation);
        // The others go first, so that the last answer is about all.
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
        Releasing { state: State::of(lease), answer }
    }

    /// Takes away the duty to delete its node, of which it has one, so that the guard can be shared.
    pub(crate) fn take_duty(&mut self) -> OwnedNode {
        self.0.owned.take_duty()
    }

    /// Ends it for all who share it, before its node is deleted. Returns until when the node must stay, as one
    /// of them may have been told so; `None` if the lock was not held.
    pub(crate) fn end(&self, reason: LossReason) -> Option<Instant> {
        let is_held = self.is_held();
        self.lose(reason);
        // Read last: no later deadline can have been told.
        let lease = self.client().lease();
        lease.deadline.filter(|_| is_held && lease.session == self.session())
    }

    /// Stops proving the node, and leaves its deletion to the caller.
    pub(crate) fn into_owned_node(self) -> OwnedNode {
        self.0.owned
    }

    /// Notes that the node was found to be missing.
    pub(crate) fn found_missing(&self) -> LossReason {
        self.lose(self.deletion())
    }

    /// The same hold for another holder of this process, with a larger token.
    pub(crate) fn regrant(mut self) -> Self {
        self.0.token = self.0.token.next_grant();
        let GuardInner { owned, token, hold, .. } = &*self.0;
        let report = HoldReport::new(&owned.path, *token, owned.session(), || hold.probe());
        self.0.report = report;
        self
    }

    /// The same with a node that may serve other holders of this process later.
    pub(crate) fn shared(mut self) -> Self {
        self.0.is_shared = true;
        self
    }

    /// Ends it for this holder, and keeps the node for another one. What this holder has asked for and what
    /// is not sent yet is refused. A node that nobody uses outlasts no outage.
    pub(crate) fn hand_on(&mut self) {
        self.cancel();
        self.0.report.lost(LossReason::Released);
        self.end_at_deadline();
        self.0.hold.hand_over();
        self.0.others.iter_mut().for_each(|(hold, _)| hold.hand_over());
    }

    /// The same with a token that was made at the grant.
    pub(crate) fn with_token(mut self, token: FencingToken) -> Self {
        self.0.report.has_token(token);
        self.0.token = token;
        self
    }

    /// The same with more nodes; the loss of any of them is its loss.
    pub(crate) fn with_others(mut self, others: Vec<Contender>) -> Result<Self, AcquireError> {
        for other in others {
            let owned = OwnedNode::of(other)?;
            let hold = self.client().hold(&owned.node.path, owned.name);
            self.0.others.push((hold, owned));
        }
        Ok(self)
    }

    /// Ends it without deleting its node: another one has taken the place.
    pub(crate) fn dissolve(mut self) {
        self.0.report.lost(LossReason::Released);
        self.0.owned.cleanup = None;
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.owned.client
    }

    /// The state for display. Unlike [`Guard::state`], it does not make a loss final.
    pub(crate) fn seen(&self) -> State {
        State::of(self.0.lost.get().map_or_else(|| self.look(), |r| Err(Unheld::Lost(*r))))
    }

    /// One line about a guard of this name.
    pub(crate) fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{name}({}, token {}, {})", self.path(), self.token(), self.seen())
    }

    /// The deadline and the contact as the session has them now, or why it is not held.
    fn look(&self) -> Result<(Instant, Contact), Unheld> {
        let seen = self.0.hold.state();
        let is_gone = seen.is_gone || self.others_are_gone();
        let held = judge(&seen, self.session(), is_gone.then(|| self.deletion()))?;
        // After a jeopardy, they may be proven one after the other.
        match self.0.others.iter().all(|(hold, _)| hold.state().is_proven()) {
            true => Ok(held),
            false => Err(unproven(self.nodes().map(|(hold, _)| hold.state().proof))),
        }
    }

    /// Why the lock is lost, after a deadline was found to have passed.
    fn too_late(&self) -> LossReason {
        match self.state() {
            State::Lost(reason) => reason,
            _ => self.lose(LossReason::DeadlinePassed),
        }
    }

    /// Whether jeopardy is allowed.
    fn rides_out(&self) -> bool {
        let rides_out = |hold: &Hold| hold.state().proof.is_some_and(|s| s.rides_out);
        self.nodes().all(|(hold, _)| rides_out(hold))
    }

    /// Its nodes, and what proves each.
    fn nodes(&self) -> impl Iterator<Item = (&Hold, &OwnedNode)> {
        let others = self.0.others.iter().map(|(hold, owned)| (hold, owned));
        std::iter::once((&self.0.hold, &self.0.owned)).chain(others)
    }

    /// Waits until a jeopardy is over, and disallows another one, for a change of the node that must not
    /// be in doubt. Returns whether jeopardy was allowed.
    pub(crate) async fn settle(&self) -> Result<bool, LossReason> {
        self.held_again().await?;
        let rides_out = self.rides_out();
        self.end_at_deadline();
        match self.state() {
            State::Lost(reason) => Err(reason),
            _ => Ok(rides_out),
        }
    }

    /// Disallows jeopardy: the lock is lost at its deadline.
    pub(crate) fn end_at_deadline(&self) {
        self.nodes().for_each(|(hold, _)| hold.end_at_deadline());
    }

    /// Allows jeopardy if the guard that this one replaces was allowed it.
    pub(crate) fn allowed(self, rides_out: bool) -> Self {
        if rides_out {
            // The loss shows in its state.
            let _ = self.allow_jeopardy();
        }
        self
    }

    fn others_are_gone(&self) -> bool {
        self.0.others.iter().any(|(hold, _)| hold.is_gone())
    }

    /// Makes a loss final; the first reason stays.
    fn lose(&self, reason: LossReason) -> LossReason {
        // It fails if a reason is known already.
        if self.0.lost.set(reason).is_ok() {
            self.0.report.lost(reason);
            self.cancel();
        }
        self.nodes().for_each(|(hold, _)| hold.give_up());
        self.0.lost.get().copied().unwrap_or(reason)
    }

    /// Ends what runs under its token.
    fn cancel(&self) {
        #[cfg(feature = "tokio-util")]
        self.0.cancellation.cancel();
    }

    /// What it means that the node is gone.
    pub(crate) fn deletion(&self) -> LossReason {
        deletion(self.client(), self.session(), &self.0.revoking)
    }
}

impl Granted for Guard {
    fn tokens(&self) -> Tokens {
        Tokens::One(self.token())
    }
}

/// Its lock, its token and how it stands.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe("Guard", f)
    }
}

/// Gives a lock's own guard type the methods of [`Guard`] and the same `Debug` output.
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

        impl $crate::telemetry::acquiring::Granted for $type {
            fn tokens(&self) -> $crate::telemetry::acquiring::Tokens {
                $crate::telemetry::acquiring::Tokens::One(self.token())
            }
        }
    };
}

pub(crate) use offers_guard;

/// What it means for a lock in this state that checks of its nodes, none of which was missing, were
/// committed or not.
pub(crate) fn verified(
    committed: Result<(), TransactionError>,
    state: State,
) -> Result<(), VerifyError> {
    match (committed, state) {
        (_, State::Lost(reason)) => Err(VerifyError::Lost(reason)),
        (Err(TransactionError::Request(error)), _) => Err(VerifyError::Unknown(error)),
        (Err(refused), _) => Err(VerifyError::Refused(refused)),
        (Ok(()), State::Jeopardy) => Err(VerifyError::Jeopardy),
        (Ok(()), State::Held | State::Suspect { .. }) => Ok(()),
    }
}

/// What it means that the node of a holder in this session is gone, who was perhaps asked to release the
/// lock.
fn deletion(client: &Client, session: SessionId, revoking: &AtomicBool) -> LossReason {
    match revoking.load(Ordering::Acquire) {
        // A server tells of the deletion before it answers that it has closed the session.
        _ if client.is_closed() => LossReason::ClientClosed,
        // It may have been missed in the next session.
        _ if client.session_id() != session => LossReason::SessionExpired,
        true => LossReason::Revoked,
        false => LossReason::NodeDeleted,
    }
}
