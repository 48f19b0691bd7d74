//! Any frames, on a new connection and on an open session.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use lockkeeper_tree::{Config, ConnectionId, Entropy, Now, Output, Server, Table};
use lockkeeper_wire::{ConnectRequest, MAX_FRAME, Record, SessionId, Zxid, split_frame};

struct Zeros;

impl Entropy for Zeros {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

fn now() -> Now {
    Now { monotonic: Duration::from_secs(1), unix_ms: 1_000 }
}

fn new_server() -> Server {
    let mut config = Config::default();
    config.ttl_nodes = true;
    Server::new(config, Box::new(Zeros))
}

fn hello() -> Bytes {
    let mut out = BytesMut::new();
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms: 10_000,
        session_id: SessionId::NONE,
        password: Bytes::from_static(&[0; 16]),
        read_only: Some(false),
    }
    .encode(&mut out);
    out.freeze()
}

/// The first byte of a frame chooses the connection, the next two are its length.
fn frames(mut data: &[u8]) -> impl Iterator<Item = (u64, Bytes)> {
    std::iter::from_fn(move || {
        let [who, high, low, rest @ ..] = data else { return None };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        data = rest;
        Some((u64::from(who % 4), Bytes::copy_from_slice(frame)))
    })
}

fn store(server: &mut Server, stored: &mut BTreeMap<(Table, Bytes), Bytes>) {
    for change in server.take_changes() {
        match change.value {
            Some(value) => stored.insert((change.table, change.key), value),
            None => stored.remove(&(change.table, change.key)),
        };
    }
}

fuzz_target!(|data: &[u8]| {
    let mut server = new_server();
    for id in 0..4 {
        server.connected(ConnectionId(id), Some([127, 0, 0, 1].into()));
    }
    for id in 0..2 {
        server.handle_frame(now(), ConnectionId(id), hello());
    }
    let mut stored = BTreeMap::new();
    for (who, frame) in frames(data) {
        server.handle_frame(now(), ConnectionId(who), frame);
        store(&mut server, &mut stored);
        for (_, output) in server.take_outputs() {
            let Output::Send(bytes) = output else { continue };
            let mut bytes = BytesMut::from(&bytes[..]);
            while split_frame(&mut bytes, 4 * MAX_FRAME).expect("a good length").is_some() {}
            assert!(bytes.is_empty(), "a part of a frame");
        }
    }
    store(&mut server, &mut stored);
    let mut again = new_server();
    for ((table, key), value) in stored {
        again.restore(table, &key, value).expect("our own record");
    }
    again.finish_restore(now()).expect("our own state");
    let (before, after) = (server.stats(), again.stats());
    assert_eq!((before.nodes, before.ephemerals), (after.nodes, after.ephemerals));
    assert_eq!((before.sessions, before.data_bytes), (after.sessions, after.data_bytes));
});
