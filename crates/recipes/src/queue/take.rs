//! How items are taken: an entry is chosen and claimed; a consumer that finds none waits in line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, TryFutureExt, join_all};
use lockkeeper_client::retry::{pause, reachable};
use lockkeeper_client::{
    CreateMode, Created, ErrorCode, Failure, NameUse, Stat, Transaction, Watcher,
};
use lockkeeper_locks::for_recipes::{TurnPlace, grant, out_of_reach};
use lockkeeper_locks::{AcquireError, Guard, OwnerInfo};

use crate::exact::shared_write::lock;
use crate::queue::answer::ItemAnswer;
use crate::queue::claim::{Claim, ClaimWrite};
use crate::queue::commit::nothing;
use crate::queue::core::{Core, Worker};
use crate::queue::error::QueueError;
use crate::queue::lanes::{Segment, last_of, read_segments};
use crate::queue::layout::{ClaimName, DeadLetterData, Entry, Header};
use crate::queue::picks::{FreeEntry, ListingWindow, PickList, PickRule};
use crate::reads::{children_of, data_of, names_of, stat_of};
use crate::waits::{AbortOnDrop, connected_again};

/// How many segments one request lists, at first and at most.
const FIRST_WINDOW: usize = 2;
const MAX_WINDOW: usize = 32;

/// How long a consumer in line leaves items to those whose share they are: longer than the first one in line needs to
/// take one.
const TIME_FOR_OTHERS: Duration = Duration::from_millis(100);

/// A taken item.
#[derive(Debug)]
pub(super) struct TakenItem {
    pub(super) entry: Entry,
    pub(super) version: i32,
    /// The data of its body; `None` if that is missing.
    pub(super) body: Option<Bytes>,
    /// `None` for at-most-once takes.
    pub(super) held: Option<HeldClaim>,
}

/// The right to an item.
#[derive(Debug)]
pub(super) struct HeldClaim {
    pub(super) guard: Guard,
    pub(super) claim: Claim,
}

/// Checks whether an item can be decoded, given its id and body.
pub(super) type DecodeCheck = dyn Fn(&str, &Bytes) -> Result<(), QueueError> + Send + Sync;

/// How an item is taken.
pub(super) enum TakeMode {
    /// It is claimed, and stays until it is done.
    Claim,
    /// It is removed. An item that cannot be decoded stays.
    Remove(Arc<DecodeCheck>),
}

/// Optional writes of a take.
struct TakeNotes {
    /// The consumer that takes it; empty to leave it out.
    header: Bytes,
    /// Whether the requester is answered.
    answers: bool,
}

/// The result of a try to take an entry.
pub(super) enum TryOutcome {
    Taken(Box<TakenItem>),
    /// Another consumer has it, or it is gone.
    NotFree,
    /// The position in line is gone.
    NotInLine,
    /// The server has no space for the consumer's name.
    NoRoom,
    /// The requester has left.
    NoRequester,
}

impl Core {
    /// Takes up to `most` items, at least one if there is one, or [waits](Core::take_waiting) for one. Unless the
    /// last listing has some, runs in its own task: a caller that is not polled must not block the consumers behind
    /// it, nor the other calls of its handle.
    pub(super) async fn take(
        self: &Arc<Self>,
        mode: TakeMode,
        most: usize,
        waits: bool,
    ) -> Result<Vec<TakenItem>, QueueError> {
        let mode = Arc::new(mode);
        loop {
            let mut taken = self.take_known(&mode, most).await?;
            if taken.is_empty() {
                taken = self.take_apart(&mode, most, waits).await?;
            }
            let none = taken.is_empty();
            // This caller, or the whole program, may have been suspended since the grant. An item that is already
            // lost is given back, and not returned.
            taken.retain(|item| item.held.as_ref().is_none_or(|held| held.guard.is_held()));
            if none || !taken.is_empty() {
                return Ok(taken);
            }
        }
    }

