//! The session with a scripted server: bytes in, bytes out, and manual time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Create, CreateMode, CreateRequest, Decoder, DeleteRequest,
    ErrorCode, EventKind, KeeperState, MAX_FRAME, OpCode, OpResult, Outgoing as _, PathRequest,
    PathWatchRequest, Record, ReplyHeader, Request, RequestHeader, Response, SessionId, Stat,
    WatchEvent as Notification, ZnodePath, Zxid, split_frame, write_frame, xid,
};

use crate::*;

mod cleanup;
mod connections;
mod heartbeat;
mod jeopardy;
mod lease;
mod refused;
mod replace;
mod requests;
mod too_long;
mod watches;

const TIMEOUT: Duration = Duration::from_secs(12);
const PASSWORD: Bytes = Bytes::from_static(b"0123456789abcdef");

/// A held node, and the transaction that created it.
const NODE: &str = "/locks/a-0001";
const CZXID: Zxid = Zxid(40);

/// A session, the server that it talks to, and the time.
struct World {
    session: Session<u32>,
    now: Instant,
    to_server: BytesMut,
    to_client: BytesMut,
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn config(lease: LeaseMode) -> Config {
    Config { session_timeout: TIMEOUT, lease, ..Config::default() }
}

impl World {
    fn new(config: Config) -> Self {
        let now = Instant::from_start(seconds(100.0));
        Self {
            session: Session::new(config, now),
            now,
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
        }
    }

    /// A connected session; the events so far have been taken.
    fn connected() -> Self {
        Self::connected_with(config(LeaseMode::Quorum))
    }

    fn connected_with(config: Config) -> Self {
        let mut world = Self::new(config);
        world.connect(7);
        world.events();
        world
    }

    /// A session with a hold that heartbeats prove.
    fn holding() -> Self {
        let mut world = Self::connected();
        world.hold("/held");
        world.idle(TIMEOUT);
        world
    }

    /// A session with a create and a read in flight, with the tokens 1 and 2.
    fn asking() -> Self {
        let mut world = Self::connected();
        world.submit(create("/a"), 1);
        world.submit(get_data("/a"), 2);
        world
    }

    /// A client that accepts frames of at most a thousand bytes.
    fn with_short_frames() -> Self {
        Self::connected_with(Config { max_frame: 1_000, ..config(LeaseMode::Quorum) })
    }

    fn connect(&mut self, session: i64) -> ConnectRequest {
        let request = self.shake();
        self.answer_handshake(session).unwrap();
        request
    }

    /// Connects, and takes the handshake request, which is not answered yet.
    fn shake(&mut self) -> ConnectRequest {
        self.session.handle_connected(self.now);
        self.transmit();
        let frame = split_frame(&mut self.to_server, MAX_FRAME).unwrap().unwrap();
        ConnectRequest::decode(&mut Decoder::new(frame)).unwrap()
    }

    fn answer_handshake(&mut self, session: i64) -> Result<(), Disconnect> {
        self.answer_handshake_with(session, TIMEOUT)
    }

    fn answer_handshake_with(&mut self, session: i64, timeout: Duration) -> Result<(), Disconnect> {
        let response = if session == 0 {
            ConnectResponse::expired(Some(false))
        } else {
            ConnectResponse {
                protocol_version: 0,
                timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
                session_id: SessionId(session),
                password: PASSWORD,
                read_only: Some(false),
            }
        };
        write_frame(&mut self.to_client, |out| response.encode(out));
        self.deliver()
    }

    fn lose_connection(&mut self) {
        self.to_client.clear();
        self.to_server.clear();
        self.session.handle_disconnected(self.now);
    }

    /// Loses the connection, and resumes the session on another server.
    fn reconnect(&mut self) {
        self.lose_connection();
        self.connect(7);
    }

    /// Connects to a server that reports the session as expired.
    fn expire(&mut self) {
        self.shake();
        assert_eq!(self.answer_handshake(0), Err(Disconnect::SessionExpired));
        self.lose_connection();
    }

    fn transmit(&mut self) {
        while let Some(bytes) = self.session.poll_transmit() {
            self.to_server.extend_from_slice(&bytes);
        }
    }

