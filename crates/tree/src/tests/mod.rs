//! The server as its clients see it: frames in, frames out.

use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    Acl, AclList, AuthRequest, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, Decoder,
    DeleteRequest, ErrorCode, MAX_FRAME, NodeData, Op, OpCode, OpResult, PathRequest,
    PathWatchRequest, Record as _, ReplyHeader, Request, Response, SessionId, SetAclRequest,
    SetDataRequest, Stat, WatchEvent, Zxid, split_frame, xid,
};

use crate::config::{Config, Entropy, Now};
use crate::output::{CloseReason, ConnectionId, Output};
use crate::server::Server;

mod access;
mod acl_limits;
mod fan_out;
mod following;
mod handshake;
mod limits;
mod multi;
mod nodes;
mod null_data;
mod quota;
mod random;
mod reaping;
mod report;
mod requests;
mod restore;
mod room;
mod sessions;
mod short;
mod succession;
mod watches;

/// Different bytes for each call, the same in each run.
struct Counter(u8);

impl Entropy for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0 = self.0.wrapping_add(1);
        bytes.fill(self.0);
    }
}

/// What a client received.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Received {
    Welcome(ConnectResponse),
    Reply(ReplyHeader, Bytes),
    Event(Zxid, WatchEvent),
    Closed(CloseReason),
}

/// A server, its clock, and the messages that its clients have not examined yet.
struct World {
    server: Server,
    now: Now,
    connections: u64,
    inbox: Vec<(ConnectionId, Received)>,
    greeted: Vec<ConnectionId>,
}

impl World {
    fn new() -> Self {
        Self::with(Config { ttl_nodes: true, ..Config::default() })
    }

    /// A new world with clients in it.
    fn with_clients<const N: usize>() -> (Self, [Client; N]) {
        Self::limited(|config| config.ttl_nodes = true)
    }

    /// The same with other limits of the server.
    fn limited<const N: usize>(change: impl FnOnce(&mut Config)) -> (Self, [Client; N]) {
        let mut config = Config::default();
        change(&mut config);
        let mut world = Self::with(config);
        let clients = std::array::from_fn(|_| world.client());
        (world, clients)
    }

    fn with(config: Config) -> Self {
        Self {
            server: Server::new(config, Box::new(Counter(0))),
            now: Now { monotonic: Duration::from_secs(100), unix_ms: 1_000_000 },
            connections: 0,
            inbox: Vec::new(),
            greeted: Vec::new(),
        }
    }

    /// Advances the time and handles what is due.
    fn pass(&mut self, time: Duration) {
        self.now.monotonic += time;
        self.now.unix_ms += time.as_millis() as i64;
        while self.server.next_timeout().is_some_and(|at| at <= self.now.monotonic) {
            self.server.handle_timeout(self.now);
        }
        self.collect();
    }

