//! The thread that owns the tree.
//!
//! It also runs the sockets: its tokio runtime polls all of them, their tasks deliver the frames that they read, and
//! between two polls all delivered frames are handled in one round. So a request reaches the tree without waking
//! another thread. The thread waits for a sync only if that is short; see `commit`.

mod frames;
pub(crate) mod idle;
mod load_shedding;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockkeeper_tree::{CloseReason, ConnectionId, Growth, Now, Output, Resource, Server};
use lockkeeper_wire::SessionId;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use self::idle::IdleDetector;
pub(crate) use self::turns::Turns;
use crate::clock;
use crate::commit::{CommitBatch, Pipeline};
use crate::connection::Connection;
use crate::connection::budget::{Budget, CHECK_INTERVAL, Pressure};
use crate::connection::log_limiter::LogLimiter;
use crate::data_dir::succession::Succession;
use crate::error::EngineError;
use crate::metrics::Metrics;
use crate::metrics::ops::{Op, OpCounts};
use crate::settings::plan::IdleHook;
use crate::spin::{Arrivals, SpinPolicy};

/// The most deliveries of a round, so that the first of them is not delayed.
const MAX_ROUND: usize = 1024;
/// The number of requests after which a round hands over its effects so far: clients continue while the
/// rest is handled, and the next commit begins. Smaller parts cost more in writes than they gain.
const BATCH_REQUESTS: usize = 128;
/// The number of bytes of requests and replies after which a round hands over its effects as well: the listings of a
/// long queue are long, and a buffer should not grow to a hundred of them.
const BATCH_BYTES: usize = 256 * 1024;
/// How long expiry pauses after the engine has not listened for a while.
const EXPIRY_PAUSE: Duration = Duration::from_millis(100);
/// A longer wait for the disk is a stall.
const STALL_THRESHOLD: Duration = Duration::from_millis(10);
/// The number of simultaneously expiring sessions up to which each is logged.
const LOGGED_EXPIRIES: usize = 64;

/// An event for the tree thread.
pub(crate) enum Event {
    /// A new connection with its first frame, the handshake.
    Connected(Arc<Connection>, Bytes),
    /// The frames that one read of a connection completed.
    Frames(ConnectionId, Vec<Bytes>),
    Disconnected(ConnectionId),
    /// A client that is held back has read some of its replies.
    Taken(ConnectionId),
    /// The growth that is allowed from now on, as far as this resource is concerned.
    Growth(Resource, Growth),
    /// The process uses much memory, some of which may be free.
    Recycle,
    /// A test expires a session.
    Expire(SessionId, oneshot::Sender<bool>),
    /// An operator's query that only this thread can answer.
    Inspect(Box<dyn FnOnce(&TreeLoop) + Send>),
    /// A test advances the time.
    Skip(Duration, oneshot::Sender<()>),
    /// A test closes all connections.
    DropConnections(oneshot::Sender<()>),
    /// The owner of the engine stops it.
    Stop,
    /// The data directory, or a file in it, no longer belongs to the engine.
    Deprived(EngineError),
    /// The commit thread has ended: in order, with an error, or by a panic.
    CommitEnded(Result<(), EngineError>),
}

/// The end of this thread ends everything: even after a panic, no reply may be sent, and the commit thread must release
/// the data directory.
impl Drop for TreeLoop {
    fn drop(&mut self) {
        self.pipeline.abort();
    }
}

/// The tree and the other state of its thread.
pub(crate) struct TreeLoop {
    pub(crate) server: Server,
    pub(crate) succession: Succession,
    pub(crate) connections: HashMap<ConnectionId, Arc<Connection>>,
    pub(crate) events: UnboundedReceiver<Event>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) metrics: Arc<Metrics>,
    /// The requests whose effects have not been handed over.
    pub(crate) ops: OpCounts,
    pub(crate) log_limiter: Arc<LogLimiter>,
    /// The time that tests have skipped.
    pub(crate) skipped: Duration,
    /// No session expires before this time.
    pub(crate) no_expiry_before: Duration,
    /// Whether the last round came so soon that polling for the next one is worthwhile.
    pub(crate) spins_next: bool,
    pub(crate) arrivals: Arrivals,
    pub(crate) spin: Arc<SpinPolicy>,
    /// Frames that wait for their turn.
    pub(crate) turns: Turns,
    pub(crate) budget: Arc<Budget>,
    /// When connections were last checked for excessive memory.
    pub(crate) shed_at: Instant,
    /// The number of handled requests whose effects have not been handed over.
    pub(crate) batch_requests: usize,
    /// The bytes of these requests.
    pub(crate) batch_bytes: usize,
    /// Whether the replies of a part of this round wait for the disk.
    pub(crate) batch_waits: bool,
    pub(crate) idle: IdleDetector,
    /// The embedding program's action for returning memory.
    pub(crate) idle_hook: Option<IdleHook>,
    /// The result of the engine, once it is known.
    pub(crate) ending: Option<Result<(), EngineError>>,
}

