//! [`Item`]: an item that this consumer works on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::retry::outlast;
use lockkeeper_client::{CreateMode, ErrorCode, Transaction};
use lockkeeper_locks::for_recipes::{end_overdue, found_missing};
use lockkeeper_locks::{Guard, HolderState, LossReason};
use serde::Serialize;
use tokio::task::AbortHandle;

use crate::queue::answer::ItemAnswer;
use crate::queue::claim::{Claim, ClaimCommitted};
use crate::queue::commit::nothing;
use crate::queue::core::Core;
use crate::queue::error::{CommitError, QueueError};
use crate::queue::layout::{DeadLetterData, Entry, Header, NewEntry};
use crate::queue::marks::Marks;
use crate::queue::take::HeldClaim;
use crate::wall_clock::millis;

/// How many of the steps that end an item check that it is this consumer's.
const CHECKS: usize = 2;

/// The same, in another library's queue.
const PEER_CHECKS: usize = 3;

/// An item of a [`Queue`](crate::Queue) that this consumer works on. The rules of [`Guard`] apply: no other
/// consumer has the item before [`Guard::deadline`], and [`Guard::lost`] returns when one may.
///
/// Dropping it gives it back: another consumer can take it, in its old place in the queue.
#[must_use = "the item is given back when it is dropped"]
pub struct Item<T> {
    value: T,
    claimed: Arc<Claimed>,
    /// Ends the item when it has been held for too long.
    timer: Option<AbortHandle>,
}

/// A claimed item.
struct Claimed {
    // Dropped before the claim.
    guard: Guard,
    claim: Claim,
    core: Arc<Core>,
    entry: Entry,
    version: i32,
    /// The data of its node, in another library's queue.
    data: Bytes,
    /// Whether its holder has begun to end it.
    is_ending: AtomicBool,
}

impl<T> Item<T> {
    pub(super) fn new(
        core: &Arc<Core>,
        entry: Entry,
        version: i32,
        held: HeldClaim,
        (value, data): (T, Bytes),
    ) -> Self {
        let claimed = Arc::new(Claimed::new(core, entry, version, held, data));
        let timer = claimed.core.options.max_run.map(|time| end_after(&claimed, time));
        Self { value, claimed, timer }
    }

    /// The item's value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The item's id, as returned by [`Queue::put`](crate::Queue::put), or set by [its
    /// putter](crate::PutOptions::id). It stays the same when the item is taken again. Use it as a key to make
    /// effects elsewhere happen once.
    pub fn id(&self) -> &str {
        self.claimed.entry.known_as()
    }

    /// How often it was taken, including this time: above 1, another consumer may have begun to work on it.
    pub fn attempt(&self) -> u32 {
        self.claimed.entry.taken(self.claimed.version).saturating_add(1)
    }

    /// Records that the item is done, and removes it. Costs one round trip (1 write).
    ///
    /// # Errors
    /// [`QueueError::Lost`] if it is not this consumer's any more, [`QueueError::Ended`] if it was already ended,
    /// [`QueueError::Cancelled`] if it was [cancelled](crate::Queue::cancel); [`QueueError::Unknown`] if the
    /// session ended before the outcome was known: another consumer gets it if it was not done. If a request is
    /// refused, the item is still held.
    ///
    /// # Session loss
    /// Fails with [`QueueError::Lost`].
    ///
    /// # Cancel safety
    /// When dropped, it may be done.
    pub async fn done(&self) -> Result<(), QueueError> {
        let nothing_else = self.claimed.core.client.transaction();
        self.done_with(nothing_else).await
    }

    /// Records that the item is done together with writes of the caller, in one atomic transaction. So the item's
    /// effects on znodes happen once. Costs one round trip (1 write).
    ///
    /// # Errors
    /// As [`Item::done`]; [`QueueError::Refused`], with the index in the given transaction, if one of its steps is
    /// refused. The item is still held then, and may be ended in another way.
    ///
    /// # Session loss
    /// Fails with [`QueueError::Lost`].
    ///
    /// # Cancel safety
    /// When dropped, it may be done, with all of the writes.
    pub async fn done_with(&self, writes: Transaction) -> Result<(), QueueError> {
        self.claimed.done(serde_json::Value::Null, &writes).await
    }

