//! Inspecting a queue; its dead letters; its deletion.

use std::time::Duration;

use lockkeeper_client::{ErrorCode, ReadResult, Stat, TransactionError, ZnodePath, present};
use lockkeeper_locks::OwnerInfo;

use crate::queue::answer::{AnswerData, ItemAnswer};
use crate::queue::commit::nothing;
use crate::queue::core::Core;
use crate::queue::error::{CommitError, QueueError};
use crate::queue::handle::Queue;
use crate::queue::lanes::{PLAIN, Segment, last_of};
use crate::queue::layout::{ClaimName, DeadLetterData, Entry, NewEntry, QueueMark, is_id};
use crate::queue::marks::Marks;
use crate::reads::{children_of, data_of, names_of, stat_of};
use crate::wall_clock::unix_ms;

/// How many nodes one request reads or deletes.
const AT_ONCE: usize = 200;

/// The state of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// Items that wait for a consumer.
    pub waiting: usize,
    /// Items that are being worked on.
    pub claimed: usize,
    /// Items that are due later, or are to be retried later.
    pub delayed: usize,
    /// Dead letters.
    pub dead: usize,
    /// Consumers. One that was killed counts until its session has ended, and so do the items that it has claimed.
    pub workers: usize,
    /// Consumers that wait in line for an item.
    pub idle: usize,
    /// How often consumers have asked for a retry since the queue was created.
    pub retries: u64,
    /// When the oldest item was put, waiting or being worked on, in milliseconds since 1970 by the servers' clock.
    pub oldest_unix_ms: Option<u64>,
}

impl QueueReport {
    /// How long the oldest item has been in the queue, by the clock of this machine; zero for an empty queue.
    pub fn age_of_oldest(&self) -> Duration {
        match self.oldest_unix_ms {
            Some(oldest) => Duration::from_millis(unix_ms().saturating_sub(oldest)),
            None => Duration::ZERO,
        }
    }

    /// Sets the gauges of the queue.
    #[cfg(feature = "metrics")]
    fn show(&self, queue: &ZnodePath) {
        use lockkeeper_client::metrics::{Label, QUEUE_ITEMS, QUEUE_OLDEST, set};

        let queue = Label::new("queue", queue.to_string());
        let states = [
            ("waiting", self.waiting),
            ("claimed", self.claimed),
            ("delayed", self.delayed),
            ("dead", self.dead),
        ];
        for (state, items) in states {
            let labels = vec![queue.clone(), Label::from_static_parts("state", state)];
            set(QUEUE_ITEMS, labels, u32::try_from(items).unwrap_or(u32::MAX).into());
        }
        set(QUEUE_OLDEST, vec![queue], self.age_of_oldest().as_secs_f64());
    }
}

/// An item that is not taken any more, because it was [buried](crate::Item::bury) or tried too often.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The item's id.
    pub id: String,
    /// Why it is a dead letter.
    pub reason: String,
    /// How often it was taken.
    pub attempts: u32,
    /// The program that had it last, if known.
    pub holder: Option<OwnerInfo>,
    /// When it became a dead letter, in milliseconds since 1970 by the servers' clock.
    pub since_unix_ms: u64,
}

impl<T, D> Queue<T, D> {
    /// The state of the queue. Costs 5 round trips (reads) and some hundred bytes for each 256 items. It is read in
    /// parts, so that the numbers may be inconsistent while the queue is used. With the feature `metrics`, this
    /// sets the queue's gauges.
    ///
    /// # Errors
    /// If the queue does not exist, the path has other data, or a request is refused.
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn inspect(&self) -> Result<QueueReport, QueueError> {
        let report = self.core.inspect().await?;
        #[cfg(feature = "metrics")]
        report.show(self.path());
        Ok(report)
    }

    /// The dead letters, oldest first. Costs 1 round trip, and 1 for each 200 of them.
    ///
    /// # Errors
    /// As [`Queue::inspect`].
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, QueueError> {
        self.core.require_own_layout("dead letters")?;
        self.core.dead_letters().await
    }

    /// The value of a dead letter; `None` if no dead letter has this id. Costs 3 round trips (reads).
    ///
    /// # Errors
    /// [`QueueError::Undecodable`] if it cannot be decoded; and as [`Queue::inspect`].
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn dead_value(&self, id: &str) -> Result<Option<T>, QueueError> {
        let Some((item, marks)) = self.core.letter_of(id).await? else { return Ok(None) };
        let value = self.core.whole_value(&item, &marks).await?;
        value.map(|value| self.decode(id, Some(value))).transpose()
    }

