//! Reads what the view needs, and publishes snapshots.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::horizon::Horizon;
use lockkeeper_client::retry::{self, Backoff};
use lockkeeper_client::{
    AddWatchMode, Arrival, Arrived, Client, DirtyPaths, Error, ErrorCode, EventKind, Instant,
    Listing, MAX_SKIPPED_REPLY, PathRequest, ReadOp, ReadResult, Rearms, Reply, Stat, ZnodePath,
    Zxid,
};

use crate::watch::batches::Batches;
use crate::watch::error::CacheError;
use crate::watch::published::Published;
use crate::watch::snapshot::{CachedNode, Snapshot};
use crate::watch::view::{Read, ReadKind, ReadOutcome, Scope, View};

/// The maximum number of reads in flight.
const MAX_IN_FLIGHT: usize = 256;

/// How many connections in a row may be lost while the first watch is set.
const WATCH_TRIES: u32 = 3;

/// The pauses between reads of nodes that may not be read.
const FIRST_REREAD_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_REREAD_PAUSE: Duration = Duration::from_secs(30);

/// Reads in flight, in one request.
#[derive(Debug)]
struct Pending {
    reads: Vec<Read>,
    sent: Instant,
    reply: PendingReply,
}

#[derive(Debug)]
enum PendingReply {
    Data(Reply<(Bytes, Stat)>),
    List(Reply<Listing>),
    Batch(Reply<Vec<ReadResult>>),
}

/// The answer to a request: the result of each read. A read with `None` is repeated alone, to learn the reason.
struct Answer {
    result: Result<Vec<Option<ReadOutcome>>, Error>,
    arrival: Arrival,
    zxid: Zxid,
}

impl PendingReply {
    async fn arrived(&mut self) -> Answer {
        match self {
            Self::Data(reply) => answer(reply.arrived().await, |(data, stat)| {
                vec![Some(ReadOutcome::Data(CachedNode::new(&data, stat)))]
            }),
            Self::List(reply) => {
                answer(reply.arrived().await, |(names, _)| vec![Some(ReadOutcome::Names(names))])
            }
            Self::Batch(reply) => answer(reply.arrived().await, |results| {
                results.into_iter().map(found_together).collect()
            }),
        }
    }
}

fn answer<T>(arrived: Arrived<T>, found: impl FnOnce(T) -> Vec<Option<ReadOutcome>>) -> Answer {
    let (arrival, zxid) = (arrived.arrival, arrived.zxid);
    let result = match arrived.result {
        Err(error) if error.code() == Some(ErrorCode::NoNode) => {
            Ok(vec![Some(ReadOutcome::Nothing)])
        }
        result => result.map(found),
    };
    Answer { result, arrival, zxid }
}

fn found_together(result: ReadResult) -> Option<ReadOutcome> {
    match result {
        ReadResult::Data { data, stat } => Some(ReadOutcome::Data(CachedNode::new(&data, stat))),
        ReadResult::Children(names) => Some(ReadOutcome::Names(names)),
        ReadResult::Error(ErrorCode::NoNode) => Some(ReadOutcome::Nothing),
        ReadResult::Error(_) => None,
    }
}

/// Why the current watch is not used any more.
enum Stop {
    /// The watch is gone; set another one.
    Rewatch,
    Ended(CacheError),
}

impl From<CacheError> for Stop {
    fn from(error: CacheError) -> Self {
        Self::Ended(error)
    }
}

/// What the next reads wait for.
#[derive(Debug, Default)]
enum ReadDelay {
    #[default]
    None,
    /// A server refused reads, or lags: wait a moment.
    Refusal,
    /// No server was reachable for a session timeout: wait until one is.
    Outage,
}

/// Keeps a view up to date.
#[derive(Debug)]
pub(crate) struct Follower {
    client: Client,
    root: ZnodePath,
    each_node: bool,
    view: View,
    paths: DirtyPaths,
    batches: Batches,
    in_flight: VecDeque<Pending>,
    /// The number of reads in flight.
    reading: usize,
    /// `None` until the first snapshot is complete.
    shared: Option<Arc<Published>>,
    hindrance: ReadDelay,
    /// When to read nodes again that may not be read, and after which pause.
    next_reread: Option<tokio::time::Instant>,
    look_pause: Duration,
}

/// Readers are notified however the task ends.
impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.end(CacheError::Stopped { path: self.root.clone() });
        }
    }
}

