//! The client's session: requests in, bytes out; bytes in, answers out.

use std::hint::black_box;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_session::{Cleanup, Config, Instant, NameUse, Session, WatchKind};
use lockkeeper_wire::{
    ConnectResponse, EventKind, KeeperState, PASSWORD_LEN, PathWatchRequest, Record as _,
    ReplyHeader, Request, Response, SessionId, WatchEvent, ZnodePath, Zxid, write_frame, xid,
};

use crate::codec::{create_request, prefix, stat};

const LOCK: &str = "/lock";

/// A session, and a server that is a few prepared answers.
struct World {
    session: Session<u32>,
    now: Instant,
    xid: i32,
    input: BytesMut,
}

impl World {
    fn new() -> Self {
        let now = Instant::from_start(Duration::from_secs(100));
        let session = Session::new(Config::default(), now);
        let mut world = Self { session, now, xid: 0, input: BytesMut::new() };
        world.session.handle_connected(now);
        let welcome = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 10_000,
            session_id: SessionId(1),
            password: Bytes::from_static(&[0; PASSWORD_LEN]),
            read_only: Some(false),
        };
        write_frame(&mut world.input, |out| welcome.encode(out));
        world.exchange();
        world
    }

    fn answer(&mut self, response: &Response) {
        self.xid += 1;
        let header = ReplyHeader { xid: self.xid, zxid: Zxid(1), error: 0 };
        self.write(&header, |out| response.encode(out));
    }

    fn write(&mut self, header: &ReplyHeader, body: impl FnOnce(&mut BytesMut)) {
        write_frame(&mut self.input, |out| {
            header.encode(out);
            body(out);
        });
    }

    /// Sends what is to be sent, takes what was answered.
    fn exchange(&mut self) {
        while let Some(bytes) = self.session.poll_transmit() {
            black_box(bytes);
        }
        self.session.handle_input(self.now, &mut self.input).expect("good answers");
        while let Some(event) = self.session.poll_event() {
            black_box(event);
        }
        black_box(self.session.poll_timeout());
    }
}

/// A lock that nobody else wants: create and listing, then a delete that must happen.
pub(crate) fn cycle(iterations: u32) {
    let mut world = World::new();
    let node = format!("{LOCK}/{}0000000001", prefix());
    let path = ZnodePath::new(&node).expect("a good path");
    let created = Response::Created { path: node.clone(), stat: stat() };
    let names = vec![path.name().to_owned()];
    let listing = Response::Children { names, stat: stat() };
    for token in 0..iterations {
        world.session.submit(world.now, create_request(LOCK), token);
        let request = PathWatchRequest { path: LOCK.to_owned(), watch: false };
        world.session.submit(world.now, Request::GetChildren2(request), token);
        world.answer(&created);
        world.answer(&listing);
        world.exchange();
        let hold = world.session.hold(world.now, path.clone(), NameUse::Once);
        world.session.unhold(hold);
        world.session.clean_up(world.now, Cleanup::Node(path.clone()), Some(token));
        world.answer(&Response::Empty);
        world.exchange();
    }
}

/// A wait: data with a watch, then its event.
pub(crate) fn watch(iterations: u32) {
    let mut world = World::new();
    let path = format!("{LOCK}/{}0000000001", prefix());
    let data = Response::Data { data: Bytes::from_static(&[0x55; 100]).into(), stat: stat() };
    let event = WatchEvent {
        kind: EventKind::NodeDeleted,
        state: KeeperState::SyncConnected,
        path: path.clone(),
    };
    for token in 0..iterations {
        let request = Request::GetData(PathWatchRequest { path: path.clone(), watch: false });
        black_box(world.session.submit_watching(world.now, request, WatchKind::Data, token));
        world.answer(&data);
        let header = ReplyHeader { xid: xid::NOTIFICATION, zxid: Zxid(1), error: 0 };
        world.write(&header, |out| event.encode(out));
        world.exchange();
    }
}