    /// Puts a dead letter back at the end of the queue, as if it had never been taken. Returns whether a dead
    /// letter has this id. Costs 3 round trips (2 reads, 1 write).
    ///
    /// # Errors
    /// As [`Queue::put`].
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// When dropped, it is put back once or not at all.
    pub async fn put_back(&self, id: &str) -> Result<bool, QueueError> {
        let core = &self.core;
        let Some((item, marks)) = core.letter_of(id).await? else { return Ok(false) };
        let letter = core.places.dead_letter(&item);
        let new = NewEntry { id: &item, tries: 0, marks: &marks };
        let steps = |segment| {
            let steps = core.client.transaction().delete(&letter, None);
            core.new_entry(segment, steps, &new, nothing())
        };
        let is_missing = |error: &CommitError| error.refused() == Some((0, ErrorCode::NoNode));
        Ok(core.write_at_end(marks.lane(), steps, is_missing).await?.is_ok())
    }

    /// Cancels an item in any state: waiting, delayed, being worked on, or a dead letter. It is not taken from now
    /// on; a consumer that works on it learns of it by [`Item::cancelled`](crate::Item::cancelled), and by a failed
    /// end. Returns whether an item has this id. Its entry stays in the queue until a consumer comes to it, and is
    /// counted until then. Costs 3 round trips (2 reads, 1 write).
    ///
    /// # Errors
    /// As [`Queue::put`].
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// When dropped, it may be cancelled.
    pub async fn cancel(&self, id: &str) -> Result<bool, QueueError> {
        self.core.require_own_layout("cancellations")?;
        match is_id(id) {
            true => self.core.cancel(id).await,
            false => Ok(false),
        }
    }

    /// Deletes a dead letter. Returns whether a dead letter has this id. Costs 3 round trips (2 reads, 1 write).
    ///
    /// # Errors
    /// As [`Queue::put`].
    ///
    /// # Session loss
    /// As [`Queue::put`].
    ///
    /// # Cancel safety
    /// When dropped, it may be deleted.
    pub async fn discard(&self, id: &str) -> Result<bool, QueueError> {
        let core = &self.core;
        let Some((item, marks)) = core.letter_of(id).await? else { return Ok(false) };
        let steps = core.client.transaction().delete(&core.places.dead_letter(&item), None);
        let steps = steps.delete(&core.places.body(&item), None);
        let steps = core.beside_steps(steps, &marks);
        match core.write(steps).await {
            Ok(_) => Ok(true),
            Err(error) if error.refused() == Some((0, ErrorCode::NoNode)) => Ok(false),
            Err(error) => Err(error.for_user(core.path(), usize::MAX)),
        }
    }

    /// Deletes the queue with all its items and dead letters. Returns whether it existed. An interrupted deletion
    /// is continued by the next one. Costs 1 round trip for each 100 items, and a few more.
    ///
    /// # Errors
    /// [`QueueError::InUse`] while the queue has consumers: then nothing is deleted. Programs that only put get
    /// [`QueueError::Deleted`]. [`QueueError::Foreign`] if the path is not that of a queue.
    ///
    /// # Session loss
    /// Continues in the next session.
    ///
    /// # Cancel safety
    /// When dropped, it may be deleted in part: the queue cannot be used then, and the next call continues.
    pub async fn delete(&self) -> Result<bool, QueueError> {
        self.core.require_own_layout("lists of consumers, which a safe deletion needs")?;
        self.core.delete().await
    }
}

impl Core {
    async fn cancel(&self, id: &str) -> Result<bool, QueueError> {
        let item = self.item_of(id).await?;
        let name = (item != id).then_some(id);
        self.cancel_item(&item, name).await
    }

    /// The internal id of the item with this public id.
    async fn item_of(&self, id: &str) -> Result<String, QueueError> {
        let own = self.data_in(&self.places.id_node(id)).await?;
        let own = own.and_then(|own| String::from_utf8(own.to_vec()).ok());
        Ok(own.filter(|own| is_id(own)).unwrap_or_else(|| id.to_owned()))
    }

    /// The internal id of the dead letter with this public id, and the marks of its item.
    async fn letter_of(&self, id: &str) -> Result<Option<(String, Marks)>, QueueError> {
        self.require_own_layout("dead letters")?;
        if !is_id(id) {
            return Ok(None);
        }
        let item = self.item_of(id).await?;
        let letter = self.data_in(&self.places.dead_letter(&item)).await?;
        Ok(letter.map(|data| (item, DeadLetterData::read(&data).marks())))
    }

