//! The engine's tree on a simulated machine: a disk that takes its time, and crashes that lose
//! what was not synced.
//!
//! The order is that of the engine: requests, changes, one sync for all waiting requests, and only then
//! the replies. The next requests are handled during the sync.
//!
//! In some runs it is the leader of an ensemble. Its followers then live here too: what one has passed on
//! is handled as if it had come from the client, and each request is a step of its own, so that followers
//! do one after the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_testkit::gate::Gate;
use lockkeeper_tree::{
    Changes, Config, ConnectionId, Entropy, Now, Output, Server, Table, Transactions,
};
use lockkeeper_wire::{MAX_FRAME, split_frame};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::followers::{Control, Follower, Forwarded};
use crate::network::{Arrival, Listener, Message};

/// What its wall clock shows at the start, in milliseconds since 1970, unless it is wrong.
const START_UNIX_MS: i64 = 1_700_000_000_000;

/// The clock of the server's machine starts here, so that earlier times can be represented.
const EPOCH: Duration = Duration::from_secs(100);

type Key = (Table, Bytes);

/// What a crash leaves.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    durable: BTreeMap<Key, Bytes>,
    /// What is being synced: it may be durable already, or not.
    syncing: Vec<Changes>,
}

impl Disk {
    fn apply(&mut self) {
        for change in std::mem::take(&mut self.syncing).iter().flat_map(Changes::iter) {
            let key = (change.table, Bytes::copy_from_slice(change.key));
            assert!(!change.is_new || !self.durable.contains_key(&key), "{key:?} is not new");
            match change.value {
                Some(value) => drop(self.durable.insert(key, Bytes::copy_from_slice(value))),
                None => drop(self.durable.remove(&key)),
            }
        }
    }
}

/// The server's machine.
pub(crate) struct Host {
    start: Instant,
    config: Config,
    /// From which the ids of its sessions come.
    entropy: u64,
    pub(crate) listener: Arc<Listener>,
    pub(crate) gate: Arc<Gate>,
    disk: Arc<Mutex<Disk>>,
    /// How long a sync takes at most.
    sync: Arc<Mutex<Duration>>,
    /// How far the wall clock is off, in milliseconds.
    wall: Arc<Mutex<i64>>,
    /// Whether it stays as it is.
    is_wall_kept: AtomicBool,
    /// The most that it ever was.
    most_ahead: Mutex<i64>,
    /// Counts up when the machine crashes.
    crashes: watch::Sender<u64>,
    random: Arc<Mutex<fastrand::Rng>>,
    /// None: a standalone server.
    pub(crate) followers: Vec<Arc<Control>>,
    of_followers: Mutex<fastrand::Rng>,
    /// Notified when a follower continues.
    woken: Arc<Notify>,
}

impl Host {
    pub(crate) fn new(start: Instant, config: Config, random: fastrand::Rng) -> Self {
        Self {
            start,
            config,
            entropy: 7,
            listener: Arc::default(),
            gate: Arc::default(),
            disk: Arc::default(),
            sync: Arc::new(Mutex::new(Duration::from_millis(2))),
            wall: Arc::default(),
            is_wall_kept: AtomicBool::new(false),
            most_ahead: Mutex::default(),
            crashes: watch::Sender::new(0),
            random: Arc::new(Mutex::new(random)),
            followers: Vec::new(),
            of_followers: Mutex::default(),
            woken: Arc::default(),
        }
    }

    /// The same with other session ids, for another service.
    pub(crate) fn apart(self) -> Self {
        Self { entropy: 11, ..self }
    }

    /// The same, as the leader of so many followers.
    pub(crate) fn with_followers(mut self, count: usize, mut random: fastrand::Rng) -> Self {
        let mut follower = || {
            let woken = Arc::clone(&self.woken);
            Arc::new(Control::new(random.f64(), woken))
        };
        self.followers = (0..count).map(|_| follower()).collect();
        self.of_followers = Mutex::new(random);
        self
    }

    /// Starts the server on what the disk has, and its followers on the same.
    pub(crate) fn start(&self) {
        let mut server = self.restored();
        if !self.followers.is_empty() {
            server.lead();
        }
        let mut random = self.of_followers.lock().expect("the lock is not poisoned");
        let followers = self
            .followers
            .iter()
            .map(|control| Follower::new(self.restored(), Arc::clone(control), random.fork()));
        let machine = ServerMachine {
            inbox: self.listener.open(),
            server,
            followers: followers.collect(),
            follower_of: BTreeMap::new(),
            woken: Arc::clone(&self.woken),
            steps: Vec::new(),
            clients: BTreeMap::new(),
            line: Vec::new(),
            start: self.start,
            wall: Arc::clone(&self.wall),
            disk: Arc::clone(&self.disk),
            sync: Arc::clone(&self.sync),
            random: Arc::clone(&self.random),
        };
        let mut crashes = self.crashes.subscribe();
        tokio::spawn(self.gate.through(async move {
            tokio::select! {
                biased;
                _ = crashes.changed() => {}
                () = machine.run() => {}
            }
        }));
    }

