//! Putting items into a queue, and back at its end.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{CreateMode, ErrorCode, Failure, Outcome, Transaction, ZnodePath};

use crate::queue::answer::{AnswerData, ItemAnswer};
use crate::queue::claim::{ClaimAnswer, ClaimWrite};
use crate::queue::commit::nothing;
use crate::queue::core::Core;
use crate::queue::error::{CommitError, QueueError};
use crate::queue::lanes::{Lane, PLAIN, Segment};
use crate::queue::layout::{DeadLetterData, Entry, NewEntry, QueueNodes, bad_id, is_id, new_id};
use crate::queue::long::{NewBody, Upload};
use crate::queue::marks::{Marks, Requested};
use crate::queue::options::{Due, PutOptions};
use crate::wall_clock::millis;

/// An item to put.
struct NewItem {
    id: String,
    body: Bytes,
    marks: Marks,
    upload: Option<Upload>,
}

impl Core {
    /// Puts these items into the queue, all in one transaction, and returns their ids.
    pub(super) async fn put(
        &self,
        values: &[Bytes],
        options: &PutOptions,
    ) -> Result<Vec<String>, QueueError> {
        if !self.layout().is_own() {
            return self.put_for_peers(values, options).await;
        }
        let put = self.put_as(values, options, None).await?;
        Ok(put.into_iter().map(|item| item.marks.name.unwrap_or(item.id)).collect())
    }

    /// Puts one of these items, with this internal id, for a requester that waits for an answer.
    pub(super) async fn put_request(
        &self,
        id: &str,
        value: &[Bytes],
        options: &PutOptions,
    ) -> Result<(), QueueError> {
        let requested = match options.keep_answer {
            None => Requested::ForSession,
            Some(time) => {
                self.ensure_open().await?;
                self.sweep_answers().await?;
                Requested::Until(self.server_time().await?.most.saturating_add(millis(time)))
            }
        };
        self.put_as(value, options, Some((id, requested))).await.map(drop)
    }