    /// Takes entries of the last listing. Holds no lock that other calls wait for.
    async fn take_known(
        self: &Arc<Self>,
        mode: &TakeMode,
        most: usize,
    ) -> Result<Vec<TakenItem>, QueueError> {
        // Requests of a separate task are not bound to a lock that the caller runs under.
        if self.options.strictly || self.client.is_bound() {
            return Ok(Vec::new());
        }
        let Some(worker) = self.known_worker() else { return Ok(Vec::new()) };
        let tries = self.known(most).into_iter();
        let tries = tries.map(|pick| self.attempt(mode, pick, &worker, None));
        Ok(items_of(in_their_places(join_all(tries).await)?))
    }

    /// The given entries, or more, after a task has ended.
    async fn take_apart(
        self: &Arc<Self>,
        mode: &Arc<TakeMode>,
        most: usize,
        waits: bool,
    ) -> Result<Vec<TakenItem>, QueueError> {
        let (core, mode) = (Arc::clone(self), Arc::clone(mode));
        let taking = async move {
            match waits {
                true => core.take_waiting(&mode, most).await,
                false => core.take_some(&mode, most, true).await,
            }
        };
        // A task that is aborted with its try is dropped later than this, and the next take may come before.
        let pending = PendingTry(&self.picks);
        let mut task = AbortOnDrop(self.client.tokio_runtime().spawn(taking));
        let ended = (&mut task.0).await;
        pending.settled();
        match ended {
            Ok(taken) => taken,
            Err(error) if error.is_panic() => {
                Err(QueueError::Panicked { path: self.path().clone() })
            }
            // The task has ended with the client's runtime.
            Err(_) => {
                let path = self.path().clone();
                Err(QueueError::take(self.path(), AcquireError::ClientClosed { path }))
            }
        }
    }

    /// Takes up to `most` items, at least one if there is one; `also_others`: even if all are the share of other
    /// consumers.
    async fn take_some(
        self: &Arc<Self>,
        mode: &TakeMode,
        most: usize,
        also_others: bool,
    ) -> Result<Vec<TakenItem>, QueueError> {
        loop {
            let worker = self.worker().await?;
            let tried = self.try_some(mode, most, &worker, also_others, None).await?;
            let none = tried.is_empty();
            let taken = items_of(tried);
            if none || !taken.is_empty() {
                return Ok(taken);
            }
        }
    }

    /// Tries to take up to `most` of the next entries, all at once; the first one leaves the line with it. Returns
    /// the result of each, in order; empty if there are no entries. Failed ones are tried again with the next
    /// listing, and fail the call only if all have failed.
    async fn try_some(
        self: &Arc<Self>,
        mode: &TakeMode,
        most: usize,
        worker: &Worker,
        also_others: bool,
        place: Option<&TurnPlace>,
    ) -> Result<Vec<TryOutcome>, QueueError> {
        let (picks, _alone) = if self.options.strictly {
            // No other call of this handle may try a later entry at the same time.
            let mut segments = self.segments.lock().await;
            lock(&self.picks).forget();
            self.list(&mut segments, worker).await?;
            (lock(&self.picks).next_some(1), Some(segments))
        } else {
            (self.pick(most, worker, also_others).await?, None)
        };
        let places = std::iter::once(place).chain(std::iter::repeat(None));
        let tries = picks.into_iter().zip(places);
        let tries = tries.map(|(pick, place)| self.attempt(mode, pick, worker, place));

        in_their_places(join_all(tries).await)
    }

    /// Up to `most` entries to try, of the last listing or a new one. `also_others`: even if all listed ones are
    /// the share of other consumers.
    async fn pick(
        &self,
        most: usize,
        worker: &Worker,
        also_others: bool,
    ) -> Result<Vec<FreeEntry>, QueueError> {
        let known = self.known(most);
        if !known.is_empty() {
            return Ok(known);
        }
        let mut segments = self.segments.lock().await;
        // Another task may have listed since.
        let known = self.known(most);
        if !known.is_empty() {
            return Ok(known);
        }
        self.list(&mut segments, worker).await?;
        let mut picks = lock(&self.picks);
        if !also_others {
            picks.leave_others();
        }
        Ok(picks.next_some(most))
    }