    /// A server with what the disk has.
    fn restored(&self) -> Server {
        let mut server = Server::new(self.config.clone(), Box::new(Bytes64(self.entropy)));
        let durable = self.disk.lock().expect("the lock is not poisoned").durable.clone();
        for ((table, key), value) in durable {
            server.restore(table, &key, value).expect("what was written can be read");
        }
        server.finish_restore(self.now()).expect("what was written fits together");
        server
    }

    /// Loses what is not durable, and possibly not all of it.
    pub(crate) fn crash(&self) {
        self.listener.close();
        self.crashes.send_modify(|crashes| *crashes += 1);
        let survived = self.random.lock().expect("the lock is not poisoned").bool();
        let mut disk = self.disk.lock().expect("the lock is not poisoned");
        if survived {
            disk.apply();
        }
        disk.syncing.clear();
    }

    pub(crate) fn set_sync(&self, longest: Duration) {
        *self.sync.lock().expect("the lock is not poisoned") = longest;
    }

    /// Lets the wall clock advance by itself, whatever sets it.
    pub(crate) fn keep_wall(&self) {
        self.is_wall_kept.store(true, Ordering::Relaxed);
    }

    /// Sets the wall clock, unless it is kept.
    pub(crate) fn set_wall(&self, off_ms: i64) {
        if self.is_wall_kept.load(Ordering::Relaxed) {
            return;
        }
        *self.wall.lock().expect("the lock is not poisoned") = off_ms;
        let mut most = self.most_ahead.lock().expect("the lock is not poisoned");
        *most = off_ms.max(*most);
    }

    /// Sets the wall clock to what it shows if it was never set back.
    pub(crate) fn set_wall_to_latest(&self) {
        let most = *self.most_ahead.lock().expect("the lock is not poisoned");
        self.set_wall(most);
    }

    /// What the wall clock showed at the start, in milliseconds since 1970, if it has always gone as it does now.
    pub(crate) fn wall_at_start_ms(&self) -> i64 {
        START_UNIX_MS + *self.wall.lock().expect("the lock is not poisoned")
    }

    fn now(&self) -> Now {
        now(self.start, &self.wall)
    }
}

fn now(start: Instant, wall: &Mutex<i64>) -> Now {
    let passed = start.elapsed();
    let unix_ms = START_UNIX_MS + i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
    Now {
        monotonic: EPOCH + passed,
        unix_ms: unix_ms + *wall.lock().expect("the lock is not poisoned"),
    }
}

struct Client {
    replies: mpsc::UnboundedSender<Message>,
    input: BytesMut,
}

/// What one request, or the time, has led to.
struct Step {
    transactions: Option<Transactions>,
    outputs: Vec<(ConnectionId, Output)>,
    /// The connection whose answer no follower holds up, because nothing need be applied for it.
    resumes: Option<ConnectionId>,
}

struct Batch {
    changes: Changes,
    steps: Vec<Step>,
}

