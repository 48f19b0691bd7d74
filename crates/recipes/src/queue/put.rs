//! How items come into a queue, and back to its end.

use bytes::Bytes;
use lockkeeper_client::{CreateMode, ErrorCode, Transaction};

use crate::queue::claim::ClaimWrite;
use crate::queue::commit::nothing;
use crate::queue::core::Core;
use crate::queue::error::{CommitError, QueueError};
use crate::queue::lanes::{PLAIN, Segment};
use crate::queue::layout::{NewEntry, Obituary, bad_id, is_id, new_id};
use crate::queue::options::PutOptions;

impl Core {
    /// Puts these into the queue, all in one transaction, and gives their ids.
    pub(super) async fn put(
        &self,
        bodies: &[Bytes],
        options: &PutOptions,
    ) -> Result<Vec<String>, QueueError> {
        if !self.layout().is_own() {
            return self.put_for_peers(bodies, options).await;
        }
        let ids: Vec<_> = match &options.id {
            Some(id) if !is_id(id) => return Err(self.bad_options(bad_id(id))),
            Some(id) => vec![id.clone(); bodies.len()],
            None => bodies.iter().map(|_| new_id(&self.client)).collect(),
        };
        let due = match options.due {
            Some(_) => {
                self.ensure_open().await?;
                let now = self.server_time().await?;
                Some(options.due_from(now)).filter(|due| *due > now)
            }
            None => None,
        };
        let marks = options.marks(due).map_err(|reason| self.bad_options(reason))?;
        loop {
            let segment = self.last_segment(marks.lane()).await?;
            let steps = self.client.transaction();
            let steps = ids.iter().zip(bodies).fold(steps, |steps, (id, body)| {
                let steps =
                    steps.create(&self.places.body(id), body.clone(), CreateMode::Persistent);
                let new = NewEntry { id, tries: 0, marks: &marks };
                self.new_entry(segment, steps, &new, nothing())
            });
            match self.commit(self.at_end_of(segment, steps)).await {
                Ok(written) => {
                    self.note_entries(segment, written.results.as_deref()).await;
                    return Ok(ids);
                }
                Err(error) => match (error.refused(), &options.id) {
                    (Some((_, ErrorCode::NodeExists)), Some(id)) => {
                        let (path, id) = (self.path().clone(), id.clone());
                        return Err(QueueError::Exists { path, id });
                    }
                    _ => self.not_at_end(segment, error, usize::MAX).await?,
                },
            }
        }
    }

    /// A write that makes entries in a segment: it gets new ones, and whoever is the first of those that wait looks.
    pub(super) fn at_end_of(&self, segment: Segment, steps: Transaction) -> ClaimWrite {
        let write = ClaimWrite::new(steps).if_at(&self.places.segment(segment), Some(0)).ringing();
        match segment.lane {
            PLAIN => write,
            // Whoever deletes the queue closes that segment, and cannot know all others.
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

    /// Makes a dead letter of an item whose entry other steps delete.
    pub(super) fn bury_steps(
        &self,
        steps: Transaction,
        id: &str,
        obituary: &Obituary,
    ) -> Transaction {
        let letter = self.places.dead_letter(id);
        // One that was cancelled is none.
        let steps = steps.check(&self.places.body(id), None);
        let steps = steps.create(&letter, obituary.to_data(), CreateMode::Persistent);
        steps.set_data(&self.places.dead, nothing(), None)
    }

    /// A write at the end of a segment has failed. Returns when it may be made again, at the end of another one.
    pub(super) async fn not_at_end(
        &self,
        segment: Segment,
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
