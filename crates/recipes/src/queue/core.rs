//! State shared by the clones of a handle, and the creation of a queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::retry::retry_anywhere;
use lockkeeper_client::{
    Client, CreateMode, Error, ErrorCode, OpResult, SessionId, Transaction, TransactionError,
    ZnodePath,
};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::for_recipes::{TurnQueue, owner_data};

use crate::exact::shared_write::lock;
use crate::exact::{SessionOwned, created_name};
use crate::last_time::LastTime;
use crate::queue::bound::{Bound, Room};
use crate::queue::claim::{Claim, ClaimAnswer, ClaimWrite};
use crate::queue::clock::ServerClock;
use crate::queue::commit::{Committed, Committer, nothing};
use crate::queue::error::QueueError;
use crate::queue::lanes::{Lane, PLAIN, Segment, last_of};
use crate::queue::layout::{Entry, Header, QueueMark, QueueNodes, SEGMENT_ENTRIES};
use crate::queue::options::Backoff;
use crate::queue::picks::PickList;

/// The default maximum number of takes of an item.
const DEFAULT_MAX_TRIES: u32 = 16;

/// The number of lanes whose last segment is remembered.
const MAX_KNOWN_LANES: usize = 256;

/// The options of a handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) most_tries: Option<u32>,
    pub(super) max_run: Option<Duration>,
    pub(super) strictly: bool,
    /// How many items of a kind are worked on at the same time.
    pub(super) limits: BTreeMap<String, u32>,
    pub(super) bound: Option<Bound>,
    /// The size of a part of a long value, in bytes, if not the default.
    pub(super) part: Option<usize>,
    pub(super) backoff: Option<Backoff>,
    /// Whether items behind a retried item of the same key may pass it.
    pub(super) retries_pass: bool,
    pub(super) label: Option<String>,
}

/// A queue, as the clones of a handle use it.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) places: QueueNodes,
    pub(super) options: Options,
    /// This program, as shown with its items.
    pub(super) owner: OwnerInfo,
    /// The data of an entry that it takes.
    pub(super) header: Bytes,
    pub(super) line: TurnQueue,
    committer: Arc<Committer<Claim>>,
    /// Whether the queue is known to exist.
    is_known: AtomicBool,
    /// The segments that get new entries, if known.
    last_segments: std::sync::Mutex<BTreeMap<Lane, Segment>>,
    /// Held while a full segment is closed.
    closing: tokio::sync::Mutex<()>,
    pub(super) clock: ServerClock,
    pub(super) room: Room,
    /// When abandoned answers and long values were last cleaned up.
    pub(super) answers_swept: LastTime,
    pub(super) parts_swept: LastTime,
    /// The node of this consumer.
    worker: tokio::sync::Mutex<WorkerNode>,
    pub(super) picks: std::sync::Mutex<PickList>,
    /// The segments as last listed. The owner of the lock lists; the others wait for the result.
    pub(super) segments: tokio::sync::Mutex<Vec<Segment>>,
}

