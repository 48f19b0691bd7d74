//! What the clones of a handle share, and how a queue comes into being.

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
use lockkeeper_locks::for_recipes::{Line, owner_data};

use crate::exact::SessionOwned;
use crate::exact::shared_write::lock;
use crate::queue::claim::{Claim, ClaimAnswer, ClaimWrite};
use crate::queue::commit::{Committer, created_name, nothing};
use crate::queue::error::QueueError;
use crate::queue::layout::{Entry, Header, Places, QueueMark, SEGMENT};
use crate::queue::picks::Picks;

/// How often an item is taken at most, unless a builder says otherwise.
const MOST_TRIES: u32 = 16;

/// What a handle was made with.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) most_tries: Option<u32>,
    pub(super) max_run: Option<Duration>,
    pub(super) strictly: bool,
    pub(super) label: Option<String>,
}

/// A queue, as the clones of a handle use it.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) places: Places,
    pub(super) options: Options,
    /// This program, as it is named where an item is looked at.
    pub(super) owner: OwnerInfo,
    /// The data of an entry that it takes.
    pub(super) header: Bytes,
    pub(super) line: Line,
    committer: Arc<Committer<Claim>>,
    /// Whether the queue was seen.
    is_known: AtomicBool,
    /// The segment that gets new entries, as far as it is known.
    last_segment: std::sync::Mutex<Option<u32>>,
    /// The node that says that this consumer is there.
    worker: tokio::sync::Mutex<WorkerNode>,
    pub(super) picks: std::sync::Mutex<Picks>,
    /// The segments as they were listed last. Who has it lists; the others wait for what is found.
    pub(super) segments: tokio::sync::Mutex<Vec<u32>>,
}

