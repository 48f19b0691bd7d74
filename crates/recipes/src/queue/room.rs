//! Whether a queue has room for an item, and waiting for room.

use std::collections::HashSet;
use std::time::Duration;

use lockkeeper_client::ErrorCode;
use lockkeeper_client::retry::pause;
use lockkeeper_locks::AcquireError;

use crate::exact::shared_write::lock;
use crate::queue::admin::children;
use crate::queue::bound::Bound;
use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::reads::{data_of, stat_of};

/// How long a count of the items is trusted.
const TRUST_TIME: Duration = Duration::from_secs(1);

/// How often a put that waits for room counts again.
const RECOUNT_INTERVAL: Duration = Duration::from_millis(200);

impl Core {
    /// Reserves room for this many items, and returns their slots. Waits for room, if the bound says so.
    ///
    /// # Errors
    /// [`QueueError::Full`] if there is no room.
    pub(super) async fn room_for(&self, count: usize) -> Result<Vec<Option<u32>>, QueueError> {
        let Some(bound) = self.options.bound else { return Ok(vec![None; count]) };
        let limit = usize::try_from(bound.limit).unwrap_or(usize::MAX);
        let full = || QueueError::Full { path: self.path().clone(), limit };
        if count > limit {
            return Err(full());
        }
        self.ensure_open().await?;
        loop {
            if let Some(places) = self.room_now(bound, limit, count).await? {
                return Ok(places);
            }
            if !bound.waits {
                return Err(full());
            }
            self.wait_for_room(bound, limit, count).await?;
        }
    }

    async fn room_now(
        &self,
        bound: Bound,
        limit: usize,
        count: usize,
    ) -> Result<Option<Vec<Option<u32>>>, QueueError> {
        if !bound.is_exact {
            let there = self.count_items().await?;
            if there + count > limit {
                return Ok(None);
            }
            if let Some((counted, _)) = lock(&self.room.counted).as_mut() {
                *counted += count;
            }
            return Ok(Some(vec![None; count]));
        }
        if lock(&self.room.free).len() < count {
            let taken = self.names_in(&self.places.slots).await?.unwrap_or_default();
            let taken: HashSet<u32> = taken.iter().filter_map(|name| name.parse().ok()).collect();
            let mut free: Vec<_> = (0..bound.limit).filter(|slot| !taken.contains(slot)).collect();
            // Others choose from the same slots.
            fastrand::shuffle(&mut free);
            *lock(&self.room.free) = free;
        }
        let mut free = lock(&self.room.free);
        let Some(rest) = free.len().checked_sub(count) else { return Ok(None) };
        Ok(Some(free.drain(rest..).map(Some).collect()))
    }

    /// The number of items, counted recently.
    async fn count_items(&self) -> Result<usize, QueueError> {
        let now = self.client.now();
        if let Some((count, at)) = *lock(&self.room.counted)
            && now - at < TRUST_TIME
        {
            return Ok(count);
        }
        let segments = self.listed_segments().await?.unwrap_or_default();
        let nodes = segments.iter().map(|segment| data_of(&self.places.segment(*segment)));
        let stats = self.read_all(nodes.collect()).await?;
        let count = stats.iter().filter_map(stat_of).map(children).sum();
        *lock(&self.room.counted) = Some((count, now));
        Ok(count)
    }

    /// Waits until there may be room. The first of the waiting puts counts; the others wait in line.
    async fn wait_for_room(
        &self,
        bound: Bound,
        limit: usize,
        count: usize,
    ) -> Result<(), QueueError> {
        let place = async {
            let mut place = self.room.line.enter().await?;
            place.first().await.map(|()| place)
        };
        let _place = match place.await {
            Ok(place) => place,
            Err(AcquireError::SessionExpired { .. } | AcquireError::NodeDeleted { .. }) => {
                return Ok(());
            }
            Err(error) => return Err(QueueError::take(self.path(), error)),
        };

        loop {
            if !bound.is_exact {
                tokio::time::sleep(RECOUNT_INTERVAL).await;
                *lock(&self.room.counted) = None;
                if self.count_items().await? + count <= limit {
                    return Ok(());
                }
                continue;
            }
            match self.client.children_watched(&self.places.slots).await {
                Ok((names, _)) if names.0.len() + count <= limit => {
                    lock(&self.room.free).clear();
                    return Ok(());
                }
                Ok((_, mut watcher)) => drop(watcher.changed().await),
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    self.open().await?;
                    pause().await;
                }
                Err(error) => self.again(error).await?,
            }
        }
    }
}
