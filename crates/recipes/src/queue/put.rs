//! How items come into a queue, and back to its end.

use bytes::Bytes;
use lockkeeper_client::{CreateMode, ErrorCode, Transaction};

use crate::queue::claim::ClaimWrite;
use crate::queue::commit::nothing;
use crate::queue::core::Core;
use crate::queue::error::{CommitError, QueueError};
use crate::queue::layout::{Obituary, new_id};
use crate::queue::peer_layouts::Slot;

impl Core {
    /// Puts these into the queue, all in one transaction, and gives their ids; `slot`: there, and not where items
    /// usually go.
    pub(super) async fn put(
        &self,
        bodies: &[Bytes],
        slot: Option<&Slot>,
    ) -> Result<Vec<String>, QueueError> {
        if !self.layout().is_own() {
            return self.put_in_slot(bodies, slot).await;
        }
        if let Some(slot) = slot {
            return Err(self.not_in_layout(slot.noun()));
        }
        let ids: Vec<_> = bodies.iter().map(|_| new_id(&self.client)).collect();
        loop {
            let segment = self.last_segment().await?;
            let steps = self.client.transaction();
            let steps = ids.iter().zip(bodies).fold(steps, |steps, (id, body)| {
                let steps =
                    steps.create(&self.places.body(id), body.clone(), CreateMode::Persistent);
                self.new_entry(segment, steps, id, 0, nothing())
            });
            match self.commit(self.at_end_of(segment, steps)).await {
                Ok(written) => {
                    self.note_entries(segment, written.results.as_deref()).await;
                    return Ok(ids);
                }
                Err(error) => self.not_at_end(segment, error, usize::MAX).await?,
            }
        }
    }

    /// A write that makes entries in a segment: it gets new ones, and whoever is the first of those that wait looks.
    pub(super) fn at_end_of(&self, segment: u32, steps: Transaction) -> ClaimWrite {
        ClaimWrite::new(steps).if_at(&self.places.segment(segment), Some(0)).ringing()
    }

    pub(super) fn new_entry(
        &self,
        segment: u32,
        steps: Transaction,
        id: &str,
        tries: u32,
        header: Bytes,
    ) -> Transaction {
        let node = self.places.new_entry(segment, id, tries);
        steps.create(&node, header, CreateMode::PersistentSequential)
    }

    /// Makes a dead letter of an item whose entry other steps delete.
    pub(super) fn bury_steps(
        &self,
        steps: Transaction,
        id: &str,
        obituary: &Obituary,
    ) -> Transaction {
        let letter = self.places.dead_letter(id);
        let steps = steps.create(&letter, obituary.to_data(), CreateMode::Persistent);
        steps.set_data(&self.places.dead, nothing(), None)
    }

    /// A write at the end of a segment has failed. Returns when it may be made again, at the end of another one.
    pub(super) async fn not_at_end(
        &self,
        segment: u32,
        error: CommitError,
        own: usize,
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
            _ => Err(error.for_user(self.path(), own)),
        }
    }
}