    /// Cancels the item with this internal id; `name`: the id that its putter has set.
    pub(super) async fn cancel_item(
        &self,
        id: &str,
        name: Option<&str>,
    ) -> Result<bool, QueueError> {
        let (letter, answer) = (self.places.dead_letter(id), self.places.answer(id));
        loop {
            let looks = [&letter, &answer].map(data_of).into();
            let mut found = self.read_all(looks).await?.into_iter().map(|found| match found {
                ReadResult::Data { data, .. } => Some(data),
                _ => None,
            });
            let (dead, waits) = (found.next().flatten(), found.next().flatten());

            let steps = self.client.transaction().delete(&self.places.body(id), None);
            let steps = match name {
                Some(name) => steps.delete(&self.places.id_node(name), None),
                None => steps,
            };
            let steps = match dead {
                Some(data) => {
                    let nodes = self.places.beside_body(&DeadLetterData::read(&data).marks());
                    let nodes = nodes.into_iter().chain([letter.clone()]);
                    nodes.fold(steps, |steps, node| steps.delete(&node, None))
                }
                None => steps,
            };
            let steps = match waits.and_then(|data| AnswerData::read(&data).ok()) {
                Some(waits) => {
                    let told = AnswerData { answer: Some(ItemAnswer::Cancelled), ..waits };
                    steps.set_data(&answer, told.to_data(), None)
                }
                None => steps,
            };

            match self.write(steps).await {
                Ok(_) => return Ok(true),
                Err(error) if error.is_session_expired() => {}
                Err(error) => match error.refused() {
                    Some((0, ErrorCode::NoNode)) => return Ok(false),
                    // It was put back, or the requester has left.
                    Some((_, ErrorCode::NoNode)) => {}
                    _ => return Err(error.for_user(self.path(), usize::MAX)),
                },
            }
        }
    }

    async fn inspect(&self) -> Result<QueueReport, QueueError> {
        if !self.layout().is_own() {
            return self.inspect_peers().await;
        }
        self.open_to_look().await?;
        let segments = self.listed_segments().await?.unwrap_or_default();
        let places = &self.places;
        let parts = [&places.claims, &places.dead, &places.workers, &places.line];
        let nodes = parts.into_iter().cloned().chain(segments.iter().map(|it| places.segment(*it)));
        let ops = nodes.map(|node| data_of(&node)).chain([children_of(&places.claims)]);
        let mut answers = self.read_all(ops.collect()).await?;
        let claims = answers.pop().and_then(names_of).unwrap_or_default();
        let claims: Vec<_> = claims.iter().filter_map(|name| ClaimName::read(name)).collect();
        let (paused, claimed): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.free_from.is_some());

