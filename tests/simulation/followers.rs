//! The followers of an ensemble, whose trees are behind the leader's. See
//! `docs/decisions/0029-followers-in-the-simulation.md`.
//!
//! A follower answers reads and pings, and sends events, from its own tree, however old that is. It forwards other
//! requests to the leader, and returns a reply when it has itself applied everything that the
//! leader had applied before it. Requests of a connection are answered in order, so a read behind a write
//! waits for the reply to the write. As in ZooKeeper, a resumed session does not wait:
//! its client may then not see its own writes until a `sync`. A new session is a transaction of the leader,
//! so its client gets the reply when the follower has applied that transaction.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_tree::{ConnectionId, Now, Output, Server, Transactions};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, MAX_FRAME, OpCode, Record as _, RequestHeader,
    SessionId, split_frame,
};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::network::{Arrival, Message};

/// How many followers a leader has.
pub(crate) const FOLLOWERS: usize = 2;

/// What messages between a follower and its leader take at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// To the leader; and back, where nothing is applied.
    pub(crate) up: Duration,
    /// Until the follower has applied what the leader has done.
    pub(crate) down: Duration,
}

/// What faults do to a follower.
#[derive(Debug)]
pub(crate) struct Control {
    link: Mutex<Link>,
    /// How far it is behind, as a share of what it may be.
    share: f64,
    /// Whether it applies nothing.
    lags: AtomicBool,
    woken: Arc<Notify>,
}

impl Control {
    pub(crate) fn new(share: f64, woken: Arc<Notify>) -> Self {
        let (link, lags) = (Mutex::default(), AtomicBool::new(false));
        Self { link, share, lags, woken }
    }

    pub(crate) fn set_link(&self, link: Link) {
        *self.link.lock().expect("the lock is not poisoned") = link;
    }

    /// Lets it apply nothing, or go on.
    pub(crate) fn set_lag(&self, lags: bool) {
        self.lags.store(lags, Ordering::SeqCst);
        self.woken.notify_one();
    }

    fn lags(&self) -> bool {
        self.lags.load(Ordering::SeqCst)
    }

    fn link(&self) -> Link {
        *self.link.lock().expect("the lock is not poisoned")
    }
}

/// What a follower passes on.
pub(crate) enum Forwarded {
    Connected(ConnectionId),
    /// A request, or a handshake that is answered when the follower has applied the new session.
    Asks(ConnectionId, Bytes),
    /// A handshake that is answered without that.
    Resumes(ConnectionId, Bytes),
    /// Something that the follower answers itself has come: the session is alive.
    Heard(ConnectionId),
    Closed(ConnectionId),
}

/// What the leader tells a follower, in order.
enum Told {
    Done(Transactions),
    Answered(ConnectionId, Output),
}

/// A request that waits for its turn.
enum Waiting {
    /// For the leader's answer.
    Forwarded,
    /// For the answers to those before it.
    Read(Bytes),
}

struct Client {
    replies: mpsc::UnboundedSender<Message>,
    input: BytesMut,
    waiting: VecDeque<Waiting>,
    /// Whether its handshake has come.
    has_greeted: bool,
}

/// A follower.
pub(crate) struct Follower {
    server: Server,
    clients: BTreeMap<ConnectionId, Client>,
    control: Arc<Control>,
    random: fastrand::Rng,
    to_leader: Line<Forwarded>,
    from_leader: Line<Told>,
    /// Answers that nothing need be applied for.
    resumed: Line<(ConnectionId, Output)>,
}

impl Follower {
    /// One that has what the server has.
    pub(crate) fn new(server: Server, control: Arc<Control>, random: fastrand::Rng) -> Self {
        let (to_leader, from_leader, resumed) = (Line::new(), Line::new(), Line::new());
        let clients = BTreeMap::new();
        Self { server, clients, control, random, to_leader, from_leader, resumed }
    }