impl Core {
    pub(super) fn new(
        client: Client,
        places: Places,
        markers: ZnodePath,
        options: Options,
    ) -> Arc<Self> {
        let owner = OwnerInfo::current(options.label.clone());
        Arc::new(Self {
            header: Header { holder: Some(owner.clone()), reason: None }.to_data(),
            owner,
            line: Line::new(&client, places.line.clone()),
            committer: Arc::new(Committer::new(&client, markers, places.entries.clone())),
            client,
            places,
            options,
            is_known: AtomicBool::new(false),
            last_segment: std::sync::Mutex::default(),
            worker: tokio::sync::Mutex::default(),
            picks: std::sync::Mutex::default(),
            segments: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &ZnodePath {
        &self.places.path
    }

    /// A claim that is about to be made, with this data. `is_name_shared`: whether other nodes can have its name.
    pub(super) fn new_claim(&self, node: ZnodePath, mark: Bytes, is_name_shared: bool) -> Claim {
        Claim::new(&self.committer, node, mark, is_name_shared)
    }

    /// Makes a write, together with others that come meanwhile.
    pub(super) async fn commit(&self, write: ClaimWrite) -> ClaimAnswer {
        self.committer.commit(write).await
    }

    /// A write of steps alone.
    pub(super) async fn write(&self, steps: Transaction) -> ClaimAnswer {
        self.commit(ClaimWrite::new(steps)).await
    }

    /// A write that is for this session only.
    pub(super) async fn write_in_session(
        &self,
        steps: Transaction,
        session: SessionId,
    ) -> ClaimAnswer {
        self.committer.commit_alone(ClaimWrite::new(steps), Some(session)).await
    }

    /// How often an item is taken at most.
    pub(super) fn most_tries(&self) -> u32 {
        self.options.most_tries.unwrap_or(MOST_TRIES)
    }

    /// Returns when a read that failed may be made again, in the next session if need be.
    pub(super) async fn again(&self, error: Error) -> Result<(), QueueError> {
        retry_anywhere(error).await.map_err(|error| QueueError::read(self.path(), error))
    }

    /// Makes sure that there is a queue, by a look before the first use of the handle.
    pub(super) async fn ensure_open(&self) -> Result<(), QueueError> {
        match self.is_known.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.open().await,
        }
    }

    /// Looks whether there is a queue, and makes it if there never was one. To be called when a node of it is
    /// missing.
    ///
    /// # Errors
    /// [`QueueError::Deleted`] if it was there before; [`QueueError::Foreign`] if there is something else.
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

    /// It was seen.
    pub(super) fn opened(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// It is gone. The next use of the handle may make it anew.
    pub(super) fn deleted(&self) -> QueueError {
        self.is_known.store(false, Ordering::Release);
        self.set_last_segment(None);
        QueueError::Deleted { path: self.path().clone() }
    }

    /// Makes the nodes of the queue, unless somebody else is quicker.
    async fn make(&self) -> Result<(), QueueError> {
        let Places { path, entries, bodies, claims, workers, dead, .. } = &self.places;
        let first = self.places.segment(0);
        let made = [entries, &first, bodies, claims, workers, dead];
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

    pub(super) fn set_last_segment(&self, segment: Option<u32>) {
        *lock(&self.last_segment) = segment;
    }

    /// The segment that gets new entries.
    pub(super) async fn last_segment(&self) -> Result<u32, QueueError> {
        self.ensure_open().await?;
        let known = *lock(&self.last_segment);
        if let Some(known) = known {
            return Ok(known);
        }
        loop {
            match self.listed_segments().await? {
                Some(segments) => {
                    let last = segments.last().copied();
                    self.set_last_segment(last);
                    return last.ok_or_else(|| self.deleted());
                }
                None => self.open().await?,
            }
        }
    }

    /// The check of this segment has failed that it gets new entries. Returns when another one may do.
    pub(super) async fn segment_is_closed(&self, segment: u32) -> Result<(), QueueError> {
        self.set_last_segment(None);
        // Tells if the queue is going.
        self.open().await?;
        if self.last_segment().await? == segment {
            self.open_after(segment, None).await;
        }
        Ok(())
    }

    /// Notes what new entries were called; closes a segment that has its share.
    pub(super) async fn note_entries(&self, segment: u32, results: Option<&[OpResult]>) {
        let names = results.unwrap_or_default().iter().filter_map(created_name);
        let entries = names.filter_map(|name| Entry::read(segment, name));
        if entries.map(|entry| entry.number).max().is_some_and(|number| number + 1 >= SEGMENT) {
            self.open_after(segment, Some(0)).await;
        }
    }

    /// Closes a segment, whose version is this one until then, and makes the next. Whatever fails is tried
    /// again with the next entry.
    async fn open_after(&self, segment: u32, version: Option<i32>) {
        let (old, next) = (self.places.segment(segment), self.places.segment(segment + 1));
        let steps = self.client.transaction().set_data(&old, nothing(), version);
        let steps = steps.create(&next, nothing(), CreateMode::Persistent);
        let is_made = steps.commit().await.is_ok();
        self.set_last_segment(is_made.then_some(segment + 1));
    }

    /// The node of this consumer in the present session, which it makes if there is none: others see by it
    /// when a consumer has gone, and with it its claims.
    pub(super) async fn worker(&self) -> Result<Worker, QueueError> {
        if !self.layout().is_own() {
            self.ensure_open().await?;
            // Others have no such nodes; the claims tell by themselves who has gone.
            return Ok(Worker { node: self.path().clone(), session: self.client.session_id() });
        }
        let mut worker = self.worker.lock().await;
        let mut was_missing = false;
        loop {
            match &worker.node {
                Some(node) if node.session() == self.client.session_id() => {
                    return Ok(Worker { node: node.path().clone(), session: node.session() });
                }
                _ => worker.node = None,
            }

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

    /// The node of this consumer was found to be missing.
    pub(super) async fn forget_worker(&self, missing: &ZnodePath) {
        let mut worker = self.worker.lock().await;
        drop(worker.node.take_if(|node| node.path() == missing));
    }
}

lockkeeper_client::impl_debug!(Core, self => path: self.places.path);

/// The node of a consumer, under another name in each session.
#[derive(Debug, Default)]
struct WorkerNode {
    consumer: Option<String>,
    /// How many there were before.
    number: u32,
    node: Option<SessionOwned>,
}

impl WorkerNode {
    /// The former nodes may still be there: by its first part, all of them are one consumer.
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
