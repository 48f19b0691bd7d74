//! Listing the items of a queue, and burying one.

use std::collections::HashMap;

use futures_util::future::join_all;
use lockkeeper_client::{ReadResult, Stat, ZnodePath};
use lockkeeper_locks::OwnerInfo;

use crate::queue::core::Core;
use crate::queue::error::QueueError;
use crate::queue::handle::Queue;
use crate::queue::lanes::Segment;
use crate::queue::layout::{ClaimName, Entry, Header, QueueNodes, is_id};
use crate::queue::picks::FreeEntry;
use crate::reads::{children_of, data_of, names_of};

/// How many items one request reads.
const AT_ONCE: usize = 100;

/// The state of an item in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ItemState {
    /// Waits for a consumer.
    Waiting,
    /// A consumer works on it.
    Claimed,
    /// It is due later, or is to be retried later.
    Delayed,
}

/// An item in a queue, as [`Queue::items`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedItem {
    /// The item's id.
    pub id: String,
    /// Its state.
    pub state: ItemState,
    /// How often it was taken.
    pub attempts: u32,
    /// When it was put into the queue, in milliseconds since 1970 by the servers' clock.
    pub since_unix_ms: u64,
    /// When it is due, in the same unit, if it is delayed.
    pub due_unix_ms: Option<u64>,
    /// Its priority.
    pub priority: i32,
    /// Its key, if any.
    pub key: Option<String>,
    /// The claim of the consumer that works on it. No other claim ever has its name: when it is deleted, that consumer has
    /// lost the item, and the next one takes it.
    pub claim: Option<ZnodePath>,
    /// The consumer that works on it, or had it last.
    pub holder: Option<OwnerInfo>,
    /// Why it was last put back.
    pub reason: Option<String>,
}

/// An item's entry, and its state.
struct SeenItem {
    entry: Entry,
    version: i32,
    claim: Option<ClaimName>,
    header: Header,
    since_unix_ms: u64,
}

impl<T, D> Queue<T, D> {
    /// Lists up to `most` items: those that can be taken first, in their order, then delayed ones. Dead letters are
    /// [listed separately](Queue::dead_letters). Costs 2 round trips (reads), 1 for each segment of 256 entries and
    /// 2 for each 100 items, with a small request for each item. It is read in parts, so that the list may be
    /// inconsistent while the queue is used.
    ///
    /// # Errors
    /// As [`Queue::inspect`]; [`QueueError::NotInLayout`] in the layouts of other libraries.
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn items(&self, most: usize) -> Result<Vec<QueuedItem>, QueueError> {
        self.core.require_own_layout("lists of items")?;
        let found = self.core.found(most, |_| true).await?;
        Ok(found.into_iter().map(|item| item.listed(&self.core.places)).collect())
    }

    /// Makes an item that no consumer works on a dead letter, with a reason for display. Returns whether such an
    /// item has this id. An item that is worked on must be ended by its consumer, or [cancelled](Queue::cancel).
    /// Costs as much as [`Queue::items`] for the whole queue, and 1 write.
    ///
    /// # Errors
    /// As [`Queue::put`]; [`QueueError::NotInLayout`] in the layouts of other libraries.
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// When dropped, it may be a dead letter.
    pub async fn bury(&self, id: &str, reason: impl Into<String>) -> Result<bool, QueueError> {
        let (core, reason) = (&self.core, reason.into());
        core.require_own_layout("dead letters")?;
        if !is_id(id) {
            return Ok(false);
        }
        loop {
            let found = core.found(1, |entry| entry.known_as() == id).await?.pop();
            let Some(found) = found else { return Ok(false) };
            let paused_until = match found.claim {
                Some(ClaimName { free_from: None, .. }) => return Ok(false),
                claim => claim.and_then(|claim| claim.free_from),
            };
            let (attempts, holder) = (found.attempts(), found.header.holder.clone());
            let free = FreeEntry {
                entry: found.entry,
                version: found.version,
                paused_until,
                place_of_kind: None,
            };
            if core.bury_free(&free, reason.clone(), attempts, holder).await? {
                return Ok(true);
            }
        }
    }
}