    /// When there is something to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        let told = self.from_leader.next().filter(|_| !self.control.lags());
        [self.to_leader.next(), self.resumed.next(), told].into_iter().flatten().min()
    }

    /// What has reached the leader.
    pub(crate) fn forwarded(&mut self) -> Option<Forwarded> {
        self.to_leader.pop()
    }

    /// The leader has done this.
    pub(crate) fn tell_done(&mut self, transactions: Transactions) {
        let down = self.behind();
        self.from_leader.push(down, Told::Done(transactions));
    }

    /// The leader answers, after what it has done.
    pub(crate) fn tell(&mut self, connection: ConnectionId, output: Output) {
        let down = self.behind();
        self.from_leader.push(down, Told::Answered(connection, output));
    }

    /// The leader answers one that takes up a session.
    pub(crate) fn tell_resumed(&mut self, connection: ConnectionId, output: Output) {
        let up = self.up();
        self.resumed.push(up, (connection, output));
    }

    /// Applies what is due, and passes on the answers.
    pub(crate) fn advance(&mut self, now: Now) {
        while let Some((connection, output)) = self.resumed.pop() {
            self.answered(now, connection, output);
        }
        while !self.control.lags()
            && let Some(told) = self.from_leader.pop()
        {
            match told {
                Told::Done(transactions) => {
                    self.server.follow(&transactions);
                    self.flush();
                }
                Told::Answered(connection, output) => self.answered(now, connection, output),
            }
        }
    }

    /// Handles what has come from a client.
    pub(crate) fn handle(&mut self, now: Now, arrival: Arrival) {
        match arrival {
            Arrival::Connected(id, replies) => {
                self.server.connected(id, None);
                let (input, waiting) = (BytesMut::new(), VecDeque::new());
                self.clients.insert(id, Client { replies, input, waiting, has_greeted: false });
                self.forward(Forwarded::Connected(id));
            }
            Arrival::Bytes(id, bytes) => {
                let Some(client) = self.clients.get_mut(&id) else { return };
                client.input.extend_from_slice(&bytes);
                while let Some(client) = self.clients.get_mut(&id)
                    && let Ok(Some(frame)) = split_frame(&mut client.input, MAX_FRAME)
                {
                    self.frame(now, id, frame);
                }
            }
            Arrival::Closed(id) => {
                self.close(id);
                self.forward(Forwarded::Closed(id));
            }
        }
    }

    fn frame(&mut self, now: Now, id: ConnectionId, frame: Bytes) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !client.has_greeted {
            client.has_greeted = true;
            return self.handshake(id, frame);
        }
        if is_for_leader(&frame) {
            client.waiting.push_back(Waiting::Forwarded);
            return self.forward(Forwarded::Asks(id, frame));
        }

        match client.waiting.is_empty() {
            true => self.server.handle_frame(now, id, frame),
            false => client.waiting.push_back(Waiting::Read(frame)),
        }
        self.flush();
        self.forward(Forwarded::Heard(id));
    }

    fn handshake(&mut self, id: ConnectionId, frame: Bytes) {
        if !self.server.admits(id, frame.clone()) {
            return self.flush();
        }
        let request = ConnectRequest::decode(&mut Decoder::new(frame.clone()));
        let begins = request.is_ok_and(|request| request.session_id == SessionId::NONE);
        self.forward(match begins {
            true => Forwarded::Asks(id, frame),
            false => Forwarded::Resumes(id, frame),
        });
    }

    /// Passes on an answer of the leader, and handles the reads that have waited for it.
    fn answered(&mut self, now: Now, id: ConnectionId, output: Output) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Output::Send(bytes) = output else { return self.close(id) };
        if self.server.session_of(id).is_none() {
            let welcome = ConnectResponse::decode(&mut Decoder::new(bytes.slice(4..)));
            let session = welcome.map_or(SessionId::NONE, |welcome| welcome.session_id);
            if session != SessionId::NONE {
                self.server.attach(id, session);
            }
        } else {
            let first = client.waiting.pop_front();
            assert!(matches!(first, Some(Waiting::Forwarded)), "answers come in order");
        }
        send(client, bytes);

        while let Some(client) = self.clients.get_mut(&id)
            && let Some(Waiting::Read(_)) = client.waiting.front()
            && let Some(Waiting::Read(frame)) = client.waiting.pop_front()
        {
            self.server.handle_frame(now, id, frame);
            self.flush();
        }
    }

    /// Sends what the tree says: everything in it is durable at the leader.
    fn flush(&mut self) {
        for (id, output) in self.server.take_outputs() {
            match (self.clients.get(&id), output) {
                (Some(client), Output::Send(bytes)) => send(client, bytes),
                (_, Output::Send(_)) => {}
                (_, Output::Close(_)) => self.close(id),
            }
        }
    }

    fn close(&mut self, id: ConnectionId) {
        self.server.disconnected(id);
        self.clients.remove(&id);
    }

    fn forward(&mut self, what: Forwarded) {
        let up = self.up();
        self.to_leader.push(up, what);
    }

    fn up(&mut self) -> Duration {
        self.control.link().up.mul_f64(self.random.f64())
    }

    fn behind(&mut self) -> Duration {
        self.control.link().down.mul_f64(self.control.share * self.random.f64())
    }
}

fn send(client: &Client, bytes: Bytes) {
    // A client that is gone hears nothing.
    let _ = client.replies.send(Message::now(bytes));
}

/// Whether only the leader can answer.
fn is_for_leader(frame: &Bytes) -> bool {
    let header = RequestHeader::decode(&mut Decoder::new(frame.clone()));
    let op = header.ok().and_then(|header| OpCode::from_code(header.op));
    op.is_some_and(|op| op.is_write() || op == OpCode::Sync)
}

/// What is under way, in order.
struct Line<T> {
    items: VecDeque<(Instant, T)>,
}

impl<T> Line<T> {
    fn new() -> Self {
        Self { items: VecDeque::new() }
    }

    /// Adds what arrives after that time, but not before what was sent earlier.
    fn push(&mut self, delay: Duration, item: T) {
        let at = Instant::now() + delay;
        let at = self.items.back().map_or(at, |(before, _)| at.max(*before));
        self.items.push_back((at, item));
    }

    fn next(&self) -> Option<Instant> {
        self.items.front().map(|(at, _)| *at)
    }

    /// The first one, if it has arrived.
    fn pop(&mut self) -> Option<T> {
        let has_arrived = self.next().is_some_and(|at| at <= Instant::now());
        has_arrived.then(|| self.items.pop_front()).flatten().map(|(_, item)| item)
    }
}