    async fn put_as(
        &self,
        values: &[Bytes],
        options: &PutOptions,
        request: Option<(&str, Requested)>,
    ) -> Result<Vec<NewItem>, QueueError> {
        loop {
            let items = self.new_items(values, options, request).await?;
            let uploads: Vec<_> = items.iter().filter_map(|it| it.marks.parts.clone()).collect();
            match self.put_items(items).await {
                Ok(Some(mut put)) => {
                    put.iter_mut().filter_map(|it| it.upload.take()).for_each(Upload::over);
                    return Ok(put);
                }
                Ok(None) => {}
                Err(error) => {
                    if error.outcome() == Outcome::NotApplied {
                        uploads.iter().for_each(|parts| self.drop_upload(parts));
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Assigns an id to each value, and writes the long ones.
    async fn new_items(
        &self,
        values: &[Bytes],
        options: &PutOptions,
        request: Option<(&str, Requested)>,
    ) -> Result<Vec<NewItem>, QueueError> {
        if let Some(id) = options.id.as_ref().filter(|id| !is_id(id)) {
            return Err(self.bad_options(bad_id(id)));
        }
        let due = match options.due {
            None | Some(Due::After(Duration::ZERO)) => None,
            Some(due) => {
                self.ensure_open().await?;
                let now = self.server_time().await?;
                Some(due.from(now.most)).filter(|due| *due > now.least)
            }
        };
        let marks = options.marks(due).map_err(|reason| self.bad_options(reason))?;
        let requested = request.map(|(_, requested)| requested);
        let marks = Marks { requested, name: options.id.clone(), ..marks };
        let mut items = Vec::with_capacity(values.len());
        for value in values {
            let id = request.map_or_else(|| new_id(&self.client), |(id, _)| id.to_owned());
            let NewBody { body, parts, upload } = self.upload(&id, value).await?;
            items.push(NewItem { id, body, marks: Marks { parts, ..marks.clone() }, upload });
        }
        Ok(items)
    }

    /// `None` if the session of an upload has ended, and with it the right to its parts.
    async fn put_items(&self, mut items: Vec<NewItem>) -> Result<Option<Vec<NewItem>>, QueueError> {
        loop {
            let slots = self.room_for(items.len()).await?;
            for (item, slot) in items.iter_mut().zip(slots) {
                item.marks.slot = slot;
            }
            let Some(lane) = items.first().map(|item| item.marks.lane()) else {
                return Ok(Some(items));
            };

            let steps = |segment| {
                let nothing_yet = self.client.transaction();
                items.iter().fold(nothing_yet, |steps, it| self.put_steps(steps, segment, it))
            };
            let QueueNodes { slots, ids, parts, .. } = &self.places;
            let is_taken = |error: &CommitError, directory| {
                matches!(error.refused(), Some((_, ErrorCode::NodeExists)))
                    && error.is_about(directory)
            };
            let is_over = |error: &CommitError| {
                matches!(error.refused(), Some((_, ErrorCode::NoNode))) && error.is_about(parts)
            };
            let is_own = |error: &CommitError| {
                is_taken(error, slots) || is_taken(error, ids) || is_over(error)
            };
            let Err(error) = self.write_at_end(lane, steps, is_own).await? else {
                return Ok(Some(items));
            };

            if is_over(&error) {
                return Ok(None);
            }
            if is_taken(&error, ids) {
                let id = items.into_iter().find_map(|item| item.marks.name);
                let (path, id) = (self.path().clone(), id.unwrap_or_default());
                return Err(QueueError::Exists { path, id });
            }
            // Another program has taken one of these slots.
        }
    }

    /// The steps that put an item.
    fn put_steps(&self, steps: Transaction, segment: Segment, item: &NewItem) -> Transaction {
        let NewItem { id, body, marks, .. } = item;
        let steps = steps.create(&self.places.body(id), body.clone(), CreateMode::Persistent);
        let steps = self.end_upload(steps, marks.parts.as_ref());
        let steps = match marks.slot {
            Some(slot) => steps.create(&self.places.slot(slot), nothing(), CreateMode::Persistent),
            None => steps,
        };
        let steps = match &marks.name {
            Some(name) => {
                let own = Bytes::copy_from_slice(id.as_bytes());
                steps.create(&self.places.id_node(name), own, CreateMode::Persistent)
            }
            None => steps,
        };
        let kept = match marks.requested {
            None => None,
            Some(Requested::ForSession) => Some(CreateMode::Ephemeral),
            Some(Requested::Until(_)) => Some(CreateMode::Persistent),
        };
        let steps = match kept {
            Some(mode) => {
                let data = AnswerData::new(marks, None).to_data();
                steps.create(&self.places.answer(id), data, mode)
            }
            None => steps,
        };
        self.new_entry(segment, steps, &NewEntry { id, tries: 0, marks }, nothing())
    }

    /// Makes a write of these steps at the end of a lane. A refusal for which `is_own` is true is returned to the
    /// caller; others end the write, or it is repeated in another segment.
    pub(super) async fn write_at_end(
        &self,
        lane: Lane,
        steps: impl Fn(Segment) -> Transaction,
        is_own: impl Fn(&CommitError) -> bool,
    ) -> Result<ClaimAnswer, QueueError> {
        loop {
            let segment = self.last_segment(lane).await?;
            match self.commit(self.at_end_of(segment, steps(segment))).await {
                Ok(written) => {
                    self.note_entries(segment, written.results.as_deref()).await;
                    return Ok(Ok(written));
                }
                Err(error) if is_own(&error) => return Ok(Err(error)),
                Err(error) => self.not_at_end(segment, error).await?,
            }
        }
    }

    /// A write that creates entries in a segment: it requires that the segment gets new ones, and wakes the first
    /// waiting consumer.
    pub(super) fn at_end_of(&self, segment: Segment, steps: Transaction) -> ClaimWrite {
        let write = ClaimWrite::new(steps).if_at(&self.places.segment(segment), Some(0)).ringing();
        match segment.lane {
            PLAIN => write,
            // A program that deletes the queue closes that segment, and may not know the others.
            _ => write.if_at(&self.places.path, Some(0)),
        }
    }

    pub(super) fn new_entry(
        &self,
        segment: Segment,
        steps: Transaction,
        new: &NewEntry<'_>,
        header: Bytes,
    ) -> Transaction {
        let node = self.places.new_entry(segment, new);
        steps.create(&node, header, CreateMode::PersistentSequential)
    }

    /// Makes an item, whose entry other steps delete, a dead letter. The first step fails if the item was
    /// cancelled.
    pub(super) fn bury_steps(
        &self,
        steps: Transaction,
        entry: &Entry,
        obituary: DeadLetterData,
    ) -> Transaction {
        let Marks { slot, .. } = entry.marks();
        // A dead letter does not use a slot of the queue's bound.
        let marks = Marks { slot: None, ..entry.marks().clone() };
        let obituary = DeadLetterData { marks: marks.to_string(), ..obituary };
        let letter = self.places.dead_letter(&entry.id);
        let steps = steps.check(&self.places.body(&entry.id), None);
        let steps = steps.create(&letter, obituary.to_data(), CreateMode::Persistent);
        let steps = steps.set_data(&self.places.dead, nothing(), None);
        match slot {
            Some(slot) => steps.delete(&self.places.slot(*slot), None),
            None => steps,
        }
    }

    /// Steps that delete the value of an item, whose entry other steps delete. The first one fails if the item was
    /// cancelled.
    pub(super) fn gone_steps(&self, steps: Transaction, entry: &Entry) -> Transaction {
        let steps = steps.delete(&self.places.body(&entry.id), None);
        self.beside_steps(steps, entry.marks())
    }

    /// Steps that delete the nodes that belong to an existing body: without the body, the putter's id may belong to
    /// another item.
    pub(super) fn beside_steps(&self, steps: Transaction, marks: &Marks) -> Transaction {
        let named = marks.name.as_ref().map(|name| self.places.id_node(name));
        let beside = self.places.beside_body(marks).into_iter().chain(named);
        beside.fold(steps, |steps, node| steps.delete(&node, None))
    }

    /// The node of an item's answer, and its data; `None` if it was not requested.
    pub(super) fn answer_of(
        &self,
        entry: &Entry,
        answer: ItemAnswer,
    ) -> Option<(ZnodePath, Bytes)> {
        entry.marks().requested?;
        let data = AnswerData::new(entry.marks(), Some(answer)).to_data();
        Some((self.places.answer(&entry.id), data))
    }

    /// Makes a write that ends an item by these steps and those of the caller, and answers its requester. If the
    /// requester has left, the item is ended nevertheless. Returns how many steps came before the caller's.
    pub(super) async fn end_and_tell(
        &self,
        entry: &Entry,
        steps: Transaction,
        told: ItemAnswer,
        writes: &Transaction,
    ) -> (ClaimAnswer, usize) {
        let own = steps.len();
        if let Some((node, data)) = self.answer_of(entry, told) {
            let telling = steps.clone().set_data(&node, data, None);
            let written = self.commit(self.ending(entry, telling.and(writes))).await;
            let has_left = Some((own, ErrorCode::NoNode));
            if !written.as_ref().is_err_and(|error| error.refused() == has_left) {
                return (written, own + 1);
            }
        }
        (self.commit(self.ending(entry, steps.and(writes))).await, own)
    }

    /// A write that ends an item, or puts it back: others can be taken then that were blocked by its key or kind.
    pub(super) fn ending(&self, entry: &Entry, steps: Transaction) -> ClaimWrite {
        let write = ClaimWrite::new(steps);
        match entry.key().is_some() || entry.kind().is_some() {
            true => write.ringing(),
            false => write,
        }
    }

    /// Deletes the remaining nodes of a cancelled item, together with these steps that delete its entry.
    pub(super) async fn drop_cancelled(&self, steps: Transaction, entry: &Entry) -> ClaimAnswer {
        let first = steps.len();
        let slot = entry.marks().slot.map(|slot| self.places.slot(slot));
        let steps = slot.iter().fold(steps, |steps, node| steps.delete(node, None));
        let parts = self.places.value_nodes(entry.marks());
        let answer = self.answer_of(entry, ItemAnswer::Cancelled);
        // A cleanup may have been faster, and the requester may have left.
        for (with_parts, with_answer) in [(true, true), (true, false), (false, true)] {
            let parts = parts.iter().filter(|_| with_parts);
            let steps = parts.fold(steps.clone(), |steps, node| steps.delete(node, None));
            let steps = match answer.as_ref().filter(|_| with_answer) {
                Some((node, data)) => steps.set_data(node, data.clone(), None),
                None => steps,
            };
            let written = self.commit(self.ending(entry, steps)).await;
            let is_missing = |error: &CommitError| {
                error
                    .refused()
                    .is_some_and(|(index, code)| index >= first && code == ErrorCode::NoNode)
            };
            if !written.as_ref().is_err_and(is_missing) {
                return written;
            }
        }
        self.commit(self.ending(entry, steps)).await
    }

    /// Handles a failed write at the end of a segment. Returns when it may be repeated, at the end of another one.
    pub(super) async fn not_at_end(
        &self,
        segment: Segment,
        error: CommitError,
    ) -> Result<(), QueueError> {
        if let Some(ErrorCode::BadVersion | ErrorCode::NoNode) = error.not_met() {
            return self.segment_is_closed(segment).await;
        }
        match error.refused() {
            // A part of the queue is missing.
            Some((_, ErrorCode::NoNode)) => {
                self.open().await?;
                Err(self.deleted())
            }
            _ if error.is_session_expired() => Ok(()),
            // None of the steps is the caller's.
            _ => Err(error.for_user(self.path(), usize::MAX)),
        }
    }
}
