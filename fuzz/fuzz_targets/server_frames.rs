//! Any frames, on a new connection and on an open session.
#![no_main]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use lockkeeper_fuzz::{Stored, Zeros, hello};
use lockkeeper_tree::{Config, ConnectionId, Now, Output, Server};
use lockkeeper_wire::{MAX_FRAME, split_frame};

fn now() -> Now {
    Now { monotonic: Duration::from_secs(1), unix_ms: 1_000 }
}

fn new_server() -> Server {
    let mut config = Config::default();
    config.ttl_nodes = true;
    Server::new(config, Box::new(Zeros))
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

fuzz_target!(|data: &[u8]| {
    let mut server = new_server();
    for id in 0..4 {
        server.connected(ConnectionId(id), Some([127, 0, 0, 1].into()));
    }
    for id in 0..2 {
        server.handle_frame(now(), ConnectionId(id), hello());
    }
    let mut stored = Stored::default();
    for (who, frame) in frames(data) {
        server.handle_frame(now(), ConnectionId(who), frame);
        stored.changes_of(&mut server);
        for (_, output) in server.take_outputs() {
            let Output::Send(bytes) = output else { continue };
            let mut bytes = BytesMut::from(&bytes[..]);
            while split_frame(&mut bytes, 4 * MAX_FRAME).expect("a good length").is_some() {}
            assert!(bytes.is_empty(), "a part of a frame");
        }
    }
    stored.changes_of(&mut server);
    stored.restart(&server, new_server(), now());
});