    /// [`Item::done`] with an answer for the program that has [requested](crate::Queue::request) the item and still
    /// waits. Without a requester, the item is just done. Servers accept an answer of about 1 MiB. Costs one round
    /// trip (1 write), and another one if the requester has left.
    ///
    /// # Errors
    /// As [`Item::done`]; [`QueueError::Unencodable`] if the answer cannot be written as JSON,
    /// [`QueueError::TooLarge`] if it is too long. The item is still held then.
    ///
    /// # Session loss
    /// Fails with [`QueueError::Lost`].
    ///
    /// # Cancel safety
    /// As [`Item::done`].
    pub async fn done_with_answer(&self, answer: &impl Serialize) -> Result<(), QueueError> {
        let core = &self.claimed.core;
        let answer = serde_json::to_value(answer).map_err(|error| QueueError::Unencodable {
            path: core.path().clone(),
            reason: error.to_string(),
        })?;
        self.claimed.done(answer, &core.client.transaction()).await
    }

    /// Reports progress to the program that has [requested](crate::Queue::request) the item, replacing the last
    /// note. Returns whether the requester waits. Costs one round trip (1 write), and nothing if the item was not
    /// requested.
    ///
    /// # Errors
    /// If a request is refused, or the item is not this consumer's any more.
    ///
    /// # Session loss
    /// Fails with [`QueueError::Lost`].
    ///
    /// # Cancel safety
    /// When dropped, the note may be written.
    pub async fn note(&self, note: impl Into<String>) -> Result<bool, QueueError> {
        let claimed = &self.claimed;
        let (core, entry) = (&claimed.core, &claimed.entry);
        let Some((answer, data)) = core.answer_of(entry, ItemAnswer::Note(note.into())) else {
            return Ok(false);
        };
        claimed.ensure_held()?;
        let steps = core.client.transaction().check(claimed.claim.node(), None);
        let steps = steps.set_data(&answer, data, None);
        match core.write(steps).await {
            Ok(_) => Ok(true),
            Err(error) => match error.refused() {
                Some((0, ErrorCode::NoNode)) => Err(claimed.lost(found_missing(&claimed.guard))),
                Some((1, ErrorCode::NoNode)) => Ok(false),
                _ => Err(error.for_user(core.path(), usize::MAX)),
            },
        }
    }

    /// Puts the item at the end of the queue to be tried again, with a reason for display. If the queue has a
    /// [back-off](crate::QueueBuilder::backoff), it is put there after that time. An item with a
    /// [key](crate::PutOptions::key) keeps its place, so that those behind it wait, unless [they may
    /// pass](crate::QueueBuilder::retries_pass). Once it was taken as often as
    /// [allowed](crate::QueueBuilder::max_tries), it becomes a dead letter. Costs one round trip (1 write).
    ///
    /// # Errors
    /// As [`Item::done`].
    ///
    /// # Session loss
    /// Fails with [`QueueError::Lost`]; another consumer gets it.
    ///
    /// # Cancel safety
    /// When dropped, it may be at the end of the queue, or given back.
    pub async fn retry(&self, reason: impl Into<String>) -> Result<(), QueueError> {
        let backoff = self.claimed.core.options.backoff;
        self.retry_in(backoff.map(|backoff| backoff.after(self.attempt())), reason.into()).await
    }

    /// [`Item::retry`], but not before this time has passed by the servers' clock, instead of the queue's back-off.
    /// Costs the same.
    ///
    /// # Errors
    /// As [`Item::done`]; [`QueueError::NotInLayout`] in the layouts of other libraries.
    ///
    /// # Session loss
    /// As [`Item::retry`].
    ///
    /// # Cancel safety
    /// As [`Item::retry`].
    pub async fn retry_after(
        &self,
        delay: Duration,
        reason: impl Into<String>,
    ) -> Result<(), QueueError> {
        self.claimed.core.require_own_layout("retries after a time")?;
        self.retry_in(Some(delay), reason.into()).await
    }

    async fn retry_in(&self, delay: Option<Duration>, reason: String) -> Result<(), QueueError> {
        let claimed = &self.claimed;
        let (core, entry) = (&claimed.core, &claimed.entry);
        if !core.layout().is_own() {
            claimed.ensure_held()?;
            let written = claimed.write(core.back_steps(claimed.end_steps(), entry, &claimed.data));
            return claimed.ended(written.await, PEER_CHECKS);
        }
        if self.attempt() >= core.most_tries() {
            return self.bury(DeadLetterData::too_many_tries(self.attempt(), &reason)).await;
        }

        let due = match delay {
            Some(delay) => Some(core.server_time().await?.most.saturating_add(millis(delay))),
            None => None,
        };
        let header = Header { holder: Some(core.owner.clone()), reason: Some(reason) }.to_data();
        // The version of the claims' node counts the retries.
        let counted = core.client.transaction().set_data(&core.places.claims, "", None);
        if entry.key().is_some() && !core.options.retries_pass {
            return claimed.pause(due.unwrap_or_default(), header, counted).await;
        }
        let marks = Marks { due_unix_ms: due, ..entry.marks().clone() };
        claimed.move_to_end(self.attempt(), &marks, header, counted).await
    }