impl Core {
    /// Up to `most` of the items whose entries are wanted, in the order in which they are taken.
    async fn found(
        &self,
        most: usize,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<SeenItem>, QueueError> {
        self.open_to_look().await?;
        let mut segments = self.listed_segments().await?.unwrap_or_default();
        segments.sort_by_key(|segment| !segment.is_ready());
        let mut found = Vec::new();
        for segment in segments {
            let entries = self.entries_in(segment).await?;
            let entries: Vec<_> = entries.into_iter().filter(&is_wanted).collect();
            for entries in entries.chunks(AT_ONCE) {
                found.extend(self.look_at(entries).await?);
                if found.len() >= most {
                    found.truncate(most);
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// The entries of a segment, in the order of their numbers.
    pub(super) async fn entries_in(&self, segment: Segment) -> Result<Vec<Entry>, QueueError> {
        let names = self.names_in(&self.places.segment(segment)).await?.unwrap_or_default();
        let mut entries: Vec<_> =
            names.iter().filter_map(|name| Entry::read(segment, name)).collect();
        entries.sort_by_key(|entry| entry.number);
        Ok(entries)
    }

    /// The states of these entries. Those that are gone or were cancelled are left out.
    async fn look_at(&self, entries: &[Entry]) -> Result<Vec<SeenItem>, QueueError> {
        let places = &self.places;
        let looks = entries.iter().map(|entry| data_of(&entry.node(places)));
        let mut answers =
            self.read_all(looks.chain([children_of(&places.claims)]).collect()).await?;
        let claims = answers.pop().and_then(names_of).unwrap_or_default();
        let claims = claims.iter().filter_map(|name| ClaimName::read(name));
        let claims: HashMap<_, _> =
            claims.map(|claim| ((claim.segment, claim.number, claim.version), claim)).collect();
        // Read alone: a `multiRead` would return the values of the items.
        let bodies = entries.iter().map(|entry| self.stat_in(places.body(&entry.id)));
        let bodies = join_all(bodies).await;

        let mut found = Vec::with_capacity(entries.len());
        for ((entry, answer), body) in entries.iter().zip(answers).zip(bodies) {
            let (ReadResult::Data { data, stat }, Some(body)) = (answer, body?) else { continue };
            let at = (entry.segment, entry.number, stat.version);
            found.push(SeenItem {
                entry: entry.clone(),
                version: stat.version,
                claim: claims.get(&at).copied(),
                header: Header::read(&data),
                since_unix_ms: u64::try_from(body.ctime).unwrap_or_default(),
            });
        }
        Ok(found)
    }

    async fn stat_in(&self, node: ZnodePath) -> Result<Option<Stat>, QueueError> {
        loop {
            match self.client.exists(&node).await {
                Ok(found) => return Ok(found),
                Err(error) => self.again(error).await?,
            }
        }
    }
}

impl SeenItem {
    fn attempts(&self) -> u32 {
        self.entry.taken(self.version)
    }

    fn listed(self, places: &QueueNodes) -> QueuedItem {
        let paused_until = self.claim.and_then(|claim| claim.free_from);
        let (attempts, marks) = (self.attempts(), self.entry.marks());
        let due_unix_ms = marks.due_unix_ms.or(paused_until);
        let state = match self.claim {
            Some(ClaimName { free_from: None, .. }) => ItemState::Claimed,
            _ if due_unix_ms.is_some() => ItemState::Delayed,
            _ => ItemState::Waiting,
        };
        let claim = self.claim.filter(|claim| claim.free_from.is_none());
        let claim = claim.and_then(|claim| places.claims.child(&claim.to_string()).ok());
        QueuedItem {
            claim,
            id: self.entry.known_as().to_owned(),
            state,
            attempts,
            since_unix_ms: self.since_unix_ms,
            due_unix_ms,
            priority: marks.priority,
            key: marks.key.clone(),
            holder: self.header.holder,
            reason: self.header.reason,
        }
    }
}
