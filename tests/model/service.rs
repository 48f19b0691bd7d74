//! The server: the engine's tree, known by its states.
//!
//! It cannot be copied either, but its data and its sessions can be read. Each state is
//! reached by its inputs from the beginning, and each input of a state is handled once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_tree::{Config, ConnectionId, Entropy, Now, Output, Server, Table};
use lockkeeper_wire::{
    AclList, ConnectRequest, CreateMode, CreateRequest, Decoder, DeleteRequest, MAX_FRAME,
    PASSWORD_LEN, Record as _, Request, SessionId, SetDataRequest, Zxid, split_frame,
};

use crate::frames::{FrameId, Frames};
use crate::{LOCK, QUEUE, TIMEOUT};

/// The clock of the server's machine starts here, so that earlier times can be represented.
const EPOCH: Duration = Duration::from_secs(100);

/// The connection that sets up the lock.
const ADMIN: ConnectionId = ConnectionId(u64::MAX);

/// A connection, by its client and how many that had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Connection {
    pub(crate) client: u8,
    pub(crate) number: u8,
}

impl Connection {
    fn id(self) -> ConnectionId {
        ConnectionId(u64::from(self.client) << 8 | u64::from(self.number))
    }

    fn of(id: ConnectionId) -> Self {
        Self { client: (id.0 >> 8) as u8, number: id.0 as u8 }
    }
}

/// One thing that happens to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    Connected(Connection),
    Frame(Connection, FrameId),
    Disconnected(Connection),
    /// A step of time.
    Tick,
    /// It stops and comes back with what it has stored.
    Restart,
    /// Somebody copies what it has stored. Then others write for a while.
    BackUp,
    /// It stops, and restarts with the copy. From now on it accepts clients that have seen later transactions,
    /// which real servers refuse. Clients do not rely on that refusal.
    PutBack,
    /// Somebody else deletes the first node of a session.
    Delete(SessionId),
    /// Somebody else writes how many permits there are.
    Permits(u32),
}

/// What the server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Frame(FrameId),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StateId(u32);

/// What the judges look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    /// The paths of the ephemeral nodes, each with its session.
    pub(crate) nodes: Vec<(String, SessionId)>,
    /// The paths of a queue's entries, and of what they contain.
    pub(crate) entries: Vec<String>,
    pub(crate) bodies: Vec<String>,
    /// The session of each connection.
    pub(crate) sessions: Vec<(Connection, SessionId)>,
}

struct Known {
    before: Option<(StateId, Input)>,
    view: View,
}

/// What comes of an input.
struct Edge {
    after: StateId,
    sent: Box<[(Connection, Sent)]>,
}

/// The states of the server, as far as they are known.
pub(crate) struct Service {
    permits: Option<u32>,
    step: Duration,
    known: Vec<Known>,
    by_print: HashMap<u128, StateId>,
    next: HashMap<(StateId, Input), Edge>,
}

impl Service {
    /// A server with the lock's own node, in which may be how many permits there are. `step`: how far
    /// time moves at once.
    pub(crate) fn new(permits: Option<u32>, step: Duration) -> Self {
        let (by_print, next) = (HashMap::new(), HashMap::new());
        let mut all = Self { permits, step, known: Vec::new(), by_print, next };
        let live = Live::start(permits, step);
        all.add(None, &live);
        all
    }

    pub(crate) fn beginning(&self) -> StateId {
        StateId(0)
    }