    /// Makes the item a dead letter, with a reason for display: it is not taken any more, until
    /// [`Queue::put_back`](crate::Queue::put_back). Costs one round trip (1 write).
    ///
    /// # Errors
    /// As [`Item::done`].
    ///
    /// # Session loss
    /// Fails with [`QueueError::Lost`]; another consumer gets it.
    ///
    /// # Cancel safety
    /// When dropped, it may be a dead letter, or given back.
    pub async fn bury(&self, reason: impl Into<String>) -> Result<(), QueueError> {
        let claimed = &self.claimed;
        claimed.core.require_own_layout("dead letters")?;
        claimed.ensure_held()?;
        let obituary = DeadLetterData {
            reason: reason.into(),
            attempts: self.attempt(),
            holder: Some(claimed.core.owner.clone()),
            marks: String::new(),
        };
        let told = ItemAnswer::Dead(obituary.reason.clone());
        let steps = claimed.core.bury_steps(claimed.end_steps(), &claimed.entry, obituary);
        let nothing_else = claimed.core.client.transaction();
        claimed.end_and_tell(steps, told, &nothing_else).await
    }

    /// Returns when the item was [cancelled](crate::Queue::cancel); never returns if it has ended in another way.
    /// For handlers that must stop before [`Item::done`] fails. Costs a round trip (1 read), and an event when the
    /// item is cancelled or done.
    ///
    /// # Session loss
    /// Never returns: the item is lost.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn cancelled(&self) {
        let Claimed { core, entry, guard, .. } = self.claimed.as_ref();
        let body = core.places.body(&entry.id);
        // While the session that answers lives, no other consumer can have ended it.
        let is_held = || !self.is_ending() && core.client.session_id() == guard.session();
        while core.layout().is_own() {
            match core.client.exists_watched(&body).await {
                Ok((Some(_), mut watcher)) => drop(watcher.changed().await),
                Ok((None, _)) if is_held() && !self.is_ended() => return,
                Err(error) if !error.is_session_expired() => outlast(&core.client, &error).await,
                _ => break,
            }
        }
        std::future::pending().await
    }

    /// Whether the item was ended: done, buried, retried, or lost.
    pub fn is_ended(&self) -> bool {
        self.claimed.claim.is_over()
    }

    /// Whether its holder has ended it, or is about to.
    pub(super) fn is_ending(&self) -> bool {
        self.claimed.is_ending.load(Ordering::Acquire)
    }
}

impl Claimed {
    fn new(core: &Arc<Core>, entry: Entry, version: i32, held: HeldClaim, data: Bytes) -> Self {
        let (HeldClaim { guard, claim }, core) = (held, Arc::clone(core));
        let is_ending = AtomicBool::new(false);
        Self { guard, claim, core, entry, version, data, is_ending }
    }

    /// Creates another entry of the item at the end of the queue, or among the delayed ones, with this number of
    /// earlier takes, together with more steps.
    async fn move_to_end(
        &self,
        tries: u32,
        marks: &Marks,
        mut header: Bytes,
        more: Transaction,
    ) -> Result<(), QueueError> {
        let (core, id) = (&self.core, &self.entry.id);
        loop {
            self.ensure_held()?;
            let segment = core.last_segment(marks.lane()).await?;
            let new = NewEntry { id, tries, marks };
            let steps = core.new_entry(segment, self.end_steps(), &new, header.clone());
            let own = steps.len();
            let write = core.at_end_of(segment, steps.and(&more));
            let error = match core.commit(write).await {
                Ok(written) => {
                    core.note_entries(segment, written.results.as_deref()).await;
                    return self.ended(Ok(written), own);
                }
                Err(error) => error,
            };
            match error.refused() {
                // A server without space accepts a transaction that deletes at least as much as it adds.
                Some((_, ErrorCode::QuotaExceeded)) if !header.is_empty() => header = nothing(),
                Some((index, _)) if index >= CHECKS => {
                    core.not_at_end(segment, error).await?;
                }
                None if error.not_met().is_some() => {
                    core.not_at_end(segment, error).await?;
                }
                _ => return self.ended(Err(error), own),
            }
        }
    }