impl TreeLoop {
    /// Runs until [`Event::Stop`] or a failure. After a stop, the last round is in the pipeline.
    pub(crate) async fn run(&mut self) -> Result<(), EngineError> {
        let mut round = Vec::with_capacity(MAX_ROUND);
        loop {
            self.wait(&mut round).await;

            let now = self.now();
            let due = self.is_due(now);
            if due {
                self.catch_up(&mut round).await;
            }
            self.handle(&mut round, due);
            self.shed_load();

            if let Some(ending) = self.ending.take() {
                return ending;
            }

            if self.idle.has_begun(now.monotonic) {
                round = Vec::new();
                self.recycle_memory();
            }
        }
    }

    /// Returns the memory of a load to the system: after the load, or because memory is short.
    fn recycle_memory(&mut self) {
        self.server.shrink();
        self.connections.shrink_to(2 * self.connections.len());
        self.pipeline.recycle_thread();
        if let Some(hook) = &self.idle_hook {
            hook.act();
        }
    }

    /// The time for the tree: ahead of the real time if a test has skipped some.
    fn now(&self) -> Now {
        let now = clock::now();
        let skipped_ms = i64::try_from(self.skipped.as_millis()).unwrap_or(i64::MAX);
        Now {
            monotonic: now.monotonic.saturating_add(self.skipped),
            unix_ms: now.unix_ms.saturating_add(skipped_ms),
        }
    }

    /// Waits for deliveries, or until something is due.
    async fn wait(&mut self, round: &mut Vec<Event>) {
        if self.turns.is_anyone_ready() && !self.pipeline.is_behind() {
            return self.poll_sockets(round).await;
        }
        let since = Instant::now();
        if self.spins_next && self.spin_for_requests(round, since).await {
            return;
        }
        let released = self.sleep(round).await;
        self.spins_next = released || since.elapsed() < self.arrivals.spin_time(&self.spin);
    }

    /// Polls the sockets for a moment; returns whether there was a delivery.
    async fn spin_for_requests(&mut self, round: &mut Vec<Event>, since: Instant) -> bool {
        let patience = self.arrivals.spin_time(&self.spin);
        while since.elapsed() < patience {
            yield_now().await;
            self.receive(round);
            if !round.is_empty() {
                return true;
            }
            self.spin.polled();
        }
        false
    }

    /// Takes the delivered events.
    fn receive(&mut self, round: &mut Vec<Event>) {
        while round.len() < MAX_ROUND
            && let Ok(event) = self.events.try_recv()
        {
            round.push(event);
        }
    }

    /// Sleeps until there is a delivery, or something is due; returns whether it was woken because replies were sent. A
    /// client may send its next request at once, and this thread should be awake by then.
    async fn sleep(&mut self, round: &mut Vec<Event>) -> bool {
        let delay = self.delay(self.now());
        let pipeline = self.pipeline.clone();
        let spins = !self.arrivals.spin_time(&self.spin).is_zero();
        // Turns wait until the disk has caught up, and timeouts until the last batch of them is committed.
        let waits_for_disk = self.turns.is_anyone_ready() || self.pipeline.has_timeouts();
        tokio::select! {
            biased;
            // After a timeout, the round is empty.
            _ = tokio::time::timeout(delay, self.events.recv_many(round, MAX_ROUND)) => false,
            () = pipeline.released(), if spins || waits_for_disk => spins,
        }
    }