impl Follower {
    /// Sets the watch and reads everything.
    ///
    /// # Errors
    /// If no complete snapshot can be read.
    pub(crate) async fn open(
        client: Client,
        scope: Scope,
        each_node: bool,
    ) -> Result<(Self, Arc<Published>), CacheError> {
        let root = ZnodePath::new(&scope.root)?;
        let (paths, reply) = client.watch_paths(&root, AddWatchMode::PersistentRecursive);
        let batches = Batches::new(scope.max_frame);
        let (view, in_flight, reading) = (View::new(scope), VecDeque::new(), 0);
        let mut follower = Self {
            client,
            root,
            each_node,
            view,
            paths,
            batches,
            in_flight,
            reading,
            shared: None,
            hindrance: ReadDelay::None,
            next_reread: None,
            look_pause: FIRST_REREAD_PAUSE,
        };
        follower.first_watch(reply).await?;

        loop {
            if let Some(shared) = &follower.shared {
                let shared = Arc::clone(shared);
                return Ok((follower, shared));
            }
            match follower.step().await {
                Ok(()) => {}
                Err(Stop::Rewatch) => follower.rewatch().await?,
                Err(Stop::Ended(error)) => return Err(error),
            }
        }
    }

    /// Waits until the watch is set for the first time, with the first reads pipelined behind it.
    async fn first_watch(&mut self, mut reply: Reply<()>) -> Result<(), CacheError> {
        let mut losses = 0;
        loop {
            self.send_reads()?;
            let arrived = reply.arrived().await;
            match arrived.result {
                Ok(()) => {
                    self.view.watched(Rearms::once(arrived.arrival));
                    return Ok(());
                }
                Err(error) if error.is_unreachable() || !may_succeed_later(&error) => {
                    return Err(error.into());
                }
                Err(error) => {
                    losses += u32::from(error.code().is_none() && !error.is_session_expired())
                }
            }
            if losses == WATCH_TRIES {
                return Err(CacheError::NoWatch { path: self.root.to_string(), tries: losses });
            }

            // The reads may have been answered on a connection without the watch.
            self.abandon_reads();
            retry::pause().await;
            let mode = AddWatchMode::PersistentRecursive;
            (self.paths, reply) = self.client.watch_paths(&self.root, mode);
        }
    }

    /// Follows the tree until it exceeds a bound or the client is closed.
    pub(crate) async fn run(mut self) {
        let reason = loop {
            match self.step().await {
                Ok(()) => {}
                Err(Stop::Rewatch) => {
                    if let Err(error) = self.rewatch().await {
                        break error;
                    }
                }
                Err(Stop::Ended(error)) => break error,
            }
        };

        if let Some(shared) = &self.shared {
            shared.end(reason);
        }
    }

    /// Handles one answer, or the events of the watch.
    async fn step(&mut self) -> Result<(), Stop> {
        match std::mem::take(&mut self.hindrance) {
            ReadDelay::None => {}
            ReadDelay::Refusal => retry::pause().await,
            ReadDelay::Outage => retry::reachable(&self.client).await,
        }
        self.send_reads()?;

        let next_reread = self.next_reread();
        tokio::select! {
            // Answers first: an event after an answer belongs to the next snapshot.
            biased;
            (reads, sent, answer) = next_answer(&mut self.in_flight) => {
                self.in_flight.pop_front();
                self.reading -= reads.len();
                self.take_paths()?;
                self.settle(reads, sent, answer)
            }
            () = self.paths.changed() => self.take_paths(),
            () = tokio::time::sleep_until(next_reread.unwrap_or_else(tokio::time::Instant::now)),
                if next_reread.is_some() =>
            {
                self.view.look_again();
                (self.next_reread, self.look_pause) = (None, (self.look_pause * 2).min(LONGEST_REREAD_PAUSE));
                Ok(())
            }
        }
    }

    /// When to read nodes again that may not be read, if any.
    fn next_reread(&mut self) -> Option<tokio::time::Instant> {
        if self.view.unreadable().is_empty() {
            (self.next_reread, self.look_pause) = (None, FIRST_REREAD_PAUSE);
            return None;
        }
        let later = || tokio::time::Instant::now() + self.look_pause;
        Some(*self.next_reread.get_or_insert_with(later))
    }