    /// The next entries of the last listing.
    fn known(&self, most: usize) -> Vec<FreeEntry> {
        let mut picks = lock(&self.picks);
        picks.forget_old(self.client.now());
        picks.next_some(most)
    }

    /// Lists segments, from the first one on, until there is an entry to try. Moves due items first.
    async fn list(&self, segments: &mut Vec<Segment>, worker: &Worker) -> Result<(), QueueError> {
        let listed_at = self.client.now();
        if !self.layout().is_own() {
            return self.list_peers().await;
        }
        lock(&self.picks).begin();
        let (mut first, mut width) = (0, first_window(segments));
        let mut was_missing = false;
        loop {
            let window = window_of(segments, first, width);
            let Some((found, now)) = self.list_window(&window, worker).await? else {
                self.open().await?;
                if was_missing {
                    return Err(self.deleted());
                }
                (was_missing, *segments) = (true, Vec::new());
                continue;
            };

            *segments = now;
            if first == 0 && self.bring_due(segments).await? {
                lock(&self.picks).begin();
                continue;
            }
            lock(&self.picks).listed(listed_at);
            // The listed segments have changed: new ones may come first, or be the share of this consumer.
            let is_enough = found && !lock(&self.picks).are_of_others();
            let comes_later = |it| is_enough && window.last().is_some_and(|last| it > *last);
            let now = window_of(segments, first, width).into_iter();
            if now.filter(|it| !window.contains(it)).any(|it| !comes_later(it)) {
                lock(&self.picks).begin();
                (first, width) = (0, first_window(segments));
                continue;
            }
            if found {
                return Ok(());
            }
            first += width;
            width = (width * 2).min(MAX_WINDOW);
            if window_of(segments, first, width).is_empty() {
                return Ok(());
            }
        }
    }

    /// Lists these segments. Returns whether there are entries to try, and all segments; `None` if the queue is
    /// gone.
    async fn list_window(
        &self,
        window: &[Segment],
        worker: &Worker,
    ) -> Result<Option<(bool, Vec<Segment>)>, QueueError> {
        let places = &self.places;
        let raised: Vec<_> = {
            let picks = lock(&self.picks);
            picks.raised().filter(|entry| window.contains(&entry.segment)).cloned().collect()
        };
        let limits = &self.options.limits;
        let busy = (!limits.is_empty()).then_some(&places.busy);
        let listed = [&places.entries, &places.claims, &places.workers].into_iter().chain(busy);
        let nodes = listed.cloned().chain(window.iter().map(|it| places.segment(*it)));
        let ops = nodes.map(|node| children_of(&node));
        let data = raised.iter().map(|entry| data_of(&entry.node(places)));
        let mut answers = self.read_all(ops.chain(data).collect()).await?.into_iter();
        let mut children = || answers.next().and_then(names_of);
        let (Some(entries), Some(claims), Some(workers)) = (children(), children(), children())
        else {
            return Ok(None);
        };
        let busy = busy.and_then(|_| children()).unwrap_or_default();
        let segments = read_segments(&entries);
        let listed: Vec<_> =
            window.iter().map(|it| (*it, children().unwrap_or_default())).collect();
        let versions: HashMap<_, _> = raised
            .into_iter()
            .zip(answers)
            .filter_map(|(entry, answer)| Some((entry.id, stat_of(&answer)?.version)))
            .collect();

        // Only the last one of a lane gets new entries.
        let is_over =
            |segment: &Segment| last_of(&segments, segment.lane).is_some_and(|it| it != *segment);
        for (segment, _) in listed.iter().filter(|(it, names)| names.is_empty() && is_over(it)) {
            if segments.contains(segment) {
                // If it fails, the next listing tries again.
                drop(self.client.delete(&places.segment(*segment), None));
            }
        }

        let is_paused =
            |name: &String| ClaimName::read(name).is_some_and(|claim| claim.free_from.is_some());
        let now_unix_ms = match claims.iter().any(is_paused) {
            true => self.server_time().await?.least,
            false => 0,
        };
        let (claims, workers, busy) = (&claims, &workers, &busy);
        let segments_listed = listed.iter().map(|(it, names)| (*it, names.as_slice())).collect();
        let seen = ListingWindow {
            segments: segments_listed,
            claims,
            workers,
            versions,
            busy,
            now_unix_ms,
        };
        let rule = PickRule { own: worker.node.name(), strictly: self.options.strictly, limits };
        let found = lock(&self.picks).take_in(&seen, rule);
        Ok(Some((found, segments)))
    }