    fn deliver(&mut self) -> Result<(), Disconnect> {
        self.session.handle_input(self.now, &mut self.to_client)
    }

    /// The requests that the client has sent and the server has not processed.
    fn requests(&mut self) -> Vec<(i32, Request)> {
        self.transmit();
        let mut requests = Vec::new();
        while let Some(frame) = split_frame(&mut self.to_server, MAX_FRAME).unwrap() {
            let mut input = Decoder::new(frame);
            let header = RequestHeader::decode(&mut input).unwrap();
            requests.push((header.xid, Request::decode(header.op, &mut input).unwrap()));
        }
        requests
    }

    fn request(&mut self) -> (i32, Request) {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    /// Takes the only request, and answers it.
    fn answer(&mut self, result: Result<Response, ErrorCode>) -> Request {
        let (xid, request) = self.request();
        self.reply(xid, result).unwrap();
        request
    }

    fn reply(&mut self, xid: i32, result: Result<Response, ErrorCode>) -> Result<(), Disconnect> {
        self.reply_at(xid, 50, result)
    }

    /// Like [`reply`](Self::reply), from a server that has applied this transaction.
    fn reply_at(
        &mut self,
        xid: i32,
        zxid: i64,
        result: Result<Response, ErrorCode>,
    ) -> Result<(), Disconnect> {
        let error = result.as_ref().err().map_or(0, |code| code.code());
        write_frame(&mut self.to_client, |out| {
            ReplyHeader { xid, zxid: Zxid(zxid), error }.encode(out);
            if let Ok(response) = &result {
                response.encode(out);
            }
        });
        self.deliver()
    }

    /// The beginning of a reply with this length.
    fn begin_reply(&mut self, xid: i32, len: i32) {
        self.to_client.extend_from_slice(&len.to_be_bytes());
        ReplyHeader { xid, zxid: Zxid(50), error: 0 }.encode(&mut self.to_client);
    }

    fn notify(&mut self, kind: EventKind, path: &str) {
        self.notify_at(Zxid(-1), kind, path);
    }

    fn notify_at(&mut self, zxid: Zxid, kind: EventKind, path: &str) {
        let header = ReplyHeader { xid: xid::NOTIFICATION, zxid, error: 0 };
        let event = Notification { kind, state: KeeperState::SyncConnected, path: path.into() };
        write_frame(&mut self.to_client, |out| {
            header.encode(out);
            event.encode(out);
        });
        self.deliver().unwrap();
    }

    fn pass(&mut self, time: Duration) -> Result<(), Disconnect> {
        self.now = self.now + time;
        self.session.handle_timeout(self.now)
    }

    /// Advances the time on a healthy connection, where pings and heartbeats are answered at once.
    fn idle(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let next = self.session.poll_timeout().unwrap_or(end).min(end);
            self.pass(next - self.now).unwrap();
            for (xid, request) in self.requests() {
                let response = match request {
                    Request::Multi(ops) => Response::Multi(vec![OpResult::Check; ops.len()]),
                    _ => Response::Empty,
                };
                self.reply(xid, Ok(response)).unwrap();
            }
        }
    }

    fn timing(&self) -> Timing {
        self.session.timing()
    }

    fn events(&mut self) -> Vec<Event<u32>> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    fn submit(&mut self, request: Request, token: u32) {
        self.session.submit(self.now, request, token);
    }

    fn results(&mut self) -> Vec<(u32, Result<Response, RequestError>)> {
        let replies = self.events().into_iter().filter_map(|event| match event {
            Event::Reply { token, result, .. } => Some((token, result)),
            _ => None,
        });
        replies.collect()
    }

    fn clean_up(&mut self, target: Cleanup, notify: Option<u32>) {
        self.session.clean_up(self.now, target, notify);
    }

    /// Starts a cleanup that deletes this node.
    fn clean_up_node(&mut self, node: &str, notify: Option<u32>) {
        self.clean_up(Cleanup::Node(path(node)), notify);
    }