    fn send_reads(&mut self) -> Result<(), CacheError> {
        // Sends only when a whole batch has room: otherwise batches would stay small.
        while self.reading + self.batches.most() <= MAX_IN_FLIGHT
            && let Some(reads) = self.batches.next(&mut self.view)
        {
            let reply = match &reads[..] {
                [read] => self.send_read(read)?,
                reads => {
                    let ops = reads.iter().map(|read| {
                        let request = PathRequest { path: read.path.to_string() };
                        match read.question {
                            ReadKind::Data => ReadOp::GetData(request),
                            ReadKind::List => ReadOp::GetChildren(request),
                        }
                    });
                    PendingReply::Batch(self.client.multi_read(ops.collect()))
                }
            };

            self.reading += reads.len();
            self.in_flight.push_back(Pending { reads, sent: self.client.now(), reply });
        }
        Ok(())
    }

    fn send_read(&self, read: &Read) -> Result<PendingReply, CacheError> {
        let path = ZnodePath::new(&read.path)?;
        Ok(match read.question {
            ReadKind::Data => PendingReply::Data(self.client.data(&path)),
            ReadKind::List => PendingReply::List(self.client.children(&path)),
        })
    }

    /// Drops all reads in flight.
    fn abandon_reads(&mut self) {
        self.in_flight.clear();
        self.reading = 0;
        self.batches.clear();
        self.view.abandon_reads();
    }

    /// Records the events of the watch.
    fn take_paths(&mut self) -> Result<(), Stop> {
        if self.paths.is_clean() {
            return Ok(());
        }
        if let Some(shared) = &self.shared {
            shared.unsynced(None);
        }

        let told = self.paths.take().map_err(|_| Stop::Rewatch)?;
        for dirty in told.paths {
            self.view.event(&dirty.path, dirty.kind, dirty.first, dirty.last);
        }

        if let Some(rearms) = told.rearmed {
            self.view.watched(rearms);
        }
        if let Some(shared) = &self.shared
            && self.view.is_clean()
        {
            // None of the events was about nodes in the cache.
            shared.synced();
        }
        Ok(())
    }

    fn settle(&mut self, reads: Vec<Read>, sent: Instant, answer: Answer) -> Result<(), Stop> {
        let Answer { result, arrival, zxid } = answer;
        let all_found = match result {
            Ok(all_found) if all_found.len() == reads.len() => all_found,
            Ok(_) => {
                self.batches.give_up(reads);
                return Ok(());
            }
            Err(error) => return self.settle_failure(reads, sent, error, (arrival, zxid)),
        };

        if reads.len() > 1 {
            self.batches.answered();
        }
        for (read, found) in reads.into_iter().zip(all_found) {
            let Some(found) = found else {
                self.batches.alone(read);
                continue;
            };
            if let ReadOutcome::Data(node) = &found {
                self.batches.found(node.data().len());
            }
            self.view.answer(&read, found, arrival, zxid)?;
        }
        self.publish(arrival, zxid, sent);
        Ok(())
    }

    /// Handles a request that failed as a whole.
    fn settle_failure(
        &mut self,
        reads: Vec<Read>,
        sent: Instant,
        error: Error,
        (arrival, zxid): (Arrival, Zxid),
    ) -> Result<(), Stop> {
        let is_batch = reads.len() > 1;
        match &reads[..] {
            _ if may_succeed_later(&error) => {}
            _ if is_batch && is_too_long(&error) => {
                self.batches.too_long(&reads, error.answer_too_long().map(|(len, _)| len));
                return Ok(());
            }
            [read] if is_unreadable(read, &error) && self.view.skips(&read.path) => {
                self.view.answer(read, ReadOutcome::Unreadable, arrival, zxid)?;
                self.publish(arrival, zxid, sent);
                return Ok(());
            }
            [read] => return Err(self.failure(read, error).into()),
            // Whatever the error is: unless it is due to the batch, each single read returns it too.
            _ => {
                self.batches.give_up(reads);
                return Ok(());
            }
        }

        // Without a server, the first snapshot cannot be read.
        if self.shared.is_none() && error.is_unreachable() {
            return Err(CacheError::from(error).into());
        }
        let is_lost = error.code().is_none() && !error.is_unreachable();
        self.hindrance = match error.is_unreachable() {
            true => ReadDelay::Outage,
            // On the next connection they are read at once.
            false if is_lost => ReadDelay::None,
            false => ReadDelay::Refusal,
        };
        if is_batch && is_lost && !error.is_session_expired() {
            self.batches.lost(sent, self.client.now());
        }
        for read in &reads {
            self.view.answer(read, ReadOutcome::NoAnswer, arrival, zxid)?;
        }
        Ok(())
    }