    /// Tries to take an entry, and to leave the line in the same transaction.
    async fn attempt(
        self: &Arc<Self>,
        mode: &TakeMode,
        pick: FreeEntry,
        worker: &Worker,
        place: Option<&TurnPlace>,
    ) -> Result<TryOutcome, QueueError> {
        let pending = PendingTry(&self.picks);
        if !self.layout().is_own() {
            let tried = self.attempt_peers(mode, pick.entry, place).await?;
            pending.settled();
            return Ok(tried);
        }
        if pick.entry.taken(pick.version) >= self.most_tries() {
            self.bury_after_max_tries(&pick).await?;
            pending.settled();
            return Ok(TryOutcome::NotFree);
        }
        pending.settled();
        let mut notes = TakeNotes { header: self.header.clone(), answers: true };
        loop {
            match self.attempt_as(mode, pick.clone(), worker, place, &notes).await? {
                // A server without space refuses data that grows, but allows claims.
                TryOutcome::NoRoom if !notes.header.is_empty() => notes.header = nothing(),
                TryOutcome::NoRoom => return Ok(TryOutcome::NotFree),
                TryOutcome::NoRequester if notes.answers => notes.answers = false,
                tried => return Ok(tried),
            }
        }
    }

    /// Tries to take an entry, with these optional writes.
    async fn attempt_as(
        self: &Arc<Self>,
        mode: &TakeMode,
        pick: FreeEntry,
        worker: &Worker,
        place: Option<&TurnPlace>,
        TakeNotes { header, answers }: &TakeNotes,
    ) -> Result<TryOutcome, QueueError> {
        let pause = pick.pause(&self.places);
        let FreeEntry { entry, version, place_of_kind, .. } = pick;
        let pending = PendingTry(&self.picks);

        let places = &self.places;
        let (node, body) = (entry.node(places), places.body(&entry.id));
        let claim_node = entry.claim(places, version);
        // It distinguishes this consumer's claim from others.
        let mark = Bytes::copy_from_slice(worker.node.name().as_bytes());
        let steps = self.client.transaction();
        let steps = match mode {
            TakeMode::Claim => steps.set_data(&node, header.clone(), Some(version)).create(
                &claim_node,
                mark.clone(),
                CreateMode::Ephemeral,
            ),
            TakeMode::Remove(_) => steps.delete(&node, Some(version)).delete(&body, None),
        };
        let steps = pause.iter().fold(steps, |steps, pause| steps.delete(pause, None));
        let key = entry.key().map(|key| places.busy_key(key));
        let kind = entry.kind().zip(place_of_kind);
        let kind = kind.map(|(kind, place)| places.busy_place(kind, place));
        let busy: Vec<_> = key.into_iter().chain(kind).collect();
        let beside_claim = busy.clone();
        let steps = busy
            .iter()
            .fold(steps, |steps, node| steps.create(node, mark.clone(), CreateMode::Ephemeral));
        // An item that is removed at once does not block the next one.
        let steps = match mode {
            TakeMode::Claim => steps,
            TakeMode::Remove(_) => {
                let steps = busy.into_iter().fold(steps, |steps, node| steps.delete(&node, None));
                self.beside_steps(steps, entry.marks())
            }
        };
        let answer = match mode {
            TakeMode::Remove(_) if *answers => {
                self.answer_of(&entry, ItemAnswer::Done(serde_json::Value::Null))
            }
            _ => None,
        };
        let (steps, told) = match answer {
            Some((answer, data)) => {
                let index = steps.len();
                (steps.set_data(&answer, data, None), Some(index))
            }
            None => (steps, None),
        };
        let leaves = steps.len();
        let steps = leaving(steps, place);
        let write = match mode {
            TakeMode::Claim => ClaimWrite::new(steps),
            TakeMode::Remove(_) => self.ending(&entry, steps),
        };
        let write = write.if_at(&worker.node, None);

        let (written, body) = match mode {
            TakeMode::Claim => {
                let claim = self.new_claim(claim_node, mark, false).with(beside_claim);
                let write = write.claiming(claim);
                // Both at once, because a body does not change.
                tokio::join! { biased; self.commit(write), self.value_of(&entry) }
            }
            // A removed item cannot be read any more.
            TakeMode::Remove(reads) => {
                let Some(body) = self.value_of(&entry).await? else {
                    // It was cancelled. If this fails, the next listing tries again.
                    let gone = self.client.transaction().delete(&node, Some(version));
                    let gone = pause.iter().fold(gone, |steps, pause| steps.delete(pause, None));
                    let dropped = self.drop_cancelled(gone, &entry).await;
                    if let Err(error) = dropped
                        && error.refused() == Some((0, ErrorCode::BadVersion))
                    {
                        lock(&self.picks).raise(entry);
                    }
                    pending.settled();
                    return Ok(TryOutcome::NotFree);
                };
                reads(&entry.id, &body)?;
                (self.commit(write).await, Ok(Some(body)))
            }
        };

        let written = match written {
            Ok(written) => written,
            Err(error) => {
                if error.not_met() == Some(ErrorCode::NoNode) {
                    self.forget_worker(&worker.node);
                    return Ok(TryOutcome::NotFree);
                }
                let is_of_take = |index: usize| index < leaves;
                if error.refused().is_some_and(|(index, _)| is_of_take(index)) {
                    lock(&self.picks).leave_others();
                }
                match error.refused() {
                    Some((0, ErrorCode::BadVersion) | (1, ErrorCode::NodeExists)) => {
                        lock(&self.picks).raise(entry);
                        pending.settled();
                    }
                    Some((0, ErrorCode::NoNode)) => pending.settled(),
                    Some((0, ErrorCode::QuotaExceeded)) if !header.is_empty() => {
                        return Ok(TryOutcome::NoRoom);
                    }
                    Some((index, ErrorCode::NoNode)) if told == Some(index) => {
                        return Ok(TryOutcome::NoRequester);
                    }
                    Some((1, ErrorCode::NoNode)) => self.open().await?,
                    // Its key, or all places of its kind, are in use.
                    Some((index, ErrorCode::NodeExists)) if is_of_take(index) => pending.settled(),
                    // Or it was cancelled in the meantime.
                    Some((index, ErrorCode::NoNode)) if is_of_take(index) => {}
                    Some((_, ErrorCode::NoNode)) => return Ok(TryOutcome::NotInLine),
                    _ if error.is_session_expired() => {}
                    _ => return Err(error.for_user(self.path(), usize::MAX)),
                }
                return Ok(TryOutcome::NotFree);
            }
        };

        pending.settled();
        let Some(claim) = written.claim else {
            let taken = TakenItem { entry, version, body: body?, held: None };
            return Ok(TryOutcome::Taken(Box::new(taken)));
        };
        // Without its node, others would not notice the end of this consumer.
        if written.session != worker.session {
            return Ok(TryOutcome::NotFree);
        }
        let created = Stat::of_new(written.zxid, written.session);
        let Some(held) = self.hold(claim, created, NameUse::Once).await? else {
            return Ok(TryOutcome::NotFree);
        };
        let held = Some(held);
        Ok(TryOutcome::Taken(Box::new(TakenItem { entry, version, body: body?, held })))
    }

