//! [`OnceRun`]: work that was started, and the record of its end.

use std::fmt;

use lockkeeper_client::retry::{Backoff, retry_pause};
use lockkeeper_client::{Instant, Stat, ZnodePath, present};

use crate::guard::Guard;
use crate::once::error::OnceError;
use crate::once::key::OnceKey;
use crate::once::record::{OnceRecord, Written};
use crate::once::store::{Store, still_held};

/// The place of a record.
pub(super) struct RecordPlace {
    store: Store,
    node: ZnodePath,
    /// The version of the record at the start.
    version: i32,
    /// The least number of records at the start.
    records: usize,
}

impl RecordPlace {
    /// `above`: the stat of the node above the records.
    pub(super) fn new(store: &Store, node: ZnodePath, version: i32, above: &Stat) -> Self {
        let records = usize::try_from(above.num_children).unwrap_or_default();
        Self { store: store.clone(), node, version, records }
    }
}

/// Work that was started for a key, and has to be done. Without [`OnceRun::end`] no end is recorded, as
/// if the program had died.
#[must_use = "without `end`, it counts as unfinished"]
pub struct OnceRun<'a> {
    guard: &'a Guard,
    begun: Box<BegunRun>,
}

struct BegunRun {
    place: RecordPlace,
    written: Written,
    key: OnceKey,
    earlier: Option<OnceRecord>,
    began: Instant,
}

impl<'a> OnceRun<'a> {
    pub(super) fn new(
        guard: &'a Guard,
        place: RecordPlace,
        written: Written,
        key: OnceKey,
        earlier: Option<OnceRecord>,
    ) -> Self {
        let began = place.store.client.now();
        let begun = Box::new(BegunRun { place, written, key, earlier, began });
        Self { guard, begun }
    }

    /// The key of the work.
    pub fn key(&self) -> &OnceKey {
        &self.begun.key
    }

    /// How often the work was started, including this time.
    pub fn attempt(&self) -> u32 {
        self.begun.written.attempt()
    }

    /// The earlier record without an end, if known.
    pub fn earlier(&self) -> Option<&OnceRecord> {
        self.begun.earlier.as_ref()
    }

    /// Records the end, with an exit code; 0 means success. Costs 1 round trip, and occasionally 3 more to
    /// delete old records.
    ///
    /// # Errors
    /// If the lock is lost, the record is gone, or a request fails with a permanent error. The end is then not
    /// recorded, unless only the reply was lost.
    ///
    /// # Session loss
    /// Fails, because the lock is lost.
    ///
    /// # Cancel safety
    /// The end may be recorded.
    pub async fn end(self, code: i32) -> Result<(), OnceError> {
        let BegunRun { place, written, began, .. } = *self.begun;
        let RecordPlace { store, node, version, records } = &place;
        let ended = written.ended(code, store.client.now().since(began));
        let mut backoff = Backoff::default();
        loop {
            let writes = self.guard.transaction();
            let answer = writes.set_data(node, ended.to_data(), Some(*version)).commit().await;
            let Err(error) = answer else { break };
            store.outlast(self.guard, Err(error), &mut backoff).await?;

            match present(store.client.data(node).await) {
                Ok(Some((data, _))) => match Written::read(&data) {
                    Some(found) if found == ended => break,
                    Some(found) if found == written => {}
                    _ => return Err(OnceError::Replaced { node: node.clone() }),
                },
                Ok(None) => return Err(OnceError::Replaced { node: node.clone() }),
                Err(error) => {
                    still_held(self.guard)?;
                    retry_pause(error).await?;
                }
            }
        }
        if let Err(error) = store.trim(records + 1).await {
            tracing::debug!(%error, "old records are left to the next run");
        }
        Ok(())
    }
}

impl fmt::Debug for OnceRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceRun")
            .field("key", self.key())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
