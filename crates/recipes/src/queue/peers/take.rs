//! How an item of another library's queue is claimed, or removed.

use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{CreateMode, ErrorCode, NameUse, Stat, Transaction};
use lockkeeper_locks::for_recipes::TurnPlace;

use crate::exact::shared_write::lock;
use crate::queue::claim::ClaimWrite;
use crate::queue::core::Core;
use crate::queue::error::{CommitError, QueueError};
use crate::queue::layout::{Entry, new_id};
use crate::queue::peer_names::same_slot;
use crate::queue::take::{DecodeCheck, HeldClaim, TakeMode, TakenItem, TryOutcome, leaving};

impl Core {
    /// Tries to take an item, and to leave the line in the same transaction.
    pub(crate) async fn attempt_peers(
        self: &Arc<Self>,
        mode: &TakeMode,
        entry: Entry,
        place: Option<&TurnPlace>,
    ) -> Result<TryOutcome, QueueError> {
        match mode {
            TakeMode::Claim => self.claim_peers(entry, place).await,
            TakeMode::Remove(reads) => self.remove_peers(entry, place, reads.as_ref()).await,
        }
    }

    /// Claims the item, as a program of the other library does.
    async fn claim_peers(
        self: &Arc<Self>,
        entry: Entry,
        place: Option<&TurnPlace>,
    ) -> Result<TryOutcome, QueueError> {
        let (node, claim_node) = (entry.node(&self.places), entry.claim(&self.places, 0));
        // It distinguishes this claim from others of the same name. kazoo has 32 digits here, and Curator does not
        // read it.
        let mark = Bytes::from(new_id(&self.client));
        let steps = self.client.transaction().check(&node, None);
        let steps = steps.create(&claim_node, mark.clone(), CreateMode::Ephemeral);
        let steps = leaving(steps, place);
        let write = ClaimWrite::new(steps).claiming(self.new_claim(claim_node, mark, true));
        // Both at once, because the data of an item does not change.
        let (written, data) = tokio::join! { biased; self.commit(write), self.data_in(&node) };

        let written = match written {
            Ok(written) => written,
            Err(error) => return self.not_taken(error, 0, 2).await,
        };
        let Some(claim) = written.claim else { return Ok(TryOutcome::NotFree) };
        let created = Stat::of_new(written.zxid, written.session);
        let name = NameUse::Reused(written.zxid);
        let Some(held) = self.hold(claim, created, name).await? else {
            return Ok(TryOutcome::NotFree);
        };

        let Some(data) = data? else { return Ok(TryOutcome::NotFree) };
        if let Ok(values) = self.layout().values(&data)
            && values.len() != 1
        {
            let steps = self.client.transaction().delete(held.claim.node(), None);
            let steps = self.split_steps(steps, &entry, &values);
            return self.split(steps, &entry, Some(&held)).await;
        }
        let (body, held) = (Some(data), Some(held));
        Ok(TryOutcome::Taken(Box::new(TakenItem { entry, version: 0, body, held })))
    }

    /// Removes the item, unless it is claimed or cannot be decoded.
    async fn remove_peers(
        self: &Arc<Self>,
        entry: Entry,
        place: Option<&TurnPlace>,
        reads: &DecodeCheck,
    ) -> Result<TryOutcome, QueueError> {
        let node = entry.node(&self.places);
        let Some(data) = self.data_in(&node).await? else { return Ok(TryOutcome::NotFree) };
        let steps = self.client.transaction();
        let steps = match self.places.peer_claims() {
            // This fails if the claim exists.
            Some(_) => {
                let claim = entry.claim(&self.places, 0);
                steps.create(&claim, Bytes::new(), CreateMode::Ephemeral).delete(&claim, None)
            }
            None => steps,
        };
        if let Ok(values) = self.layout().values(&data)
            && values.len() != 1
        {
            let steps = self.split_steps(steps, &entry, &values);
            return self.split(steps, &entry, None).await;
        }
        reads(&entry.id, &data)?;

        let own = steps.len();
        let steps = steps.delete(&node, None);
        match self.write(leaving(steps, place)).await {
            Ok(_) => {
                let taken = TakenItem { entry, version: 0, body: Some(data), held: None };
                Ok(TryOutcome::Taken(Box::new(taken)))
            }
            Err(error) => self.not_taken(error, own, own + 1).await,
        }
    }

    /// Handles a failed take, given which of its steps are about the entry and about the line.
    async fn not_taken(
        &self,
        error: CommitError,
        entry: usize,
        line: usize,
    ) -> Result<TryOutcome, QueueError> {
        match error.refused() {
            Some((index, ErrorCode::NoNode)) if index == line => return Ok(TryOutcome::NotInLine),
            // Another consumer has it.
            Some((_, ErrorCode::NodeExists)) => lock(&self.picks).scatter(),
            Some((index, ErrorCode::NoNode)) if index == entry => lock(&self.picks).scatter(),
            // The directory of the claims.
            Some((_, ErrorCode::NoNode)) => self.open().await?,
            _ if error.is_session_expired() => lock(&self.picks).forget(),
            _ => return Err(error.for_user(self.path(), usize::MAX)),
        }
        Ok(TryOutcome::NotFree)
    }

    /// Steps that put each of these values into its own node, in the place of the entry that has all of them.
    /// Curator programs may put several values together, which could only be ended together.
    fn split_steps(&self, steps: Transaction, entry: &Entry, values: &[Bytes]) -> Transaction {
        let steps = steps.delete(&entry.node(&self.places), None);
        let slot = self.places.entries.child(same_slot(&entry.id)).expect("a part of a name");
        values.iter().fold(steps, |steps, value| {
            steps.create(&slot, self.layout().to_data(value), CreateMode::PersistentSequential)
        })
    }

    /// Steps that put an item back, whose entry other steps delete: where it was put before, behind its equals.
    pub(crate) fn back_steps(
        &self,
        steps: Transaction,
        entry: &Entry,
        data: &Bytes,
    ) -> Transaction {
        let slot = self.places.entries.child(same_slot(&entry.id)).expect("a part of a name");
        steps.create(&slot, data.clone(), CreateMode::PersistentSequential)
    }

    async fn split(
        &self,
        steps: Transaction,
        entry: &Entry,
        held: Option<&HeldClaim>,
    ) -> Result<TryOutcome, QueueError> {
        let written = match held {
            Some(held) => self.write_in_session(steps, held.guard.session()).await,
            None => self.write(steps).await,
        };
        match written {
            Ok(_) => {
                if let Some(held) = held {
                    held.claim.over();
                }
                lock(&self.picks).forget();
                Ok(TryOutcome::NotFree)
            }
            Err(error) if error.refused().is_some() || error.is_session_expired() => {
                lock(&self.picks).forget();
                Ok(TryOutcome::NotFree)
            }
            Err(error) => {
                // It may be too long for one request. Others are taken then.
                lock(&self.picks).skip(&entry.id);
                Err(error.for_user(self.path(), usize::MAX))
            }
        }
    }
}