    /// The right to an item by a claim that was made; `None` if its session has ended.
    pub(super) async fn hold(
        &self,
        claim: Claim,
        stat: Stat,
        name: NameUse,
    ) -> Result<Option<HeldClaim>, QueueError> {
        let created = Created { path: claim.node().clone(), stat };
        match grant(&self.client, self.path(), created, name).await {
            Ok(guard) => Ok(Some(HeldClaim { guard, claim })),
            Err(AcquireError::SessionExpired { .. }) => Ok(None),
            Err(error) => Err(QueueError::take(self.path(), error)),
        }
    }

    /// Makes an item that was taken too often a dead letter.
    async fn bury_after_max_tries(&self, pick: &FreeEntry) -> Result<(), QueueError> {
        let FreeEntry { entry, version, .. } = pick;
        let (node, pause) = (entry.node(&self.places), pick.pause(&self.places));
        let told = self.data_in(pause.as_ref().unwrap_or(&node)).await?;
        let header = told.map(|data| Header::read(&data)).unwrap_or_default();
        let tries = entry.taken(*version);
        let reason = header.reason.as_deref().unwrap_or("given back or lost each time");
        self.bury_free(pick, DeadLetterData::too_many_tries(tries, reason), tries, header.holder)
            .await?;
        Ok(())
    }