    fn open(&mut self) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.server.connected(connection, Some(IpAddr::from([10, 0, 0, 1])));
        connection
    }

    fn frame(&mut self, connection: ConnectionId, frame: impl Into<Bytes>) {
        self.server.handle_frame(self.now, connection, frame.into());
        self.collect();
    }

    /// Sends a handshake and takes the response.
    fn try_shake(&mut self, id: ConnectionId, request: &ConnectRequest) -> Option<Received> {
        let mut frame = BytesMut::new();
        request.encode(&mut frame);
        self.frame(id, frame);
        self.next(id)
    }

    fn shake(&mut self, connection: ConnectionId, request: &ConnectRequest) -> ConnectResponse {
        match self.try_shake(connection, request) {
            Some(Received::Welcome(response)) => response,
            other => panic!("no handshake: {other:?}"),
        }
    }

    /// Sends a handshake over a new connection.
    fn arrive(&mut self, request: &ConnectRequest) -> ConnectResponse {
        let connection = self.open();
        self.shake(connection, request)
    }

    /// A client with a new session of 10 s.
    fn client(&mut self) -> Client {
        let connection = self.open();
        let response = self.shake(connection, &hello());
        Client { connection, session: response.session_id, password: response.password }
    }

    fn reconnect(&mut self, client: &Client) -> Client {
        let connection = self.open();
        assert_eq!(self.shake(connection, &client.resumes()).session_id, client.session);
        Client { connection, ..client.clone() }
    }

    /// Sends a request. Its replies stay in the inbox.
    fn send(&mut self, client: &Client, xid: i32, request: &Request) {
        let mut frame = BytesMut::new();
        request.encode(xid, &mut frame);
        self.frame(client.connection, frame);
    }

    /// Sends a request and takes the reply, which must be the only message for this client.
    fn ask(&mut self, client: &Client, request: &Request) -> Result<Response, ErrorCode> {
        self.send(client, 7, request);
        let xid = request.reserved_xid().unwrap_or(7);
        match self.next(client.connection) {
            Some(Received::Reply(header, body)) if header.xid == 7 || header.xid == xid => {
                read_reply(request.op(), header, body)
            }
            other => panic!("no reply to {request:?}: {other:?}"),
        }
    }

    /// Sends requests, which must all succeed.
    fn ask_all<const N: usize>(&mut self, client: &Client, requests: [Request; N]) {
        for request in requests {
            self.ask(client, &request).unwrap_or_else(|code| panic!("{request:?}: {code}"));
        }
    }

    /// Sends reads for their watches. The nodes need not exist.
    fn watch_all<const N: usize>(&mut self, client: &Client, requests: [Request; N]) {
        for request in requests {
            let _ = self.ask(client, &request);
        }
    }

    /// Sends a request and takes the raw reply.
    fn reply(&mut self, client: &Client, xid: i32, request: &Request) -> (ReplyHeader, Bytes) {
        self.send(client, xid, request);
        self.next_reply(client)
    }

    fn next_reply(&mut self, client: &Client) -> (ReplyHeader, Bytes) {
        match self.next(client.connection) {
            Some(Received::Reply(header, body)) => (header, body),
            other => panic!("no reply: {other:?}"),
        }
    }

    /// The results of a `multi`.
    fn multi(&mut self, client: &Client, ops: impl IntoIterator<Item = Op>) -> Vec<OpResult> {
        match self.ask(client, &Request::Multi(ops.into_iter().collect())) {
            Ok(Response::Multi(results)) => results,
            other => panic!("no results: {other:?}"),
        }
    }

    fn collect(&mut self) {
        for (connection, output) in self.server.take_outputs() {
            match output {
                Output::Close(reason) => self.inbox.push((connection, Received::Closed(reason))),
                Output::Send(bytes) => self.split(connection, BytesMut::from(&bytes[..])),
            }
        }
    }

    fn split(&mut self, connection: ConnectionId, mut bytes: BytesMut) {
        while let Some(frame) = split_frame(&mut bytes, MAX_FRAME).expect("a good length") {
            let received = self.read(connection, frame);
            self.inbox.push((connection, received));
        }
        assert!(bytes.is_empty(), "only whole frames");
    }

    fn read(&mut self, connection: ConnectionId, frame: Bytes) -> Received {
        let mut input = Decoder::new(frame);
        if !self.greeted.contains(&connection) {
            self.greeted.push(connection);
            return Received::Welcome(ConnectResponse::decode(&mut input).expect("a greeting"));
        }
        let header = ReplyHeader::decode(&mut input).expect("a header");
        if header.xid == xid::NOTIFICATION {
            let event = WatchEvent::decode(&mut input).expect("an event");
            assert_eq!(input.remaining(), 0);
            return Received::Event(header.zxid, event);
        }
        let rest = input.take(input.remaining()).expect("the rest");
        Received::Reply(header, rest)
    }

    /// The oldest message for this connection.
    fn next(&mut self, connection: ConnectionId) -> Option<Received> {
        let index = self.inbox.iter().position(|(to, _)| *to == connection)?;
        Some(self.inbox.remove(index).1)
    }

    /// Everything that this client has received: events as `kind path`, other messages by name.
    fn received(&mut self, client: &Client) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(received) = self.next(client.connection) {
            all.push(match received {
                Received::Welcome(_) => "welcome".to_owned(),
                Received::Reply(header, _) => format!("reply {}", header.error),
                Received::Event(_, event) => format!("{:?} {}", event.kind, event.path),
                Received::Closed(reason) => format!("closed {reason:?}"),
            });
        }
        all
    }

    fn create(&mut self, client: &Client, path: &str, mode: CreateMode) -> String {
        match self.ask(client, &create(path, mode)) {
            Ok(Response::Path(path)) => path,
            other => panic!("create {path}: {other:?}"),
        }
    }

    fn stat(&mut self, client: &Client, path: &str) -> Option<Stat> {
        match self.ask(client, &exists(path, false)) {
            Ok(Response::Stat(stat)) => Some(stat),
            Err(ErrorCode::NoNode) => None,
            other => panic!("exists {path}: {other:?}"),
        }
    }

    fn last_zxid(&self) -> i64 {
        self.server.stats().last_zxid.0
    }
}

