//! Sequences of well-formed requests of several sessions.
#![no_main]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use lockkeeper_fuzz::{Stored, Zeros, hello};
use lockkeeper_tree::{Config, ConnectionId, Now, Server};
use lockkeeper_wire::{
    Acl, AddWatchRequest, AuthRequest, CheckRequest, CreateRequest, CreateTtlRequest,
    DeleteRequest, NodeData, Op, PathRequest, PathWatchRequest, Permissions, ReadOp,
    RemoveWatchesRequest, Request, SetAclRequest, SetDataRequest, SetWatchesRequest, Zxid,
};

/// Choices, taken from the front of the input; 0 when there are no more.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        let [first, rest @ ..] = self.0 else { return 0 };
        self.0 = rest;
        *first
    }

    fn version(&mut self) -> i32 {
        i32::from(self.next() % 4) - 1
    }

    fn data(&mut self) -> Bytes {
        let length = usize::from(self.next() % 9).min(self.0.len());
        let (data, rest) = self.0.split_at(length);
        self.0 = rest;
        Bytes::copy_from_slice(data)
    }

    fn node_data(&mut self) -> NodeData {
        match self.next() % 5 {
            0 => NodeData::NULL,
            _ => self.data().into(),
        }
    }

    fn path(&mut self) -> String {
        let mut path = String::new();
        for _ in 0..=self.next() % 3 {
            let segments =
                ["/a", "/b", "/c-", "/zookeeper", "/quota", "/", "", "/a-0000000000", "/\u{1f512}"];
            path.push_str(segments[usize::from(self.next()) % segments.len()]);
        }
        path
    }

    fn acl(&mut self) -> Vec<Acl> {
        let ids = [("world", "anyone"), ("auth", ""), ("digest", "u:h"), ("ip", "127.0.0.1/8")];
        let mut acl = Vec::new();
        for _ in 0..self.next() % 3 {
            let (scheme, id) = ids[usize::from(self.next()) % ids.len()];
            let permissions = Permissions(i32::from(self.next() % 33));
            acl.push(Acl { permissions, scheme: scheme.to_owned(), id: id.to_owned() });
        }
        if acl.is_empty() { Acl::open() } else { acl }
    }

    fn create(&mut self) -> CreateRequest {
        CreateRequest {
            path: self.path(),
            data: self.node_data(),
            acl: self.acl().into(),
            flags: i32::from(self.next() % 8),
        }
    }

    fn create_ttl(&mut self) -> CreateTtlRequest {
        let CreateRequest { path, data, acl, flags } = self.create();
        CreateTtlRequest { path, data, acl, flags, ttl_ms: i64::from(self.next()) * 100 }
    }

    fn op(&mut self) -> Op {
        match self.next() % 7 {
            0 => Op::Create(self.create()),
            1 => Op::Create2(self.create()),
            2 => Op::CreateContainer(self.create()),
            3 => Op::CreateTtl(self.create_ttl()),
            4 => Op::Delete(DeleteRequest { path: self.path(), version: self.version() }),
            5 => Op::SetData(self.set_data()),
            _ => Op::Check(CheckRequest { path: self.path(), version: self.version() }),
        }
    }

    fn set_data(&mut self) -> SetDataRequest {
        SetDataRequest { path: self.path(), data: self.node_data(), version: self.version() }
    }

    fn paths(&mut self) -> Vec<String> {
        (0..self.next() % 3).map(|_| self.path()).collect()
    }

    fn watched(&mut self) -> PathWatchRequest {
        PathWatchRequest { path: self.path(), watch: self.next().is_multiple_of(2) }
    }

    fn remove_watches(&mut self) -> RemoveWatchesRequest {
        RemoveWatchesRequest { path: self.path(), kind: i32::from(self.next() % 7) }
    }

    fn request(&mut self) -> Request {
        match self.next() % 24 {
            0 => Request::Create(self.create()),
            1 => Request::Create2(self.create()),
            2 => Request::CreateContainer(self.create()),
            3 => Request::CreateTtl(self.create_ttl()),
            4 => Request::Delete(DeleteRequest { path: self.path(), version: self.version() }),
            5 => Request::SetData(self.set_data()),
            6 => Request::SetAcl(SetAclRequest {
                path: self.path(),
                acl: self.acl().into(),
                version: self.version(),
            }),
            7..=9 => Request::Multi((0..self.next() % 5).map(|_| self.op()).collect()),
            10 => Request::Exists(self.watched()),
            11 => Request::GetData(self.watched()),
            12 => Request::GetChildren2(self.watched()),
            13 => Request::MultiRead(vec![
                ReadOp::GetData(PathRequest { path: self.path() }),
                ReadOp::GetChildren(PathRequest { path: self.path() }),
            ]),
            14 => Request::AddWatch(AddWatchRequest {
                path: self.path(),
                mode: i32::from(self.next() % 3),
            }),
            15 => Request::RemoveWatches(self.remove_watches()),
            16 => Request::CheckWatches(self.remove_watches()),
            17 => Request::SetWatches2(SetWatchesRequest {
                relative_zxid: Zxid(i64::from(self.next())),
                data: self.paths(),
                exist: self.paths(),
                child: self.paths(),
                persistent: self.paths(),
                persistent_recursive: self.paths(),
            }),
            18 => Request::GetEphemerals(PathRequest { path: self.path() }),
            19 => Request::GetAllChildrenNumber(PathRequest { path: self.path() }),
            20 => Request::GetAcl(PathRequest { path: self.path() }),
            21 => Request::Auth(AuthRequest {
                kind: 0,
                scheme: "digest".to_owned(),
                auth: self.data(),
            }),
            22 => Request::WhoAmI,
            _ => Request::CloseSession,
        }
    }
}

fn new_server() -> Server {
    let mut config = Config::default();
    config.ttl_nodes = true;
    config.reap_interval = Duration::from_secs(1);
    Server::new(config, Box::new(Zeros))
}

fuzz_target!(|data: &[u8]| {
    let mut server = new_server();
    let mut now = Now { monotonic: Duration::from_secs(1), unix_ms: 1_000 };
    let mut choices = Choices(data);
    let mut stored = Stored::default();
    let mut connections = [0_u64; 3];
    let mut next = 1;
    while !choices.0.is_empty() {
        let who = usize::from(choices.next() % 3);
        match choices.next() % 16 {
            0 => {
                let passed = Duration::from_millis(u64::from(choices.next()) * 50);
                now.monotonic += passed;
                now.unix_ms += passed.as_millis() as i64;
                while server.next_timeout().is_some_and(|at| at <= now.monotonic) {
                    server.handle_timeout(now);
                }
            }
            1 => server.disconnected(ConnectionId(connections[who])),
            2 => {
                connections[who] = next;
                server.connected(ConnectionId(next), Some([127, 0, 0, 1].into()));
                server.handle_frame(now, ConnectionId(next), hello());
                next += 1;
            }
            3 => {
                stored.changes_of(&mut server);
                let _ = server.take_outputs();
            }
            _ => {
                let mut frame = BytesMut::new();
                choices.request().encode(1, &mut frame);
                server.handle_frame(now, ConnectionId(connections[who]), frame.freeze());
            }
        }
    }
    stored.changes_of(&mut server);
    stored.restart(&server, new_server(), now);
});