    /// The runtime's timer stops while the machine is suspended, so it is never set to a long time.
    fn delay(&self, now: Now) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        if self.pipeline.is_full() {
            return EXPIRY_PAUSE;
        }
        if self.turns.is_anyone_held() || self.budget.pressure() != Pressure::None {
            return CHECK_INTERVAL;
        }
        if self.pipeline.has_timeouts() {
            // The next timeout may already be due; it is handled when the disk has caught up.
            return LONGEST;
        }
        let next = self.server.next_timeout();
        let next = next.map(|at| at.max(self.no_expiry_before).saturating_sub(now.monotonic));
        next.map_or(LONGEST, |delay| delay.min(LONGEST))
    }

    /// Whether timeouts are due. False while the engine does not read requests, since it then cannot know which
    /// sessions are silent.
    fn is_due(&mut self, now: Now) -> bool {
        if self.pipeline.is_full() {
            self.no_expiry_before = now.monotonic + EXPIRY_PAUSE;
        }
        if self.pipeline.has_timeouts() {
            return false;
        }
        let next = self.server.next_timeout();
        now.monotonic >= self.no_expiry_before && next.is_some_and(|at| at <= now.monotonic)
    }

    /// Lets the connections deliver everything that has already arrived. If this thread was delayed (by the scheduler,
    /// a suspended machine, a long round), sockets may contain unread pings, and their sessions must not expire.
    async fn catch_up(&mut self, round: &mut Vec<Event>) {
        loop {
            let before = round.len();
            // After one yield, the sockets were polled and the tasks of the ready ones have run. A connection that was
            // accepted then reads its socket for the first time after another yield.
            yield_now().await;
            yield_now().await;
            while let Ok(event) = self.events.try_recv() {
                round.push(event);
            }
            if round.len() == before || round.len() > 16 * MAX_ROUND {
                return;
            }
        }
    }

    /// Runs a round: handles all deliveries, then what is due, and hands the effects to the commit.
    fn handle(&mut self, round: &mut Vec<Event>, due: bool) {
        let since = Instant::now();
        // Later than the arrival of every event in this round, so that every deadline counted from it is at least a
        // timeout after the arrival.
        let now = self.now();

        for event in round.drain(..) {
            self.handle_event(now, since, event);
        }
        self.take_turns(now, since);
        if due {
            self.hear_those_who_wait(now);
            self.handle_timeout(now);
        }

        self.hand_over(since, due);
        let batch_waits = std::mem::take(&mut self.batch_waits);
        self.arrivals.end_round(!batch_waits);
    }

    fn handle_event(&mut self, now: Now, since: Instant, event: Event) {
        match event {
            Event::Connected(connection, _) if self.ending.is_some() => connection.cut(),
            Event::Connected(connection, handshake) => {
                self.handle_connected(now, connection, handshake);
            }
            Event::Frames(id, frames) => self.take_frames(now, since, id, frames),
            Event::Growth(resource, growth) => self.handle_growth(resource, growth),
            Event::Recycle => self.recycle_memory(),
            Event::Taken(id) => self.taken(now, id),
            Event::Disconnected(id) => self.handle_disconnected(id),

            Event::Expire(session, done) => {
                // The caller may be gone.
                let _ = done.send(self.server.expire_session(now, session));
            }
            Event::Inspect(inspect) => inspect(self),
            Event::Skip(time, done) => {
                self.skipped = self.skipped.saturating_add(time);
                let _ = done.send(());
            }
            Event::DropConnections(done) => {
                self.connections.values().for_each(|c| c.cut());
                let _ = done.send(());
            }

            Event::Stop => {
                // At once, before later events of this round: a client that gets a reply now would assume that the
                // server continues. The connections close with the last commit's replies rather than at the very end,
                // because releasing the data directory may take time.
                self.server.close_connections();
                // A failure in the same round takes precedence, because then nothing can be waited for.
                self.ending.get_or_insert(Ok(()));
            }
            Event::Deprived(reason) => self.ending = Some(Err(reason)),
            Event::CommitEnded(result) => {
                self.ending = Some(result.and(Err(EngineError::Panicked)));
            }
        }
    }

    fn handle_growth(&mut self, resource: Resource, growth: Growth) {
        self.server.set_growth(resource, growth);
        if resource == Resource::Memory {
            self.budget.set_short(growth != Growth::All);
        }
    }

    fn handle_connected(&mut self, now: Now, connection: Arc<Connection>, handshake: Bytes) {
        self.metrics.counters.handshakes.add(1);
        self.metrics.received(1, handshake.len());

        let (id, ip) = (connection.id, connection.peer.ip());
        match connection.subject.clone() {
            None => self.server.connected(id, ip),
            Some(subject) => self.server.connected_with_certificate(id, ip, subject),
        }
        if connection.is_kept {
            self.server.only_resumes(id);
        }
        self.connections.insert(id, connection);
        self.server.handle_frame(now, id, handshake);
    }

    fn handle_disconnected(&mut self, id: ConnectionId) {
        self.metrics.counters.dropped.add(1);
        self.idle.count(1);
        self.server.disconnected(id);
        self.connections.remove(&id);
        self.turns.forget(id);
    }

    /// Hands the effects of a round, or of a part of it, to the pipeline.
    fn hand_over(&mut self, since: Instant, timeouts: bool) {
        (self.batch_requests, self.batch_bytes) = (0, 0);
        let covered = match self.succession.cover(&self.server) {
            Ok(covered) => covered,
            Err(e) => {
                // No further reply may be sent: the next engine would not know of it.
                self.ending = Some(Err(e.into()));
                return;
            }
        };

        let changes = self.server.take_changes();
        self.idle.count(changes.len());
        let mut replies = Vec::new();
        for (id, output) in self.server.take_outputs() {
            // A connection that is gone gets no replies.
            if let Some(connection) = self.connections.get(&id) {
                if is_auth_failure(&output) {
                    self.metrics.counters.auth_failed.add(1);
                }
                // The listener accepted it because it could have had a session.
                if matches!(output, Output::Close(CloseReason::PlacesKept)) {
                    self.metrics.counters.rejected.add(1);
                }
                connection.owe(&output);
                replies.push((connection.clone(), output));
            }
        }

        let stats = self.server.stats();
        self.budget.set_watches(stats.watch_bytes);
        self.budget.set_identities(stats.identity_bytes);
        self.server.set_event_room(self.budget.room());
        self.metrics.observe(stats);

        let ops = std::mem::take(&mut self.ops);
        let submitted = Instant::now();
        let answered = self.pipeline.submit(CommitBatch { changes, replies, ops, timeouts, since });
        self.batch_waits |= !answered;
        self.pause_expiry_after(covered + submitted.elapsed());
        self.log_notices();
    }

    /// Pauses expiry for a moment if this thread has waited for a stalled disk: clients that reconnected in the
    /// meantime have yet to be heard. It never pauses twice in a row: a disk that stalls repeatedly would keep the
    /// sessions of dead clients alive.
    fn pause_expiry_after(&mut self, wait: Duration) {
        if wait < STALL_THRESHOLD {
            return;
        }
        let now = self.now().monotonic;
        if now.saturating_sub(wait) >= self.no_expiry_before {
            self.no_expiry_before = now + EXPIRY_PAUSE;
        }
    }

    fn count(&mut self, id: ConnectionId, frames: &[Bytes]) {
        self.metrics.received(frames.len(), frames.iter().map(Bytes::len).sum());
        self.idle.count(frames.len());
        if let (Some(last), Some(connection)) = (frames.last(), self.connections.get(&id)) {
            connection.received(frames.len(), Op::of_frame(last));
        }
    }

    fn log_notices(&mut self) {
        for notice in self.server.take_notices() {
            let peer = notice.connection().and_then(|id| self.connections.get(&id));
            self.log_limiter.warn(notice.kind(), peer.map(|connection| connection.peer), &notice);
        }
    }

    /// Keeps alive the sessions of connections whose requests wait for a turn. The engine may not read these connections
    /// while others have long turns, so their sessions only seem silent. A connection that is held back does not
    /// count: its client must read replies, unless the disk delays them.
    fn hear_those_who_wait(&mut self, now: Now) {
        let is_behind = self.pipeline.is_behind();
        for id in self.turns.waiting() {
            if is_behind || !self.turns.is_held(id) {
                self.server.heard_of(now, id);
            }
        }
    }

    /// Handles what is due, and logs the sessions that end.
    fn handle_timeout(&mut self, now: Now) {
        let expired = self.server.handle_timeout(now);
        self.metrics.counters.expired.add(expired.len() as u64);

        if expired.len() > LOGGED_EXPIRIES {
            // Ten thousand log lines would delay the live clients.
            return tracing::info!(
                count = expired.len(),
                "sessions expired: their clients were silent for the session timeouts"
            );
        }

        for session in expired {
            tracing::info!(
                session = %session.id,
                timeout_ms = session.timeout.as_millis(),
                ephemerals = session.ephemerals,
                "session expired: its client was silent for the session timeout"
            );
        }
    }

    /// After the last round: waits for the commit thread while the sockets continue to work.
    pub(crate) async fn finish(&mut self) -> Result<(), EngineError> {
        self.pipeline.finish();
        loop {
            match self.events.recv().await {
                Some(Event::CommitEnded(result)) => return result,
                Some(Event::Connected(connection, _)) => connection.cut(),
                Some(_) => {}
                None => return Err(EngineError::Panicked),
            }
        }
    }

    /// Records the state for the next engine, when no reply will follow.
    pub(crate) fn leave(&mut self) -> Result<(), EngineError> {
        Ok(self.succession.end(&self.server)?)
    }

    /// Closes the remaining connections: those whose clients did not read the last replies.
    pub(crate) fn close_connections(&mut self) {
        for (_, connection) in self.connections.drain() {
            connection.flush();
            connection.cut();
        }
    }
}

fn is_auth_failure(output: &Output) -> bool {
    use CloseReason::{AuthFailed, IdentitiesTooLong, TooManyIdentities, WrongPassword};
    matches!(
        output,
        Output::Close(
            AuthFailed | TooManyIdentities { .. } | IdentitiesTooLong { .. } | WrongPassword { .. }
        )
    )
}

#[cfg(test)]
mod tests;