    pub(crate) fn view(&self, state: StateId) -> &View {
        &self.known[state.0 as usize].view
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// The state after one more input, and what it sends.
    pub(crate) fn then(
        &mut self,
        state: StateId,
        input: Input,
        frames: &mut Frames,
    ) -> (StateId, &[(Connection, Sent)]) {
        if !self.next.contains_key(&(state, input)) {
            let mut inputs = vec![input];
            let mut at = state;
            while let Some((before, input)) = self.known[at.0 as usize].before {
                inputs.push(input);
                at = before;
            }
            let mut live = Live::start(self.permits, self.step);
            let mut sent = Vec::new();
            for input in inputs.into_iter().rev() {
                sent = live.handle(input, frames);
            }
            let after = self.add(Some((state, input)), &live);
            let sent = sent.into_iter().filter_map(|(id, output)| sent_by(id, output, frames));
            let sent = sent.flatten().collect();
            self.next.insert((state, input), Edge { after, sent });
        }
        let Edge { after, sent } = &self.next[&(state, input)];
        (*after, sent)
    }

    fn add(&mut self, before: Option<(StateId, Input)>, live: &Live) -> StateId {
        let id = StateId(u32::try_from(self.known.len()).expect("fewer than memory has room for"));
        let id = *self.by_print.entry(live.print()).or_insert(id);
        if id.0 as usize == self.known.len() {
            self.known.push(Known { before, view: live.view() });
        }
        id
    }
}

fn sent_by(
    id: ConnectionId,
    output: Output,
    frames: &mut Frames,
) -> Option<Vec<(Connection, Sent)>> {
    if id == ADMIN {
        return None;
    }
    let to = Connection::of(id);
    Some(match output {
        Output::Send(bytes) => {
            let (mut bytes, mut all) = (BytesMut::from(&bytes[..]), Vec::new());
            while let Ok(Some(frame)) = split_frame(&mut bytes, MAX_FRAME) {
                all.push((to, Sent::Frame(frames.id(frame))));
            }
            all
        }
        Output::Close(_) => vec![(to, Sent::Close)],
    })
}

/// What a server has stored.
type Disk = BTreeMap<(Table, Bytes), Bytes>;

/// A server that runs.
struct Live {
    server: Server,
    disk: Disk,
    copy: Option<Disk>,
    is_put_back: bool,
    open: BTreeSet<ConnectionId>,
    step: Duration,
    steps: u32,
    /// How many requests the setup connection has made.
    asked: i32,
}

impl Live {
    fn start(permits: Option<u32>, step: Duration) -> Self {
        let (server, disk, open) = (new_server(), BTreeMap::new(), BTreeSet::new());
        let (copy, is_put_back) = (None, false);
        let mut live = Self { server, disk, copy, is_put_back, open, step, steps: 0, asked: 0 };
        let now = live.now();
        live.server.finish_restore(now).expect("there is nothing to restore");
        let data = permits.map_or_else(Bytes::new, |permits| permits.to_string().into());
        let flags = CreateMode::Persistent.flags();
        let create =
            CreateRequest { path: LOCK.to_owned(), data: data.into(), acl: AclList::OPEN, flags };
        live.administer(Request::Create(create));
        let _ = live.commit();
        live
    }

    fn now(&self) -> Now {
        // The wall clock stands still: it only goes into stats that nobody looks at.
        Now { monotonic: EPOCH + self.step * self.steps, unix_ms: 1_700_000_000_000 }
    }

    fn handle(&mut self, input: Input, frames: &Frames) -> Vec<(ConnectionId, Output)> {
        match input {
            Input::Connected(connection) => {
                self.open.insert(connection.id());
                self.server.connected(connection.id(), None);
            }
            Input::Frame(connection, frame) => {
                let (now, mut frame) = (self.now(), frames.bytes(frame).clone());
                if self.is_put_back && self.server.session_of(connection.id()).is_none() {
                    frame = who_has_seen_nothing(frame);
                }
                self.server.handle_frame(now, connection.id(), frame);
            }
            Input::Disconnected(connection) => {
                self.open.remove(&connection.id());
                self.server.disconnected(connection.id());
            }
            Input::Tick => {
                self.steps += 1;
                self.server.handle_timeout(self.now());
            }
            Input::Restart => self.restart(),
            Input::BackUp => {
                self.copy = Some(self.disk.clone());
                // Far more than anybody writes here after a restore.
                for _ in 0..30 {
                    let data = Bytes::new().into();
                    let set = SetDataRequest { path: "/".to_owned(), data, version: -1 };
                    self.administer(Request::SetData(set));
                }
            }
            Input::PutBack => {
                self.disk = self.copy.clone().expect("there is a copy");
                self.is_put_back = true;
                self.restart();
            }
            Input::Delete(session) => {
                let owned = self.server.ephemerals_by_session();
                let of = owned.into_iter().find(|(of, _)| *of == session);
                if let Some(path) = of.and_then(|(_, paths)| paths.into_iter().next()) {
                    self.administer(Request::Delete(DeleteRequest { path, version: -1 }));
                }
            }
            Input::Permits(permits) => {
                let data = Bytes::from(permits.to_string()).into();
                let set = SetDataRequest { path: LOCK.to_owned(), data, version: -1 };
                self.administer(Request::SetData(set));
            }
        }
        self.commit()
    }