    /// Makes an item that no consumer works on a dead letter. Returns whether the item cannot be taken at this
    /// version any more.
    pub(super) async fn bury_free(
        &self,
        free: &FreeEntry,
        reason: String,
        attempts: u32,
        holder: Option<OwnerInfo>,
    ) -> Result<bool, QueueError> {
        let FreeEntry { entry, version, .. } = free;
        let (node, pause) = (entry.node(&self.places), free.pause(&self.places));
        let obituary = DeadLetterData { reason, attempts, holder, marks: String::new() };
        let gone = self.client.transaction().delete(&node, Some(*version));
        let gone = pause.iter().fold(gone, |steps, pause| steps.delete(pause, None));
        let own = gone.len();
        let told = ItemAnswer::Dead(obituary.reason.clone());
        let steps = self.bury_steps(gone.clone(), entry, obituary);
        let nothing_else = self.client.transaction();
        let (mut buried, _) = self.end_and_tell(entry, steps, told, &nothing_else).await;
        if buried.as_ref().is_err_and(|error| error.refused() == Some((own, ErrorCode::NoNode))) {
            buried = self.drop_cancelled(gone, entry).await;
        }
        match buried {
            Ok(_) => Ok(true),
            // A consumer has taken or buried it.
            Err(error) if matches!(error.refused(), Some((index, _)) if index < own) => Ok(false),
            Err(error) if error.is_session_expired() => Ok(false),
            Err(error) => {
                // For example on a server without space. Others come before it.
                if !error.may_pass() {
                    lock(&self.picks).skip(&entry.id);
                }
                Err(error.for_user(self.path(), usize::MAX))
            }
        }
    }

    /// Takes an item, and waits in line until there is one.
    async fn take_waiting(
        self: &Arc<Self>,
        mode: &TakeMode,
        most: usize,
    ) -> Result<Vec<TakenItem>, QueueError> {
        loop {
            let taken = self.take_some(mode, most, false).await?;
            if !taken.is_empty() {
                return Ok(taken);
            }
            let taken = self.wait_in_line(mode, most).await?;
            if !taken.is_empty() {
                return Ok(taken);
            }
        }
    }

