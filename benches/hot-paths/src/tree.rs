//! The server: frames in; changes and outputs out.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_tree::{Config, ConnectionId, Entropy, Now, Output, Server};
use lockkeeper_wire::{
    AclList, ConnectRequest, CreateMode, CreateRequest, Decoder, DeleteRequest, Op, OpCode,
    PathWatchRequest, Record as _, ReplyHeader, Request, Response, split_frame, xid,
};

use crate::codec::create_request;

const LOCK: &str = "/lock";
pub(crate) const CONNECTION: ConnectionId = ConnectionId(1);

pub(crate) struct Zeros;

impl Entropy for Zeros {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// A server with one client.
struct World {
    server: Server,
    now: Now,
    xid: i32,
}

impl World {
    /// A server with a client, and the lock's node.
    fn new() -> Self {
        let server = Server::new(Config::default(), Box::new(Zeros));
        let now = Now { monotonic: Duration::from_secs(100), unix_ms: 1_000_000 };
        let mut world = Self { server, now, xid: 0 };
        world.server.connected(CONNECTION, None);
        let hello = ConnectRequest::new_session(10_000);
        let frame = frame(|out| hello.encode(out));
        world.server.handle_frame(now, CONNECTION, frame);
        world.send(&Request::Create(CreateRequest {
            path: LOCK.to_owned(),
            data: Bytes::new().into(),
            acl: AclList::OPEN,
            flags: CreateMode::Persistent.flags(),
        }));
        world.outputs();
        world
    }

    fn send(&mut self, request: &Request) {
        self.xid += 1;
        let xid = self.xid;
        let frame = frame(|out| request.encode(xid, out));
        self.server.handle_frame(self.now, CONNECTION, frame);
    }

    /// Enters the line, and lists it.
    fn enter(&mut self) {
        self.send(&create_request(LOCK));
        let path = LOCK.to_owned();
        self.send(&Request::GetChildren2(PathWatchRequest { path, watch: false }));
    }

    fn delete(&mut self, path: String) {
        self.send(&Request::Delete(DeleteRequest { path, version: -1 }));
    }

    /// What a round ends with.
    fn outputs(&mut self) -> Vec<(ConnectionId, Output)> {
        black_box(self.server.take_changes());
        self.server.take_outputs()
    }
}

/// A lock that nobody else wants: one round to enter, one to leave.
pub(crate) fn cycle(iterations: u32) {
    let mut world = World::new();
    for _ in 0..iterations {
        world.enter();
        let node = created(world.outputs());
        world.delete(node);
        black_box(world.outputs());
    }
}

/// A line of 64: one enters at the end and watches the one before; the first leaves, which tells
/// the second.
pub(crate) fn hand_off(iterations: u32) {
    const LINE: u32 = 64;
    let mut world = World::new();
    let mut line = VecDeque::new();
    for count in 0..LINE + iterations {
        world.enter();
        let own = created(world.outputs());
        if let Some(ahead) = line.back() {
            let path = String::clone(ahead);
            world.send(&Request::GetData(PathWatchRequest { path, watch: true }));
            black_box(world.outputs());
        }
        line.push_back(own);
        if count >= LINE
            && let Some(first) = line.pop_front()
        {
            world.delete(first);
            black_box(world.outputs());
        }
    }
}

/// Creates of 64 nodes below a parent that gets ever more, in one transaction.
pub(crate) fn multi(iterations: u32) {
    const CREATES: u32 = 64;
    let mut world = World::new();
    for round in 0..iterations {
        let create = |number| {
            Op::Create(CreateRequest {
                path: format!("{LOCK}/n-{}", round * CREATES + number),
                data: Bytes::new().into(),
                acl: AclList::OPEN,
                flags: CreateMode::Persistent.flags(),
            })
        };
        world.send(&Request::Multi((0..CREATES).map(create).collect()));
        black_box(world.outputs());
    }
}

fn frame(encode: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.freeze()
}

/// The path in the reply to a create.
fn created(outputs: Vec<(ConnectionId, Output)>) -> String {
    let mut bytes = BytesMut::new();
    for (_, output) in outputs {
        if let Output::Send(frames) = output {
            bytes.extend_from_slice(&frames);
        }
    }
    while let Ok(Some(frame)) = split_frame(&mut bytes, 1 << 20) {
        let mut input = Decoder::new(frame);
        let header = ReplyHeader::decode(&mut input).expect("a good header");
        if header.xid != xid::NOTIFICATION
            && let Ok(Response::Created { path, .. }) =
                Response::decode(OpCode::Create2, &mut input)
        {
            return path;
        }
    }
    panic!("nothing was created");
}