    fn commit(&mut self) -> Vec<(ConnectionId, Output)> {
        for change in self.server.take_changes().iter() {
            let key = (change.table, Bytes::copy_from_slice(change.key));
            match change.value {
                Some(value) => drop(self.disk.insert(key, Bytes::copy_from_slice(value))),
                None => drop(self.disk.remove(&key)),
            }
        }
        let outputs = self.server.take_outputs();
        for (id, output) in &outputs {
            if matches!(output, Output::Close(_)) {
                self.open.remove(id);
            }
        }
        outputs
    }

    fn restart(&mut self) {
        self.server = new_server();
        for ((table, key), value) in &self.disk {
            self.server.restore(*table, key, value.clone()).expect("what was written can be read");
        }
        self.server.finish_restore(self.now()).expect("what was written fits together");
        self.open.clear();
    }

    /// Does something in a session of its own, which is over before anybody sees it.
    fn administer(&mut self, request: Request) {
        let now = self.now();
        let mut out = BytesMut::new();
        let handshake = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid(0),
            timeout_ms: i32::try_from(TIMEOUT.as_millis()).expect("seconds"),
            session_id: SessionId::NONE,
            password: Bytes::from_static(&[0; PASSWORD_LEN]),
            read_only: None,
        };
        self.server.connected(ADMIN, None);
        handshake.encode(&mut out);
        self.server.handle_frame(now, ADMIN, out.split().freeze());
        for request in [request, Request::CloseSession] {
            self.asked += 1;
            request.encode(self.asked, &mut out);
            self.server.handle_frame(now, ADMIN, out.split().freeze());
        }
        self.server.disconnected(ADMIN);
    }

    /// All that it knows: servers with one print are equal.
    ///
    /// Its watches are listed without their kinds; but what is watched in one way here is never
    /// watched in another.
    fn print(&self) -> u128 {
        let half = |seed: u64| {
            let mut sum = DefaultHasher::new();
            (seed, self.steps, &self.disk, &self.copy, self.is_put_back).hash(&mut sum);
            for session in self.server.sessions() {
                (session.id, session.timeout, session.deadline, session.connection).hash(&mut sum);
            }
            (self.server.watches_by_path(), self.server.stats().watches).hash(&mut sum);
            for connection in &self.open {
                (connection, self.server.session_of(*connection)).hash(&mut sum);
            }
            u128::from(sum.finish())
        };
        half(1) << 64 | half(2)
    }

    fn view(&self) -> View {
        let owned = self.server.ephemerals_by_session();
        let nodes = owned
            .into_iter()
            .flat_map(|(session, paths)| paths.into_iter().map(move |path| (path, session)));
        let sessions = self.open.iter().filter_map(|connection| {
            Some((Connection::of(*connection), self.server.session_of(*connection)?))
        });
        let below = |directory: &str| self.paths_below(&format!("{QUEUE}/{directory}/"));
        let mut entries = below("entries");
        // The others are segments.
        entries.retain(|path| path.contains('-'));
        let (nodes, sessions) = (nodes.collect(), sessions.collect());
        View { nodes, entries, bodies: below("bodies"), sessions }
    }

    /// The nodes whose paths begin so.
    fn paths_below(&self, prefix: &str) -> Vec<String> {
        let nodes = self.disk.keys().filter(|(table, _)| *table == Table::Nodes);
        let paths = nodes.map(|(_, path)| String::from_utf8_lossy(path).into_owned());
        paths.filter(|path| path.starts_with(prefix)).collect()
    }
}

/// A handshake of somebody who has seen nothing.
fn who_has_seen_nothing(frame: Bytes) -> Bytes {
    let handshake = ConnectRequest::decode(&mut Decoder::new(frame)).expect("of a client of ours");
    let mut out = BytesMut::new();
    ConnectRequest { last_zxid_seen: Zxid(0), ..handshake }.encode(&mut out);
    out.freeze()
}

fn new_server() -> Server {
    // Sessions end as soon as they may: the bounds of servers with long ticks would give them more.
    let mut config = Config::with_tick(Duration::from_millis(1));
    (config.min_session_timeout, config.max_session_timeout) = (TIMEOUT, TIMEOUT);
    // Later than anything here: empty containers stay.
    config.reap_interval = Duration::from_secs(1_000_000);
    Server::new(config, Box::new(Same))
}

/// The same password for all: nobody here tries to guess one.
struct Same;

impl Entropy for Same {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}