        let stats: Vec<_> = answers.iter().map(stat_of).collect();
        let count = |index: usize| stats.get(index).copied().flatten().map_or(0, children);
        let listed: Vec<_> = segments.iter().zip(parts.len()..).collect();
        let (ready, later): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|(segment, _)| segment.is_ready());
        let all = |lanes: &[(&Segment, usize)]| lanes.iter().map(|(_, it)| count(*it)).sum();
        let (entries, later): (usize, usize) = (all(&ready), all(&later));
        let retries = stats.first().copied().flatten().map_or(0, |stat| stat.version);

        let mut oldest: Option<u64> = None;
        for segments in ready.chunk_by(|one, next| one.0.lane == next.0.lane) {
            if let Some((segment, _)) = segments.iter().find(|(_, it)| count(*it) > 0) {
                let since = self.oldest_in(**segment).await?;
                oldest = oldest.into_iter().chain(since).min();
            }
        }
        Ok(QueueReport {
            waiting: entries.saturating_sub(claimed.len() + paused.len()),
            claimed: claimed.len(),
            delayed: later + paused.len(),
            dead: count(1),
            workers: count(2),
            idle: count(3),
            retries: u64::try_from(retries).unwrap_or_default(),
            oldest_unix_ms: oldest,
        })
    }

    /// When the first item of a segment was put.
    async fn oldest_in(&self, segment: Segment) -> Result<Option<u64>, QueueError> {
        let entries = self.entries_in(segment).await?;
        let Some(oldest) = entries.first() else { return Ok(None) };
        let body = data_of(&self.places.body(&oldest.id));
        let stat = self.read_all(vec![body]).await?.first().and_then(stat_of);
        Ok(stat.and_then(|stat| u64::try_from(stat.ctime).ok()))
    }

    /// Fails if the queue does not exist. Does not create it.
    pub(super) async fn open_to_look(&self) -> Result<(), QueueError> {
        match self.mark().await? {
            Some(_) => Ok(()),
            None => Err(self.deleted()),
        }
    }

    async fn dead_letters(&self) -> Result<Vec<DeadLetter>, QueueError> {
        self.open_to_look().await?;
        let names = self.names_in(&self.places.dead).await?.unwrap_or_default();
        let ids: Vec<_> = names.into_iter().filter(|name| is_id(name)).collect();
        let mut letters = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            let ops = ids.iter().map(|id| data_of(&self.places.dead_letter(id)));
            let answers = self.read_all(ops.collect()).await?;
            // A missing one was put back in the meantime.
            letters.extend(ids.iter().zip(answers).filter_map(|(id, answer)| match answer {
                ReadResult::Data { data, stat } => {
                    let obituary = DeadLetterData::read(&data);
                    let id = obituary.marks().name.unwrap_or_else(|| id.clone());
                    let DeadLetterData { reason, attempts, holder, .. } = obituary;
                    let since_unix_ms = u64::try_from(stat.ctime).unwrap_or_default();
                    Some((stat.czxid, DeadLetter { id, reason, attempts, holder, since_unix_ms }))
                }
                _ => None,
            }));
        }
        letters.sort_unstable_by(|(one, a), (other, b)| (one, &a.id).cmp(&(other, &b.id)));
        Ok(letters.into_iter().map(|(_, letter)| letter).collect())
    }

    async fn delete(&self) -> Result<bool, QueueError> {
        let mut was_there = false;
        while let Some(mark) = self.mark().await? {
            was_there = true;
            if mark.is_going || self.close_for_good().await? {
                self.delete_all().await?;
            }
        }
        self.deleted();
        Ok(was_there)
    }

    /// Blocks all puts and takes, unless the queue has consumers. Returns whether it is blocked now.
    async fn close_for_good(&self) -> Result<bool, QueueError> {
        let places = &self.places;
        let Some(segments) = self.listed_segments().await? else { return Ok(false) };
        let Some(last) = last_of(&segments, PLAIN) else { return Ok(false) };
        // This fails if the node has children: each consumer has a node in it.
        let steps = self.client.transaction().delete(&places.workers, None);
        let steps = steps.set_data(&places.segment(last), nothing(), Some(0));
        let steps = steps.set_data(&places.path, QueueMark::new(true).to_data(), None);
        match steps.commit().await {
            Ok(_) => Ok(true),
            Err(TransactionError::Failed { index: 0, code: ErrorCode::NotEmpty, .. }) => {
                let names = |names: Option<Vec<String>>| names.map_or(0, |names| names.len());
                let workers = names(self.names_in(&places.workers).await?);
                let claims = names(self.names_in(&places.claims).await?);
                Err(QueueError::InUse { path: self.path().clone(), workers, claims })
            }
            Err(TransactionError::Request(error)) => self.again(error).await.map(|()| false),
            // The next read shows the state.
            Err(_) => Ok(false),
        }
    }

    /// Deletes the content of a blocked queue, and then the queue.
    async fn delete_all(&self) -> Result<(), QueueError> {
        let places = &self.places;
        for segment in self.listed_segments().await?.unwrap_or_default() {
            let node = places.segment(segment);
            let names = self.names_in(&node).await?.unwrap_or_default();
            let mut nodes = Vec::new();
            for name in &names {
                nodes.extend(Entry::read(segment, name).map(|entry| places.body(&entry.id)));
                nodes.extend(node.child(name).ok());
            }
            nodes.push(node);
            self.delete_nodes(&nodes).await?;
        }

        for upload in self.names_in(&places.parts).await?.unwrap_or_default() {
            let directory = places.parts_of(&upload);
            let names = self.names_in(&directory).await?.unwrap_or_default();
            let parts = names.iter().filter_map(|name| directory.child(name).ok());
            self.delete_nodes(&parts.chain([directory.clone()]).collect::<Vec<_>>()).await?;
        }
        for part in places.beside_entries() {
            let names = self.names_in(part).await?.unwrap_or_default();
            let mut nodes = Vec::new();
            for name in &names {
                if *part == places.dead && is_id(name) {
                    nodes.push(places.body(name));
                }
                nodes.extend(part.child(name).ok());
            }
            self.delete_nodes(&nodes).await?;
        }
        let parts: Vec<_> = places.beside_entries().into_iter().cloned().collect();
        self.delete_nodes(&parts).await?;
        self.delete_nodes(&[places.parts.clone(), places.entries.clone()]).await?;
        self.delete_nodes(&[places.workers.clone(), places.path.clone()]).await
    }

    /// Deletes nodes, in this order, and skips missing ones.
    async fn delete_nodes(&self, nodes: &[ZnodePath]) -> Result<(), QueueError> {
        for nodes in nodes.chunks(AT_ONCE) {
            let asked: Vec<_> =
                nodes.iter().map(|node| (node, self.client.delete(node, None))).collect();
            for (node, mut asked) in asked {
                loop {
                    match present(asked.await) {
                        Ok(_) => break,
                        Err(error) if error.code().is_some() => {
                            return Err(QueueError::Client { path: node.clone(), source: error });
                        }
                        Err(error) => self.again(error).await?,
                    }
                    asked = self.client.delete(node, None);
                }
            }
        }
        Ok(())
    }
}

pub(super) fn children(stat: Stat) -> usize {
    usize::try_from(stat.num_children).unwrap_or_default()
}