    /// The error of a read that failed permanently.
    fn failure(&self, read: &Read, error: Error) -> CacheError {
        let path = read.path.to_string();
        match read.question {
            _ if error.code() == Some(ErrorCode::NoAuth) => CacheError::Unreadable { path },
            ReadKind::List if is_too_long(&error) => {
                let children = self.view.tree().get(&path).map(|node| node.stat().num_children);
                let children = children.and_then(|children| usize::try_from(children).ok());
                CacheError::TooManyChildren { path, children: children.unwrap_or(0) }
            }
            _ => error.into(),
        }
    }

    /// Publishes the view if it equals the server's tree at the latest answer.
    fn publish(&mut self, arrival: Arrival, zxid: Zxid, sent: Instant) {
        let is_cut = self.view.is_cut(arrival);
        let is_due = is_cut || (self.each_node && self.shared.is_some());
        if !is_due || self.is_behind(arrival, zxid) {
            return;
        }

        let touched = self.view.take_touched();
        let is_clean = self.view.is_clean();
        let snapshot = Snapshot::new(self.view.tree().clone(), zxid, !self.each_node)
            .without(Arc::clone(self.view.unreadable()));
        match &self.shared {
            Some(_) if !is_cut && touched.is_empty() => {}
            Some(shared) => shared.publish(snapshot, sent, &touched, is_clean),
            None => {
                let (client, probe) = (self.client.clone(), self.paths.probe());
                let shared = Published::new(client, Arc::new(snapshot), sent, probe);
                if !is_clean {
                    shared.unsynced(None);
                }
                self.shared = Some(Arc::new(shared));
            }
        }
    }

    /// Whether the server lags behind the last snapshot, as the first one of a new session may. Its events report
    /// what it does to catch up, and an answer shows when it has.
    fn is_behind(&mut self, arrival: Arrival, zxid: Zxid) -> bool {
        let Some(shared) = &self.shared else { return false };
        if !Horizon::at(&self.client, zxid).is_behind(&self.client, shared.zxid()) {
            return false;
        }
        // The answer to the `sync` is ignored: the reads behind it are answered after it.
        drop(self.client.sync(&self.root));
        let next = arrival.next();
        self.view.event(self.root.as_str(), EventKind::NodeDataChanged, next, next);
        self.hindrance = ReadDelay::Refusal;
        true
    }

    /// Sets the watch again, in the next session or after a server refused it.
    async fn rewatch(&mut self) -> Result<(), CacheError> {
        self.abandon_reads();
        let mut backoff = Backoff::default();
        loop {
            let mode = AddWatchMode::PersistentRecursive;
            let (paths, mut reply) = self.client.watch_paths(&self.root, mode);

            // A lagging server catches up with its leader before it answers the reads.
            drop(self.client.sync(&self.root));
            let arrived = reply.arrived().await;

            match arrived.result {
                Ok(()) => {
                    if let Some(shared) = &self.shared {
                        shared.unsynced(Some(paths.probe()));
                    }
                    self.paths = paths;
                    self.view.watched(Rearms::once(arrived.arrival));
                    return Ok(());
                }
                Err(error) if error.is_unreachable() && self.shared.is_some() => {
                    retry::reachable(&self.client).await;
                }
                Err(error) if may_succeed_later(&error) && !error.is_unreachable() => {
                    backoff.pause().await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The answer to the oldest request: requests are answered in the order in which they were sent.
async fn next_answer(in_flight: &mut VecDeque<Pending>) -> (Vec<Read>, Instant, Answer) {
    match in_flight.front_mut() {
        Some(oldest) => {
            let answer = oldest.reply.arrived().await;
            (std::mem::take(&mut oldest.reads), oldest.sent, answer)
        }
        None => std::future::pending().await,
    }
}

/// Whether the same read may succeed later, in this session or the next.
fn may_succeed_later(error: &Error) -> bool {
    error.is_retryable() || error.is_session_expired()
}

/// Whether a node may not be read, or is too long. Excludes nodes so long that the connection is lost: each
/// connection would be lost when they are read.
fn is_unreadable(read: &Read, error: &Error) -> bool {
    let is_skipped = error.answer_too_long().is_none_or(|(len, _)| len <= MAX_SKIPPED_REPLY);
    error.code() == Some(ErrorCode::NoAuth)
        || read.question == ReadKind::Data && is_too_long(error) && is_skipped
}

/// Whether the answer exceeds the limit of the client or of the server.
fn is_too_long(error: &Error) -> bool {
    error.answer_too_long().is_some() || error.code() == Some(ErrorCode::MarshallingError)
}