    /// Waits in line for an item; returns none if the position was lost.
    async fn wait_in_line(
        self: &Arc<Self>,
        mode: &TakeMode,
        most: usize,
    ) -> Result<Vec<TakenItem>, QueueError> {
        let worker = self.worker().await?;
        let mut place = match self.line.enter().await {
            Ok(place) => place,
            Err(error) => return self.not_in_line(error).await,
        };
        // A consumer that was killed keeps its share, and may be the first in line, until its session has expired.
        let has_left_some = lock(&self.picks).has_left_some();
        let mut is_first = tokio::select! {
            biased;
            turn = place.first() => match turn {
                Ok(()) => true,
                Err(error) => return self.not_in_line(error).await,
            },
            () = tokio::time::sleep(TIME_FOR_OTHERS), if has_left_some => false,
        };

        let mut watches = LineWatches::default();
        loop {
            // The session may have ended, or the node was deleted.
            if self.worker().await? != worker {
                return Ok(Vec::new());
            }
            let status = self.client.status();
            // Set before the listing, so that no change is missed.
            if is_first && !watches.set(self).await? {
                return Ok(Vec::new());
            }
            let tried = self.try_some(mode, most, &worker, true, Some(&place)).await?;
            match tried.first() {
                Some(TryOutcome::Taken(_)) => {
                    place.left();
                    return Ok(items_of(tried));
                }
                Some(TryOutcome::NotInLine) => return Ok(items_of(tried)),
                Some(TryOutcome::NotFree | TryOutcome::NoRoom | TryOutcome::NoRequester) => {
                    let taken = items_of(tried);
                    if !taken.is_empty() {
                        return Ok(taken);
                    }
                    if is_first {
                        continue;
                    }
                }
                None => {}
            }
            if !is_first {
                if let Err(error) = place.first().await {
                    return self.not_in_line(error).await;
                }
                is_first = true;
                continue;
            }
            tokio::select! {
                // A fixed order makes simulations reproducible.
                biased;
                () = watches.changed() => {}
                () = connected_again(status) => {}
                () = self.due() => {}
                error = out_of_reach(&self.client, self.path()) => {
                    return Err(QueueError::take(self.path(), error));
                }
            }
        }
    }

    /// Handles a lost position in line, or one that could not be taken.
    async fn not_in_line(&self, error: AcquireError) -> Result<Vec<TakenItem>, QueueError> {
        match error {
            AcquireError::SessionExpired { .. } | AcquireError::NodeDeleted { .. } => {
                Ok(Vec::new())
            }
            error => Err(QueueError::take(self.path(), error)),
        }
    }

    /// Returns when a failed take may be repeated by work that continues.
    pub(super) async fn outlast(&self, error: QueueError) -> Result<(), QueueError> {
        if !error.is_retryable() || matches!(error, QueueError::Deleted { .. }) {
            return Err(error);
        }
        reachable(&self.client).await;
        pause().await;
        Ok(())
    }
}

/// How many segments are listed at first: at least one of each lane.
fn first_window(segments: &[Segment]) -> usize {
    let lanes = segments.chunk_by(|one, next| one.lane == next.lane);
    FIRST_WINDOW.max(lanes.filter(|lane| lane[0].is_ready()).count() + 1)
}

/// Up to `width` of the segments that can be taken from, starting at `first`.
fn window_of(segments: &[Segment], first: usize, width: usize) -> Vec<Segment> {
    let ready = segments.iter().copied().filter(|segment| segment.is_ready());
    ready.skip(first).take(width).collect()
}

/// The results in their order: only the first one has left the line. Fails if all have failed.
fn in_their_places(
    mut tried: Vec<Result<TryOutcome, QueueError>>,
) -> Result<Vec<TryOutcome>, QueueError> {
    if tried.iter().all(Result::is_err)
        && let Some(failed) = tried.pop()
    {
        return failed.map(|one| vec![one]);
    }
    Ok(tried.into_iter().map(|one| one.unwrap_or(TryOutcome::NotFree)).collect())
}