impl Core {
    pub(super) fn new(
        client: Client,
        places: QueueNodes,
        markers: ZnodePath,
        options: Options,
    ) -> Arc<Self> {
        let owner = OwnerInfo::current(options.label.clone());
        let room = Room::new(&client, &places);
        Arc::new(Self {
            header: Header { holder: Some(owner.clone()), reason: None }.to_data(),
            owner,
            line: TurnQueue::new(&client, places.line.clone()),
            committer: Arc::new(Committer::new(&client, markers, places.entries.clone())),
            client,
            places,
            options,
            is_known: AtomicBool::new(false),
            last_segments: std::sync::Mutex::default(),
            closing: tokio::sync::Mutex::default(),
            clock: ServerClock::default(),
            room,
            answers_swept: LastTime::default(),
            parts_swept: LastTime::default(),
            worker: tokio::sync::Mutex::default(),
            picks: std::sync::Mutex::default(),
            segments: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &ZnodePath {
        &self.places.path
    }

    /// A claim that is about to be made, with this data. `is_name_shared`: whether other nodes can have the same
    /// name.
    pub(super) fn new_claim(&self, node: ZnodePath, mark: Bytes, is_name_shared: bool) -> Claim {
        Claim::new(&self.committer, node, mark, is_name_shared)
    }

    /// Makes a write, combined with others that arrive at the same time.
    pub(super) async fn commit(&self, write: ClaimWrite) -> ClaimAnswer {
        let asked = self.client.now();
        let written = self.committer.commit(write).await;
        if let Ok(Committed { at_unix_ms: Some(at), .. }) = &written {
            self.clock.learn(*at, asked, self.client.now());
        }
        written
    }

    /// A write that has only steps.
    pub(super) async fn write(&self, steps: Transaction) -> ClaimAnswer {
        self.commit(ClaimWrite::new(steps)).await
    }

    /// A write in this session only.
    pub(super) async fn write_in_session(
        &self,
        steps: Transaction,
        session: SessionId,
    ) -> ClaimAnswer {
        self.committer.commit_alone(ClaimWrite::new(steps), Some(session)).await
    }

    /// The maximum number of takes of an item.
    pub(super) fn most_tries(&self) -> u32 {
        self.options.most_tries.unwrap_or(DEFAULT_MAX_TRIES)
    }

    /// Returns when a failed read may be repeated, with the next session if the last one has ended.
    pub(super) async fn again(&self, error: Error) -> Result<(), QueueError> {
        retry_anywhere(error).await.map_err(|error| QueueError::read(self.path(), error))
    }

    /// Ensures that the queue exists, by a read before the first use of the handle.
    pub(super) async fn ensure_open(&self) -> Result<(), QueueError> {
        match self.is_known.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.open().await,
        }
    }

    /// Reads whether the queue exists, and creates it if it never did. Call it when a node of the queue is missing.
    ///
    /// # Errors
    /// [`QueueError::Deleted`] if the queue existed before; [`QueueError::Foreign`] if the path has other data.
    pub(super) async fn open(&self) -> Result<(), QueueError> {
        if !self.layout().is_own() {
            return self.open_peers().await;
        }
        loop {
            match self.mark().await? {
                Some(mark) if mark.is_going => return Err(self.deleted()),
                Some(_) => {
                    self.opened();
                    return Ok(());
                }
                None if self.is_known.load(Ordering::Acquire) => return Err(self.deleted()),
                None => self.make().await?,
            }
        }
    }

    /// The queue is known to exist.
    pub(super) fn opened(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// The queue is gone. The next use of the handle may create it again.
    pub(super) fn deleted(&self) -> QueueError {
        self.is_known.store(false, Ordering::Release);
        lock(&self.last_segments).clear();
        QueueError::Deleted { path: self.path().clone() }
    }

    /// Creates the nodes of the queue, unless another program is faster.
    async fn make(&self) -> Result<(), QueueError> {
        let QueueNodes { path, entries, bodies, claims, busy, workers, dead, .. } = &self.places;
        let QueueNodes { answers, ids, slots, parts, .. } = &self.places;
        let first = self.places.segment(Segment::first_of(PLAIN));
        let made =
            [entries, &first, bodies, claims, busy, workers, dead, answers, ids, slots, parts];
        let steps = self.client.transaction();
        let steps = steps.create(path, QueueMark::new(false).to_data(), CreateMode::Persistent);
        let steps = made
            .into_iter()
            .fold(steps, |steps, node| steps.create(node, nothing(), CreateMode::Persistent));

        match steps.commit().await {
            Ok(_) => Ok(()),
            Err(TransactionError::Failed { code: ErrorCode::NodeExists, index: 0, .. }) => Ok(()),
            Err(TransactionError::Failed { code: ErrorCode::NoNode, index: 0, .. }) => {
                let Some(parent) = path.parent() else { return Ok(()) };
                match self.client.ensure(&parent, CreateMode::Container).await {
                    Ok(()) => Ok(()),
                    Err(error) => self.again(error).await,
                }
            }
            Err(TransactionError::Request(error)) => self.again(error).await,
            Err(source) => Err(QueueError::Refused { path: path.clone(), source }),
        }
    }

    fn set_last_segment(&self, segment: Segment) {
        let mut last = lock(&self.last_segments);
        if last.len() >= MAX_KNOWN_LANES {
            last.clear();
        }
        last.insert(segment.lane, segment);
    }

    /// This segment does not get entries any more. A caller that has learned of its successor continues with that.
    fn forget_last_segment(&self, segment: Segment) {
        let mut last = lock(&self.last_segments);
        if last.get(&segment.lane) == Some(&segment) {
            last.remove(&segment.lane);
        }
    }

    fn known_last_segment(&self, lane: Lane) -> Option<Segment> {
        lock(&self.last_segments).get(&lane).copied()
    }

    /// The segment of a lane that gets new entries. Creates the lane if it is missing.
    pub(super) async fn last_segment(&self, lane: Lane) -> Result<Segment, QueueError> {
        self.ensure_open().await?;
        if let Some(known) = self.known_last_segment(lane) {
            return Ok(known);
        }
        loop {
            let Some(segments) = self.listed_segments().await? else {
                self.open().await?;
                continue;
            };
            if let Some(last) = last_of(&segments, lane) {
                self.set_last_segment(last);
                return Ok(last);
            }
            if lane == PLAIN {
                return Err(self.deleted());
            }
            let first = self.places.segment(Segment::first_of(lane));
            match self.client.create(&first, nothing(), CreateMode::Persistent).await {
                Ok(_) => {}
                Err(error) if error.code() == Some(ErrorCode::NodeExists) => {}
                Err(error) if error.code() == Some(ErrorCode::NoNode) => self.open().await?,
                Err(error) if error.code().is_some() => {
                    return Err(QueueError::Client { path: first, source: error });
                }
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// The check that this segment gets new entries has failed. Returns when another one may do.
    pub(super) async fn segment_is_closed(&self, segment: Segment) -> Result<(), QueueError> {
        self.forget_last_segment(segment);
        if self.known_last_segment(segment.lane).is_some() {
            return Ok(());
        }
        // Fails if the queue is being deleted.
        self.open().await?;
        if self.last_segment(segment.lane).await? == segment {
            self.open_after(segment, None).await;
        }
        Ok(())
    }

    /// Records the names of new entries; closes a full segment.
    pub(super) async fn note_entries(&self, segment: Segment, results: Option<&[OpResult]>) {
        let names = results.unwrap_or_default().iter().filter_map(created_name);
        let entries = names.filter_map(|name| Entry::read(segment, name));
        let has_share =
            entries.map(|entry| entry.number + 1).max().is_some_and(|it| it >= SEGMENT_ENTRIES);
        // One caller does it for all whose entries were put together.
        if has_share && let Ok(_closing) = self.closing.try_lock() {
            self.open_after(segment, Some(0)).await;
        }
    }

    /// Closes a segment, if its version is still this one, and creates the next. If it fails, the next entry tries
    /// again.
    async fn open_after(&self, segment: Segment, version: Option<i32>) {
        let (old, next) = (self.places.segment(segment), self.places.segment(segment.next()));
        let steps = self.client.transaction().set_data(&old, nothing(), version);
        let steps = steps.create(&next, nothing(), CreateMode::Persistent);
        match steps.commit().await {
            Ok(_) => self.set_last_segment(segment.next()),
            Err(_) => self.forget_last_segment(segment),
        }
    }

    /// The node of this consumer in the current session, created if missing: others notice the end of a consumer,
    /// and of its claims, by it.
    pub(super) async fn worker(&self) -> Result<Worker, QueueError> {
        if !self.layout().is_own() {
            self.ensure_open().await?;
            // Other layouts have no such nodes; the claims themselves show which consumers have gone.
            return Ok(Worker { node: self.path().clone(), session: self.client.session_id() });
        }
        let mut worker = self.worker.lock().await;
        let mut was_missing = false;
        loop {
            if let Some(present) = worker.present(&self.client) {
                return Ok(present);
            }
            worker.node = None;

            self.ensure_open().await?;
            let name = worker.next_name(&self.client);
            let node = self.places.workers.child(&name).expect("a plain name");
            let mut made = SessionOwned::new(&self.client, node);
            match made.create(owner_data(&self.owner)).await {
                Ok(()) => worker.node = Some(made),
                Err(error) if error.code() != Some(ErrorCode::NoNode) => self.again(error).await?,
                Err(_) if was_missing => return Err(self.deleted()),
                Err(_) => {
                    was_missing = true;
                    self.open().await?;
                }
            }
        }
    }

    /// The node, if it is known now.
    pub(super) fn known_worker(&self) -> Option<Worker> {
        self.worker.try_lock().ok()?.present(&self.client)
    }

    /// The node of this consumer is missing. Does nothing if a new one is being created.
    pub(super) fn forget_worker(&self, missing: &ZnodePath) {
        if let Ok(mut worker) = self.worker.try_lock() {
            drop(worker.node.take_if(|node| node.path() == missing));
        }
    }
}

lockkeeper_client::impl_debug!(Core, self => path: self.places.path);

/// The node of a consumer, with another name in each session.
#[derive(Debug, Default)]
struct WorkerNode {
    consumer: Option<String>,
    /// The number of nodes before it.
    number: u32,
    node: Option<SessionOwned>,
}

impl WorkerNode {
    /// The consumer in the current session, if it has a node.
    fn present(&self, client: &Client) -> Option<Worker> {
        let node = self.node.as_ref().filter(|node| node.session() == client.session_id())?;
        Some(Worker { node: node.path().clone(), session: node.session() })
    }

    /// Earlier nodes may still exist: the first part of the name identifies the consumer.
    fn next_name(&mut self, client: &Client) -> String {
        let new_id = || client.unique_id().simple().to_string();
        let name = format!("{}.{}", self.consumer.get_or_insert_with(new_id), self.number);
        self.number += 1;
        name
    }
}

/// A consumer in one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) node: ZnodePath,
    pub(super) session: SessionId,
}