    /// Gives the item back in its place, paused until this time, in milliseconds since 1970 by the servers' clock;
    /// together with more steps.
    async fn pause(
        &self,
        until_unix_ms: u64,
        header: Bytes,
        more: Transaction,
    ) -> Result<(), QueueError> {
        self.ensure_held()?;
        let (core, entry) = (&self.core, &self.entry);
        let version = self.held_version();
        let pause = entry.pause(&core.places, version, until_unix_ms);
        let stays = core.client.transaction().check(&entry.node(&core.places), Some(version));
        let steps = self.free_steps(stays).create(&pause, header, CreateMode::Persistent);
        let own = steps.len();
        let written = self.write(steps.and(&more)).await;
        self.ended(written, own)
    }

    /// The version of its entry while this consumer has it.
    fn held_version(&self) -> i32 {
        self.version.wrapping_add(1)
    }

    /// The first steps of every end: they fail unless the item is still this consumer's.
    fn end_steps(&self) -> Transaction {
        let (core, entry) = (&self.core, self.entry.node(&self.core.places));
        if !core.layout().is_own() {
            self.is_ending.store(true, Ordering::Release);
            // After `max_run`, the item is given back in the same session, and others may claim it by this name.
            let steps = match core.options.max_run {
                Some(_) => self.guard.transaction(),
                None => core.client.transaction().check(self.claim.node(), None),
            };
            return steps.delete(self.claim.node(), None).delete(&entry, None);
        }
        self.free_steps(core.client.transaction().delete(&entry, Some(self.held_version())))
    }

    /// The same, with a step that succeeds only for the holder's entry.
    fn free_steps(&self, entry: Transaction) -> Transaction {
        self.is_ending.store(true, Ordering::Release);
        let steps = self.core.client.transaction().delete(self.claim.node(), None).and(&entry);
        self.claim.beside().iter().fold(steps, |steps, node| steps.delete(node, None))
    }

    /// Makes a write that ends the item.
    async fn write(&self, steps: Transaction) -> Result<ClaimCommitted, CommitError> {
        let core = &self.core;
        match core.layout().is_own() {
            true => core.commit(core.ending(&self.entry, steps)).await,
            // The name of the claim is not enough: in another session it may be that of another consumer.
            false => core.write_in_session(steps, self.guard.session()).await,
        }
    }

    async fn done(
        &self,
        answer: serde_json::Value,
        writes: &Transaction,
    ) -> Result<(), QueueError> {
        self.ensure_held()?;
        let steps = self.end_steps();
        if !self.core.layout().is_own() {
            let own = steps.len();
            return self.ended(self.write(steps.and(writes)).await, own);
        }
        let steps = self.core.gone_steps(steps, &self.entry);
        self.end_and_tell(steps, ItemAnswer::Done(answer), writes).await
    }

    /// Makes a write that ends the item and answers its requester. One of its first steps requires the item's body.
    async fn end_and_tell(
        &self,
        steps: Transaction,
        told: ItemAnswer,
        writes: &Transaction,
    ) -> Result<(), QueueError> {
        let (written, own) = self.core.end_and_tell(&self.entry, steps, told, writes).await;
        self.ended_unless_cancelled(written, own).await
    }

    /// Ends the item without its body, which was deleted.
    async fn end_cancelled(&self) -> Result<(), QueueError> {
        let steps = self.end_steps();
        let own = steps.len();
        self.ended(self.core.drop_cancelled(steps, &self.entry).await, own)
    }

    fn ensure_held(&self) -> Result<(), QueueError> {
        if self.claim.is_over() {
            let (path, id) = (self.core.path().clone(), self.entry.known_as().to_owned());
            return Err(match self.guard.state() {
                HolderState::Lost(reason) => QueueError::Lost { path, id, reason },
                _ => QueueError::Ended { path, id },
            });
        }
        match self.guard.state() {
            HolderState::Lost(reason) => Err(self.lost(reason)),
            _ => Ok(()),
        }
    }

    /// How many of the first steps fail if the item is not this consumer's any more.
    fn checks(&self) -> usize {
        if self.core.layout().is_own() { CHECKS } else { PEER_CHECKS }
    }