/// The taken items.
fn items_of(tried: Vec<TryOutcome>) -> Vec<TakenItem> {
    let items = tried.into_iter().filter_map(|tried| match tried {
        TryOutcome::Taken(item) => Some(*item),
        TryOutcome::NotFree
        | TryOutcome::NotInLine
        | TryOutcome::NoRoom
        | TryOutcome::NoRequester => None,
    });
    items.collect()
}

/// Adds a step that leaves the line.
pub(super) fn leaving(steps: Transaction, place: Option<&TurnPlace>) -> Transaction {
    match place.and_then(TurnPlace::node) {
        Some(place) => steps.delete(place, None),
        None => steps,
    }
}

/// A try of an entry that was removed from the listing. If it is dropped without an outcome, the entry may still be
/// the oldest: then the listing is forgotten, because its next entry would be taken before this one.
struct PendingTry<'a>(&'a Mutex<PickList>);

impl PendingTry<'_> {
    /// The entry was taken, or cannot be taken.
    fn settled(self) {
        std::mem::forget(self);
    }
}

impl Drop for PendingTry<'_> {
    fn drop(&mut self) {
        lock(self.0).forget();
    }
}

/// The watches of the first consumer in line: the node that is written when there may be something new, and the
/// consumers, which may leave items when they end. In other libraries' queues: the directory of the items, and that
/// of the claims if any.
#[derive(Default)]
struct LineWatches {
    entries: Option<Watcher>,
    workers: Option<Watcher>,
}

impl LineWatches {
    /// Sets missing watches. `false` if their nodes are gone.
    async fn set(&mut self, core: &Core) -> Result<bool, QueueError> {
        loop {
            let (client, places) = (&core.client, &core.places);
            // Pipelined.
            let entries = self.entries.is_none().then(|| match places.layout.is_own() {
                true => Either::Left(client.data_watched(&places.entries).map_ok(|(_, it)| it)),
                false => {
                    Either::Right(client.children_watched(&places.entries).map_ok(|(_, it)| it))
                }
            });
            let workers = match places.layout.is_own() {
                true => Some(&places.workers),
                false => places.peer_claims(),
            };
            let workers = workers.filter(|_| self.workers.is_none());
            let workers = workers.map(|node| client.children_watched(node));

            let mut failed = None;
            if let Some(entries) = entries {
                match entries.await {
                    Ok(watcher) => self.entries = Some(watcher),
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(workers) = workers {
                match workers.await {
                    Ok((_, watcher)) => self.workers = Some(watcher),
                    Err(error) => failed = Some(error),
                }
            }

            match failed {
                None => return Ok(true),
                Some(error) if error.code() == Some(ErrorCode::NoNode) => {
                    core.open().await?;
                    return Ok(false);
                }
                Some(error) if error.is_session_expired() => return Ok(false),
                Some(error) => core.again(error).await?,
            }
        }
    }

    /// Returns with the first event, or when the session has ended.
    async fn changed(&mut self) {
        let Self { entries: Some(entries), workers } = self else { return };
        let is_of_entries = match workers {
            Some(workers) => tokio::select! {
                biased;
                _ = entries.changed() => true,
                _ = workers.changed() => false,
            },
            None => entries.changed().await.map_or(true, |_| true),
        };
        match is_of_entries {
            true => self.entries = None,
            false => self.workers = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::ZnodePath;

    use super::*;

    /// Failed when failed tries were left out.
    #[test]
    fn a_try_that_fails_stays_in_its_place() {
        let failed = || -> Result<TryOutcome, QueueError> {
            Err(QueueError::Panicked { path: ZnodePath::new("/jobs").unwrap() })
        };
        let tried = in_their_places(vec![failed(), Ok(TryOutcome::NotInLine)]).unwrap();
        assert!(matches!(tried[..], [TryOutcome::NotFree, TryOutcome::NotInLine]));
        assert!(in_their_places(vec![failed(), failed()]).is_err());
        assert!(in_their_places(Vec::new()).unwrap().is_empty());
    }
}