struct ServerMachine {
    inbox: mpsc::UnboundedReceiver<(usize, Arrival)>,
    server: Server,
    followers: Vec<Follower>,
    /// Which follower a connection belongs to, if it is not the leader's own.
    follower_of: BTreeMap<ConnectionId, usize>,
    woken: Arc<Notify>,
    /// What waits for the end of a turn.
    steps: Vec<Step>,
    /// Sorted, so that a crash is reported to them in a fixed order.
    clients: BTreeMap<ConnectionId, Client>,
    /// What waits for the disk.
    line: Vec<Batch>,
    start: Instant,
    wall: Arc<Mutex<i64>>,
    disk: Arc<Mutex<Disk>>,
    sync: Arc<Mutex<Duration>>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl ServerMachine {
    async fn run(mut self) {
        let mut syncing: Option<(Instant, Vec<Batch>)> = None;
        loop {
            let due = self.server.next_timeout().map(|at| self.start + at.saturating_sub(EPOCH));
            let due = self.followers.iter().filter_map(Follower::next).chain(due).min();
            let synced = syncing.as_ref().map(|(at, _)| *at);
            tokio::select! {
                biased;
                arrival = self.inbox.recv() => match arrival {
                    Some(arrival) => self.handle(arrival),
                    None => return,
                },
                () = until(synced) => {
                    let (_, group) = syncing.take().expect("it was syncing");
                    self.disk.lock().expect("the lock is not poisoned").apply();
                    group.into_iter().for_each(|batch| self.release(batch));
                }
                () = until(due) => {}
                () = self.woken.notified() => {}
            }
            // Arrived messages are handled before due timers, so that no session expires with unread messages.
            while let Ok(arrival) = self.inbox.try_recv() {
                self.handle(arrival);
            }
            self.run_followers();
            let now = now(self.start, &self.wall);
            if self.server.next_timeout().is_some_and(|at| at <= now.monotonic) {
                self.server.handle_timeout(now);
            }
            self.end_step(None);
            let steps = std::mem::take(&mut self.steps);
            let batch = Batch { changes: self.server.take_changes(), steps };
            self.submit(batch, &mut syncing);
        }
    }

    fn submit(&mut self, batch: Batch, syncing: &mut Option<(Instant, Vec<Batch>)>) {
        if batch.changes.is_empty() && syncing.is_none() && self.line.is_empty() {
            return self.release(batch);
        }
        self.line.push(batch);
        if syncing.is_none() {
            let group = std::mem::take(&mut self.line);
            let mut disk = self.disk.lock().expect("the lock is not poisoned");
            disk.syncing = group.iter().map(|batch| batch.changes.clone()).collect();
            let longest = *self.sync.lock().expect("the lock is not poisoned");
            let share = self.random.lock().expect("the lock is not poisoned").f64();
            *syncing = Some((Instant::now() + longest.mul_f64(share), group));
        }
    }

    /// Handles what has come from a client, at the leader or at a follower.
    fn handle(&mut self, (server, arrival): (usize, Arrival)) {
        let now = now(self.start, &self.wall);
        if let Some(follower) = server.checked_sub(1) {
            return self.followers[follower].handle(now, arrival);
        }
        match arrival {
            Arrival::Connected(id, replies) => {
                self.server.connected(id, None);
                self.clients.insert(id, Client { replies, input: BytesMut::new() });
            }
            Arrival::Bytes(id, bytes) => {
                let Some(client) = self.clients.get_mut(&id) else { return };
                client.input.extend_from_slice(&bytes);
                while let Some(client) = self.clients.get_mut(&id)
                    && let Ok(Some(frame)) = split_frame(&mut client.input, MAX_FRAME)
                {
                    self.server.handle_frame(now, id, frame);
                    // What a server alone answers together may be sent together.
                    if !self.followers.is_empty() {
                        self.end_step(None);
                    }
                }
            }
            Arrival::Closed(id) => {
                self.server.disconnected(id);
                self.clients.remove(&id);
            }
        }
    }

    /// Has the followers do what is due.
    fn run_followers(&mut self) {
        let now = now(self.start, &self.wall);
        for index in 0..self.followers.len() {
            while let Some(forwarded) = self.followers[index].forwarded() {
                self.serve(now, index, forwarded);
            }
            self.followers[index].advance(now);
        }
    }

    /// Handles what a follower has passed on.
    fn serve(&mut self, now: Now, follower: usize, forwarded: Forwarded) {
        match forwarded {
            Forwarded::Connected(id) => {
                self.follower_of.insert(id, follower);
                self.server.connected(id, None);
            }
            Forwarded::Asks(id, frame) => {
                self.server.handle_frame(now, id, frame);
                self.end_step(None);
            }
            Forwarded::Resumes(id, frame) => {
                self.server.handle_frame(now, id, frame);
                self.end_step(Some(id));
            }
            Forwarded::Heard(id) => self.server.heard_of(now, id),
            Forwarded::Closed(id) => {
                self.follower_of.remove(&id);
                self.server.disconnected(id);
            }
        }
    }

    fn end_step(&mut self, resumes: Option<ConnectionId>) {
        let (transactions, outputs) = (self.server.take_transactions(), self.server.take_outputs());
        if transactions.is_some() || !outputs.is_empty() {
            self.steps.push(Step { transactions, outputs, resumes });
        }
    }

    fn release(&mut self, batch: Batch) {
        for Step { transactions, outputs, resumes } in batch.steps {
            for follower in &mut self.followers {
                transactions.iter().for_each(|done| follower.tell_done(done.clone()));
            }
            for (id, output) in outputs {
                match self.follower_of.get(&id) {
                    Some(&index) if resumes == Some(id) => {
                        self.followers[index].tell_resumed(id, output);
                    }
                    Some(&index) => self.followers[index].tell(id, output),
                    None => self.send(id, output),
                }
            }
        }
    }

    fn send(&mut self, id: ConnectionId, output: Output) {
        match output {
            Output::Send(bytes) => {
                // A client that is gone hears nothing.
                let _ =
                    self.clients.get(&id).map(|client| client.replies.send(Message::now(bytes)));
            }
            Output::Close(_) => drop(self.clients.remove(&id)),
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) if at <= Instant::now() => {}
        Some(at) if at > Instant::now() + Duration::from_secs(3600) => {
            sleep(Duration::from_secs(3600)).await;
        }
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The same bytes in each run.
struct Bytes64(u64);

impl Entropy for Bytes64 {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.0 >> 56) as u8;
        }
    }
}
