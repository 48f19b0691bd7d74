//! Items that are due later, by the servers' clock. A consumer that lists the queue moves them into it when they
//! are due.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_client::retry::{pause, reachable};
use lockkeeper_client::{ErrorCode, ReadResult};

use crate::exact::shared_write::lock;
use crate::queue::clock::{DRIFT_DIVISOR, ServerTime};
use crate::queue::commit::nothing;
use crate::queue::core::Core;
use crate::queue::error::{CommitError, QueueError};
use crate::queue::lanes::{Lane, MINUTE_MS, Segment, last_of};
use crate::queue::layout::{Entry, NewEntry};
use crate::queue::marks::Marks;
use crate::reads::{children_of, data_of, names_of};
use crate::wall_clock::unix_ms;

/// After how long a clock is read again, because it may have been set.
const MAX_NAP: Duration = Duration::from_secs(60);

/// How many segments one request lists, and how many entries it moves.
const SEGMENTS_AT_ONCE: usize = 32;
const ENTRIES_AT_ONCE: usize = 100;

impl Core {
    /// The time by the servers' clock. Costs nothing after a recent write, and a write of its own otherwise.
    pub(super) async fn server_time(&self) -> Result<ServerTime, QueueError> {
        loop {
            if let Some(time) = self.clock.at(self.client.now()) {
                return Ok(time);
            }
            // Writes only the outcome marker.
            match self.write(self.client.transaction()).await {
                Ok(_) => {}
                Err(error) if error.is_session_expired() => {}
                Err(error) if error.may_pass() => {
                    reachable(&self.client).await;
                    pause().await;
                }
                Err(error) => return Err(error.for_user(self.path(), usize::MAX)),
            }
        }
    }

    /// Moves due items into the queue, and returns whether there were any: then the queue must be listed again.
    /// Records when the next item is due. Deletes empty segments. Costs nothing without such items.
    pub(super) async fn bring_due(&self, segments: &[Segment]) -> Result<bool, QueueError> {
        let later = segments.iter().filter_map(|it| it.lane.due_from().map(|from| (*it, from)));
        let later: Vec<_> = later.collect();
        if later.is_empty() {
            return Ok(false);
        }
        let now = self.server_time().await?.least;
        let (begun, later): (Vec<_>, Vec<_>) = later.into_iter().partition(|it| it.1 <= now);
        if let Some((_, from)) = later.first() {
            lock(&self.picks).due(*from);
        }

        let mut due: Vec<(u64, Entry)> = Vec::new();
        for begun in begun.chunks(SEGMENTS_AT_ONCE) {
            let nodes =
                begun.iter().map(|(segment, _)| children_of(&self.places.segment(*segment)));
            let listed = self.read_all(nodes.collect()).await?;
            for ((segment, from), names) in begun.iter().zip(listed) {
                let names = names_of(names).unwrap_or_default();
                let gets_more = last_of(segments, segment.lane) == Some(*segment)
                    && now < from.saturating_add(MINUTE_MS);
                if names.is_empty() && !gets_more {
                    // If it fails, the next listing tries again. A put that needs the segment after all creates it
                    // again.
                    drop(self.client.delete(&self.places.segment(*segment), None));
                }
                for entry in names.iter().filter_map(|name| Entry::read(*segment, name)) {
                    match entry.marks().due_unix_ms.unwrap_or(*from) {
                        at if at <= now => due.push((at, entry)),
                        at => lock(&self.picks).due(at),
                    }
                }
            }
        }

        due.sort_unstable_by_key(|(at, entry)| (*at, entry.segment, entry.number));
        let mut by_lane: BTreeMap<Lane, Vec<(Entry, Marks)>> = BTreeMap::new();
        let is_any_due = !due.is_empty();
        for (_, entry) in due {
            let marks = entry.marks().clone().come();
            by_lane.entry(marks.lane()).or_default().push((entry, marks));
        }
        for (lane, entries) in by_lane {
            for entries in entries.chunks(ENTRIES_AT_ONCE) {
                self.bring(lane, entries).await?;
            }
        }
        Ok(is_any_due)
    }

    /// Moves these entries to the end of a lane, in one transaction. If another program has moved one of them in
    /// the meantime, none is moved.
    async fn bring(&self, lane: Lane, entries: &[(Entry, Marks)]) -> Result<(), QueueError> {
        let nodes: Vec<_> = entries.iter().map(|(entry, _)| entry.node(&self.places)).collect();
        // Why they were put back, if they were.
        let headers = self.read_all(nodes.iter().map(data_of).collect()).await?;
        let headers: Vec<_> = headers
            .into_iter()
            .map(|answer| match answer {
                ReadResult::Data { data, .. } => data.into_bytes(),
                _ => nothing(),
            })
            .collect();

        let steps = |segment| {
            let moved = entries.iter().zip(&nodes).zip(&headers);
            moved.fold(self.client.transaction(), |steps, (((entry, marks), node), header)| {
                let new = NewEntry { id: &entry.id, tries: entry.tries, marks };
                self.new_entry(segment, steps.delete(node, None), &new, header.clone())
            })
        };
        // Every other step is a delete.
        let is_moved = |error: &CommitError| {
            let refused = error.refused();
            refused.is_some_and(|(index, code)| index % 2 == 0 && code == ErrorCode::NoNode)
        };
        // By any program: the queue is listed again.
        self.write_at_end(lane, steps, is_moved).await.map(drop)
    }

    /// Returns when an item is due, or free, that was not at the last listing.
    pub(super) async fn due(&self) {
        let Some(next) = lock(&self.picks).next_due_unix_ms() else {
            return std::future::pending().await;
        };
        let now = match self.layout().is_own() {
            true => self.clock.at(self.client.now()).map_or(next, |now| now.least),
            false => unix_ms(),
        };
        let left = Duration::from_millis(next.saturating_sub(now));
        // Allows for clock drift, so that it is due after one nap.
        let left = left + left / (DRIFT_DIVISOR - 1) + Duration::from_millis(1);
        tokio::time::sleep(left.min(MAX_NAP)).await;
    }
}