#[derive(Clone, Debug)]
struct Client {
    connection: ConnectionId,
    session: SessionId,
    password: Bytes,
}

impl Client {
    /// The handshake that resumes its session.
    fn resumes(&self) -> ConnectRequest {
        let (session_id, password) = (self.session, self.password.clone());
        ConnectRequest { session_id, password, ..hello() }
    }
}

fn read_reply(op: OpCode, header: ReplyHeader, body: Bytes) -> Result<Response, ErrorCode> {
    match ErrorCode::from_code(header.error) {
        None => Ok(Response::decode(op, &mut Decoder::new(body)).expect("a good body")),
        Some(code) => {
            assert!(body.is_empty(), "an error reply does not have a body");
            Err(code)
        }
    }
}

fn hello() -> ConnectRequest {
    ConnectRequest::new_session(10_000)
}

fn new_node(path: &str, mode: CreateMode) -> CreateRequest {
    CreateRequest {
        path: path.to_owned(),
        data: Bytes::from_static(b"data").into(),
        acl: AclList::OPEN,
        flags: mode.flags(),
    }
}

fn with_acl(path: &str, acl: Vec<Acl>) -> CreateRequest {
    CreateRequest { acl: acl.into(), ..new_node(path, CreateMode::Persistent) }
}

fn set_acl(path: &str, acl: Vec<Acl>, version: i32) -> Request {
    Request::SetAcl(SetAclRequest { path: path.to_owned(), acl: acl.into(), version })
}

fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create(new_node(path, mode))
}

fn delete(path: &str, version: i32) -> Request {
    Request::Delete(DeleteRequest { path: path.to_owned(), version })
}

fn set_data(path: &str, version: i32) -> Request {
    let (path, data) = (path.to_owned(), Bytes::from_static(b"other").into());
    Request::SetData(SetDataRequest { path, data, version })
}

fn watched(path: &str, watch: bool) -> PathWatchRequest {
    PathWatchRequest { path: path.to_owned(), watch }
}

fn exists(path: &str, watch: bool) -> Request {
    Request::Exists(watched(path, watch))
}

fn get_data(path: &str, watch: bool) -> Request {
    Request::GetData(watched(path, watch))
}

fn get_children(path: &str, watch: bool) -> Request {
    Request::GetChildren(watched(path, watch))
}

fn path(path: &str) -> PathRequest {
    PathRequest { path: path.to_owned() }
}

fn auth(scheme: &str, credentials: &'static str) -> Request {
    Request::Auth(AuthRequest {
        kind: 0,
        scheme: scheme.to_owned(),
        auth: Bytes::from_static(credentials.as_bytes()),
    })
}
