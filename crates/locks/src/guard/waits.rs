//! Waits of a holder: for the loss of the lock, for a jeopardy and its end, and for a request to release the lock.

#![expect(clippy::disallowed_types, reason = "wall time, only for display")]

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lockkeeper_client::retry::retry_pause;
use lockkeeper_client::{
    Error, ErrorCode, EventKind, NameUse, Stat, Status, WatchEvent, WatchLost, Watcher,
};
use tokio::sync::watch;

use super::Guard;
use crate::contender::watches::first_event;
use crate::error::LossReason;
use crate::guard::revocation;
use crate::guard::state::HolderState;
use crate::owner_info::RevokeRequest;

/// The watches of a future that waits for the loss of a lock.
#[derive(Default)]
struct LossWatches {
    /// The watch on the own node, while another future uses the guard's watch.
    own: Option<Watcher>,
    /// The watches on the other nodes.
    others: Vec<(usize, Watcher)>,
}

impl Guard {
    /// Waits until the lock is lost. Costs one round trip for a watch on the holder's node, or on each of its
    /// nodes, unless the wait in the queue has left a watch. Costs one more for each change of a node.
    ///
    /// # Session loss
    /// Ends the wait: at once when a server reports it, and otherwise at the deadline. Where
    /// [jeopardy is allowed](Guard::allow_jeopardy), only when a server reports it.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn lost(&self) -> LossReason {
        let mut watches = LossWatches::default();
        loop {
            let status = self.client().status();
            match self.state() {
                HolderState::Lost(reason) => return reason,
                _ => self.changed(status, &mut watches).await,
            }
        }
    }

    /// Waits until the lock is in jeopardy, which begins at the deadline and
    /// [must be allowed](Guard::allow_jeopardy). A timer may fire late, so code that must not run in
    /// jeopardy also checks the deadline before each step. Costs the same as [`Guard::lost`].
    ///
    /// # Errors
    /// Why the lock is lost.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn jeopardy(&self) -> Result<(), LossReason> {
        let mut watches = LossWatches::default();
        loop {
            let status = self.client().status();
            match self.state() {
                HolderState::Jeopardy => return Ok(()),
                HolderState::Lost(reason) => return Err(reason),
                HolderState::Held | HolderState::Suspect { .. } => {
                    self.changed(status, &mut watches).await
                }
            }
        }
    }

    /// Waits until the lock is held again. Returns at once if it is not in jeopardy. After a wait, it checks whether a
    /// request to release the lock has arrived, so that [`Guard::revoke_requested`] reports it; this
    /// costs one round trip.
    ///
    /// # Errors
    /// Why the lock is lost.
    ///
    /// # Session loss
    /// Same as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Safe: call it again. A call after a dropped wait does not check for such a request if the
    /// lock is held by then.
    pub async fn held_again(&self) -> Result<(), LossReason> {
        // Whether the lock was in jeopardy, in which a request to release it may have been missed.
        let mut is_new = false;
        let mut watches = LossWatches::default();

        loop {
            // Subscribed before the state is read, so that a change in between ends the wait.
            let status = self.client().status();
            match self.state() {
                HolderState::Lost(reason) => return Err(reason),
                HolderState::Jeopardy => {
                    is_new = true;
                    self.changed(status, &mut watches).await;
                }
                HolderState::Held | HolderState::Suspect { .. } if !is_new => return Ok(()),
                HolderState::Held | HolderState::Suspect { .. } => match self.read_own().await {
                    Ok(_) => is_new = false,
                    Err(error) if error.is_retryable() => self.changed(status, &mut watches).await,
                    // The state shows the reason.
                    Err(_) => is_new = false,
                },
            }
        }
    }

    /// Waits until another program requests the lock with [`revoke`](crate::revoke::revoke), or with
    /// Curator's `Revoker`. That program may take the lock by force later, so release the lock soon. Costs
    /// one round trip, and one for each change of the node.
    ///
    /// # Errors
    /// Why the lock was lost before a request came.
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

    /// The last request to release the lock, with its requester and reason if given. `None` if no request was seen.
    /// [`Guard::revoke_requested`] waits for a request; [`Guard::lost`] and [`Guard::run`] notice one too. Makes no
    /// request.
    pub fn revoke_request(&self) -> Option<RevokeRequest> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner).request.clone()
    }

    /// Records in the holder's node when the lock was granted, for display
    /// ([`OwnerInfo::held_since_unix_ms`](crate::OwnerInfo)). The servers do not know when a contender that
    /// waited was granted the lock. `since` is by the clock of this machine.
    ///
    /// Costs one write, which is not awaited, and one event and one read for the contender that waits for
    /// this holder. Nothing is recorded, and only the time since the holder entered the queue is known, if the node
    ///
    /// - was written to after it was created, as by a request to release the lock;
    /// - does not contain [`OwnerInfo`](crate::OwnerInfo), as with a label in kazoo's profile;
    /// - may belong to another holder later: that of a [`Mutex`](crate::Mutex) with `linger` or `cohort`, of an
    ///   [`ExclusiveNode`](crate::ExclusiveNode), or of a name.
    ///
    /// Do not use it in an election in which Curator's `LeaderLatch` takes part, for the reason given at
    /// [`revoke`](crate::revoke::revoke).
    pub fn note_held_since(&self, since: SystemTime) {
        let owned = &self.0.owned;
        if self.0.is_shared || owned.name != NameUse::Once || !self.is_held() {
            return;
        }
        let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since = u64::try_from(since.as_millis()).ok();
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner).held_since_unix_ms = since;

        let noted = revocation::changed(&owned.data, |owner| owner.held_since_unix_ms = since);
        if let Some(data) = noted {
            // The reply is not needed.
            let version = owned.node.stat.version;
            drop(self.client().set_data(self.node(), data, Some(version)));
        }
    }

    /// Waits for a change since this status: of the session or a node, or a deadline that is near.
    /// `watches`: the caller's own watches, kept from one change to the next.
    async fn changed(&self, mut status: watch::Receiver<Status>, watches: &mut LossWatches) {
        let reason = tokio::select! {
            biased;
            reason = self.node_deleted(&mut watches.own) => reason,
            reason = self.other_deleted(&mut watches.others) => reason,
            _ = status.changed() => None,
            _ = self.0.lost.wait() => None,
            () = self.deadline_near() => None,
        };
        if let Some(reason) = reason {
            self.lose(reason);
        }
    }

    /// Reads the own node, and notes a request to release the lock. The node may belong to another holder
    /// with the same name by now.
    async fn read_own(&self) -> Result<(), Error> {
        let (data, stat) = self.client().data(self.node()).await?;
        if self.0.owned.is(&stat) {
            self.look_for_revocation(&data, &stat);
        }
        Ok(())
    }

    /// Waits until the node is certain to be deleted by another client (`Some`), or its watch ends.
    async fn node_deleted(&self, watches: &mut Option<Watcher>) -> Option<LossReason> {
        match self.0.own_watch.try_lock() {
            Ok(mut kept) => {
                if kept.is_none() {
                    *kept = watches.take();
                }
                self.watch_own(&mut kept).await
            }
            // Another future uses the watch, and may never be polled again.
            Err(_) => self.watch_own(watches).await,
        }
    }

    /// The same with this watch on the node, or with a new watch.
    async fn watch_own(&self, own_watch: &mut Option<Watcher>) -> Option<LossReason> {
        let watcher = match own_watch.take() {
            Some(watcher) => watcher,
            None => match self.client().data_watched(self.node()).await {
                Ok(((_, stat), _)) if !self.0.owned.is(&stat) => return Some(self.deletion()),
                Ok(((data, stat), watcher)) => {
                    self.look_for_revocation(&data, &stat);
                    watcher
                }
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    return Some(self.deletion());
                }
                // The connection is lost, and perhaps the lock too. The deadline decides.
                Err(_) => std::future::pending().await,
            },
        };

        let event = own_watch.insert(watcher).changed().await;
        // An event is delivered once, so other futures that wait here have to check for themselves.
        *own_watch = None;
        self.loss_by_event(event)
    }

    /// The same for the first of the other nodes. Never returns if there are no other nodes.
    async fn other_deleted(&self, watches: &mut Vec<(usize, Watcher)>) -> Option<LossReason> {
        let mut asked = Vec::new();
        for (index, (_, owned)) in self.0.others.iter().enumerate() {
            if watches.iter().all(|(watched, _)| *watched != index) {
                asked.push((index, self.client().data_watched(&owned.node.path)));
            }
        }
        for (index, reply) in asked {
            match reply.await {
                Ok((_, watcher)) => watches.push((index, watcher)),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    return Some(self.deletion());
                }
                Err(_) => std::future::pending().await,
            }
        }

        let (index, event) = first_event(watches).await;
        drop(watches.swap_remove(index));
        self.loss_by_event(event)
    }

    /// The reason of the loss that an event on one of the nodes shows, if the loss is certain.
    fn loss_by_event(&self, event: Result<WatchEvent, WatchLost>) -> Option<LossReason> {
        match event {
            // Servers send the events of a session's nodes before they report the end of the session, which
            // cannot be before the deadline. If the deadline has passed, the caller checks again.
            Ok(event)
                if event.kind == EventKind::NodeDeleted && self.0.hold.state().is_proven() =>
            {
                Some(self.deletion())
            }
            _ => None,
        }
    }

    /// Waits until the node's data is a request to release the lock.
    async fn asked_for(&self) {
        while !self.0.revoking.load(Ordering::Acquire) {
            // Subscribed before the read, so that the end of an outage in between is not missed.
            let mut status = self.client().status();

            match self.client().data_watched(self.node()).await {
                // The loss of the lock is noticed elsewhere.
                Ok(((_, stat), _)) if !self.0.owned.is(&stat) => std::future::pending().await,
                Ok(((data, stat), mut watcher)) => {
                    if !self.look_for_revocation(&data, &stat) {
                        // The end of the session is noticed elsewhere.
                        let _ = watcher.changed().await;
                    }
                }
                Err(error) => {
                    if retry_pause(error).await.is_err() {
                        // The loss of the lock is noticed elsewhere, or the hold outlasts an outage.
                        let _ = status.changed().await;
                    }
                }
            }
        }
    }

    fn look_for_revocation(&self, data: &Bytes, stat: &Stat) -> bool {
        let Some(request) = revocation::asked(data) else { return false };
        let says_more = request != RevokeRequest::default();
        let held_since = {
            let mut notes = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.request = Some(request.clone());
            notes.held_since_unix_ms
        };
        if !self.0.revoking.swap(true, Ordering::AcqRel) {
            let RevokeRequest { by, reason } = &request;
            tracing::info!(
                lock = %self.path(), token = %self.token(), by, reason,
                "another program asks for the lock"
            );
        }

        // Confirms the request: the owner's data shows which holder ignores it. The write names the version,
        // because another future may have confirmed it already. The reply is not needed.
        let before = &self.0.owned.data;
        let answer = revocation::changed(before, |owner| {
            owner.revoked = true;
            owner.held_since_unix_ms = held_since;
            owner.request = says_more.then_some(request);
        });
        let answer = answer.unwrap_or_else(|| before.clone());
        drop(self.client().set_data(self.node(), answer, Some(stat.version)));
        true
    }

    /// Sleeps towards the deadline, at most a second, because a timer does not count suspended time.
    async fn deadline_near(&self) {
        let second = Duration::from_secs(1);
        let left = self.deadline().map(|deadline| deadline.since(self.client().now()));
        tokio::time::sleep(left.unwrap_or(second).min(second)).await;
    }
}