    fn lost(&self, reason: LossReason) -> QueueError {
        QueueError::Lost {
            path: self.core.path().clone(),
            id: self.entry.known_as().to_owned(),
            reason,
        }
    }

    /// The result of an end that begins with this number of steps, one of which requires the item's body.
    async fn ended_unless_cancelled(
        &self,
        written: Result<ClaimCommitted, CommitError>,
        own: usize,
    ) -> Result<(), QueueError> {
        if let Err(error) = &written
            && let Some((index, ErrorCode::NoNode)) = error.refused()
            && self.core.layout().is_own()
            && index == CHECKS + self.claim.beside().len()
        {
            self.end_cancelled().await?;
            let (path, id) = (self.core.path().clone(), self.entry.known_as().to_owned());
            return Err(QueueError::Cancelled { path, id });
        }
        self.ended(written, own)
    }

    /// The result of an end that begins with this number of steps, before those of the caller.
    fn ended(
        &self,
        written: Result<ClaimCommitted, CommitError>,
        own: usize,
    ) -> Result<(), QueueError> {
        let error = match written {
            Ok(_) => {
                self.claim.over();
                return Ok(());
            }
            Err(error) => error,
        };

        match error.refused() {
            // It was given back, or taken away: another consumer may have it.
            Some((index, ErrorCode::NoNode | ErrorCode::BadVersion)) if index < self.checks() => {
                if !self.claim.over() {
                    let (path, id) = (self.core.path().clone(), self.entry.known_as().to_owned());
                    return Err(QueueError::Ended { path, id });
                }
                Err(self.lost(found_missing(&self.guard)))
            }
            _ if error.is_not_held() => Err(match self.guard.state() {
                HolderState::Lost(reason) => self.lost(reason),
                _ => error.for_user(self.core.path(), own),
            }),
            _ if error.is_session_expired() => {
                self.claim.over();
                Err(self.lost(LossReason::SessionExpired))
            }
            _ => {
                self.is_ending.store(false, Ordering::Release);
                Err(error.for_user(self.core.path(), own))
            }
        }
    }
}

/// Leaves an item that this consumer cannot decode to others: moves it to the end of the queue, so that it is not
/// found first again, and does not count this try. An item with a key keeps its place, and so does one in another
/// library's queue: it is given back.
pub(super) fn pass_on(core: &Arc<Core>, entry: Entry, version: i32, held: HeldClaim) {
    if !core.layout().is_own() || entry.key().is_some() {
        return;
    }
    let tries = entry.taken(version);
    let claimed = Claimed::new(core, entry, version, held, nothing());
    core.client.tokio_runtime().spawn(async move {
        let more = claimed.core.client.transaction();
        let marks = claimed.entry.marks().clone();
        // If it fails, the item is given back, and this try counts.
        let _ = claimed.move_to_end(tries, &marks, nothing(), more).await;
    });
}

/// Ends an item that was cancelled before it was taken.
pub(super) fn end_cancelled(core: &Arc<Core>, entry: Entry, version: i32, held: HeldClaim) {
    let claimed = Claimed::new(core, entry, version, held, nothing());
    core.client.tokio_runtime().spawn(async move {
        // If it fails, the item is given back, and the next consumer ends it.
        let _ = claimed.end_cancelled().await;
    });
}

/// Gives the item back after this time.
fn end_after(claimed: &Arc<Claimed>, time: Duration) -> AbortHandle {
    let held = Arc::downgrade(claimed);
    let client = claimed.core.client.clone();
    let watch = async move {
        tokio::time::sleep(time).await;
        let Some(claimed) = held.upgrade() else { return };
        if claimed.claim.is_over() {
            return;
        }
        // The holder learns of it before another consumer can have the item.
        if let Some(until) = end_overdue(&claimed.guard) {
            let left = until - claimed.core.client.now();
            tokio::time::sleep(left).await;
        }
        claimed.claim.give_back();
    };
    client.tokio_runtime().spawn(watch).abort_handle()
}

impl<T> Drop for Item<T> {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

/// The claim's guard.
impl<T> std::ops::Deref for Item<T> {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.claimed.guard
    }
}

/// Displays the id, the number of takes, and the guard.
impl<T> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("id", &self.id())
            .field("attempt", &self.attempt())
            .field("guard", &self.claimed.guard)
            .finish_non_exhaustive()
    }
}
