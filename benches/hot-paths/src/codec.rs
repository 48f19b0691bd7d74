//! Messages to bytes and back.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    AclList, CreateMode, CreateRequest, Decoder, OpCode, Record as _, Request, RequestHeader,
    Response, SessionId, Stat, Zxid, split_frame, write_frame,
};

/// A lock's create: encoded, split off, decoded.
pub(crate) fn create(iterations: u32) {
    let mut buffer = BytesMut::new();
    for xid in 0..iterations {
        let request = black_box(create_request("/locks/orders"));
        write_frame(&mut buffer, |out| request.encode(xid.cast_signed(), out));
        let frame = split_frame(&mut buffer, 1 << 20).expect("a good frame").expect("a whole one");
        let mut input = Decoder::new(frame);
        let header = RequestHeader::decode(&mut input).expect("a good header");
        black_box(Request::decode(header.op, &mut input).expect("a good request"));
    }
}

/// A line of a hundred: encoded, split off, decoded.
pub(crate) fn listing(iterations: u32) {
    let names = (0..100).map(|index| format!("{}{index:010}", prefix()));
    let response = Response::Children { names: names.collect(), stat: stat() };
    let mut buffer = BytesMut::new();
    for _ in 0..iterations {
        write_frame(&mut buffer, |out| black_box(&response).encode(out));
        let frame = split_frame(&mut buffer, 1 << 20).expect("a good frame").expect("a whole one");
        let mut input = Decoder::new(frame);
        black_box(Response::decode(OpCode::GetChildren2, &mut input).expect("a good listing"));
    }
}

/// What a lock sends to enter the line.
pub(crate) fn create_request(lock: &str) -> Request {
    Request::Create2(CreateRequest {
        path: format!("{lock}/{}", prefix()),
        data: Bytes::from_static(&[0x55; 100]).into(),
        acl: AclList::OPEN,
        flags: CreateMode::EphemeralSequential.flags(),
    })
}

pub(crate) fn prefix() -> &'static str {
    "_c_01234567-89ab-cdef-0123-456789abcdef-lock-"
}

pub(crate) fn stat() -> Stat {
    Stat {
        czxid: Zxid(1),
        mzxid: Zxid(1),
        ctime: 1,
        mtime: 1,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: SessionId(1),
        data_length: 100,
        num_children: 0,
        pzxid: Zxid(1),
    }
}