    /// Starts a cleanup that deletes the nodes with this prefix.
    fn clean_up_prefix(&mut self, parent: &str, prefix: &str, notify: Option<u32>) {
        self.clean_up(Cleanup::ByPrefix { parent: path(parent), prefix: prefix.into() }, notify);
    }

    fn hold(&mut self, node: &str) -> HoldId {
        self.session.hold(self.now, path(node), NameUse::Once)
    }

    /// No server is reachable until the deadline has passed; then one resumes the session.
    fn outage(&mut self) {
        self.lose_connection();
        let deadline = self.deadline().expect("proven");
        self.pass(deadline.since(self.now) + seconds(0.1)).unwrap();
        self.connect(7);
        self.events();
    }

    /// The check and the read behind it that prove a hold of `NODE`. Both must be due.
    fn proof(&mut self) -> (i32, i32) {
        self.pass(Duration::ZERO).unwrap();
        let requests = self.requests();
        let [(check, Request::Multi(ops)), (look, Request::Exists(of))] = &requests[..] else {
            panic!("{requests:?}");
        };
        assert_eq!((ops.len(), of.path.as_str(), of.watch), (1, NODE, false));
        (*check, *look)
    }

    /// Answers both, from a server that has applied this transaction.
    fn answer_proof(
        &mut self,
        zxid: i64,
        check: Result<Response, ErrorCode>,
        look: Result<Response, ErrorCode>,
    ) {
        let (check_xid, look_xid) = self.proof();
        self.reply_at(check_xid, zxid, check).unwrap();
        self.reply_at(look_xid, zxid, look).unwrap();
    }

    /// Binds requests submitted from now on to a hold.
    fn bind(&mut self, id: HoldId) {
        let bound = self.session.binding(id).expect("it is held");
        self.session.bind(vec![bound]);
    }

    fn is_proven(&self, id: HoldId) -> bool {
        self.session.is_proven(self.now, id)
    }

    /// Reads the data of a node, with a watch.
    fn watch_data(&mut self, node: &str, token: u32) -> WatchId {
        self.session.submit_watching(self.now, get_data(node), WatchKind::Data, token)
    }

    fn deadline(&self) -> Option<Instant> {
        self.session.lease().deadline
    }
}

fn create(path: &str) -> Request {
    let (path, data, acl) = (path.into(), Bytes::new().into(), vec![].into());
    Request::Create2(CreateRequest { path, data, acl, flags: 3 })
}

fn get_data(path: &str) -> Request {
    Request::GetData(PathWatchRequest { path: path.into(), watch: false })
}

fn exists(path: &str) -> Request {
    Request::Exists(PathWatchRequest { path: path.into(), watch: false })
}

/// A create with this much data.
fn large(path: String, bytes: usize) -> Request {
    let data = Bytes::from(vec![0; bytes]).into();
    Request::Create(CreateRequest { path, data, acl: vec![].into(), flags: 0 })
}

fn delete(path: &str) -> Request {
    Request::Delete(DeleteRequest { path: path.into(), version: -1 })
}

fn path(text: &str) -> ZnodePath {
    ZnodePath::new(text).unwrap()
}

fn created() -> Result<Response, ErrorCode> {
    Ok(Response::Created { path: "/a".into(), stat: Stat::default() })
}

/// The reply to a read of a node.
fn stat(czxid: Zxid, owner: i64) -> Result<Response, ErrorCode> {
    Ok(Response::Stat(Stat { czxid, ephemeral_owner: SessionId(owner), ..Stat::default() }))
}

/// The reply to a heartbeat.
fn checked(nodes: usize) -> Result<Response, ErrorCode> {
    Ok(Response::Multi(vec![OpResult::Check; nodes]))
}

fn is_multi((_, request): &(i32, Request)) -> bool {
    matches!(request, Request::Multi(_))
}

fn data() -> Result<Response, ErrorCode> {
    Ok(Response::Data { data: Bytes::new().into(), stat: Stat::default() })
}

/// A create with borrowed parts.
fn borrowed() -> Create<'static> {
    static NOTHING: Bytes = Bytes::new();
    Create { path: "/b", data: &NOTHING, mode: CreateMode::Persistent, acl: None }
}
