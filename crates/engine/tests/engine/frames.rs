//! Bytes that do not follow the protocol: they cost their sender the connection, and do not affect other clients.

use bytes::{BufMut, BytesMut};
use lockkeeper_engine::Engine;
use lockkeeper_wire::{
    CreateMode, MAX_FRAME, OpCode, Record as _, Request, RequestHeader, write_frame,
};

use crate::client::{Client, LONG, create, eventually};
use crate::log::Log;

/// Sends `bytes` before and after a handshake, and checks that only that connection ends.
async fn only_its_sender_is_hurt(bytes: &[u8]) {
    let engine = Engine::builder().start().await.unwrap();
    let mut bystander = Client::connect(&engine, LONG);

    let mut stranger = Client::raw(&engine);
    stranger.send_bytes(bytes);
    stranger.half_close();
    assert!(stranger.rest().is_empty());

    let mut client = Client::connect(&engine, LONG);
    client.send(&[create("/before", CreateMode::Persistent)]);
    client.send_bytes(bytes);
    client.half_close();
    assert!(client.reply().is_ok() || bystander.exists("/before"));
    client.rest();

    bystander.create("/after", CreateMode::Ephemeral).unwrap();
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_no_frame_hurt_only_their_sender() {
    let negative = (-1_i32).to_be_bytes();
    let over_the_limit = (MAX_FRAME as i32 + 1).to_be_bytes();
    let empty = [0; 4];
    let cut_off = b"\0\0\0\x64only this";
    let garbage = b"\0\0\0\x03\xff\xff\xff";
    for bytes in [&negative[..], &over_the_limit, &empty, cut_off, garbage] {
        println!("{bytes:x?}");
        only_its_sender_is_hurt(bytes).await;
    }
}

/// Before the handshake a few KB are enough for every client.
#[tokio::test]
async fn a_large_first_frame() {
    let engine = Engine::builder().start().await.unwrap();
    let mut stranger = Client::raw(&engine);
    stranger.send_bytes(&5_000_i32.to_be_bytes());
    assert!(stranger.rest().is_empty(), "closed at once");
}

/// A frame that arrives byte by byte is a valid frame.
#[tokio::test]
async fn a_request_in_single_bytes() {
    let engine = Engine::builder().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let mut out = BytesMut::new();
    lockkeeper_wire::write_frame(&mut out, |out| {
        create("/a", CreateMode::Persistent).encode(1, out);
    });
    for byte in &out[..] {
        client.send_bytes(&[*byte]);
    }
    assert_eq!(client.reply().unwrap().0.error, 0);
}

/// A request with this body, valid or not.
fn request(xid: i32, op: i32, body: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::new();
    write_frame(&mut bytes, |out| {
        RequestHeader { xid, op }.encode(out);
        out.put_slice(body);
    });
    bytes
}

/// Invalid requests are answered with an error or end their connection, with one line in the log; a length field is
/// trusted only as far as bytes follow.
#[tokio::test]
async fn requests_that_make_no_sense_get_an_error_or_end_their_connection() {
    const HUGE: [u8; 4] = i32::MAX.to_be_bytes();
    const PATH: &[u8] = b"\0\0\0\x02/a";
    let (log, _here) = Log::here();
    let (create, get, multi) = (OpCode::Create, OpCode::GetData, OpCode::Multi);
    // A multi's header: type, done, error.
    let inner = [&OpCode::Multi.code().to_be_bytes()[..], &[0], &(-1_i32).to_be_bytes()].concat();
    for (what, op, body) in [
        ("an unknown operation", 1000, Vec::new()),
        ("a negative operation", i32::MIN, Vec::new()),
        ("a reply's operation", -1, Vec::new()),
        ("nothing after the header", create.code(), Vec::new()),
        ("a path of a negative length", get.code(), i32::MIN.to_be_bytes().to_vec()),
        ("a path of a huge length", get.code(), HUGE.to_vec()),
        ("a path that is not UTF-8", get.code(), b"\0\0\0\x03/\xff\xfe\0".to_vec()),
        ("a list of a huge length", create.code(), [PATH, &[0; 4], &HUGE].concat()),
        ("watches of a huge number", OpCode::SetWatches.code(), [&[0; 8][..], &HUGE].concat()),
        ("a multi without an end", multi.code(), Vec::new()),
        ("a multi within a multi", multi.code(), [&inner[..], &inner].concat()),
    ] {
        // Of each kind, an engine logs at most one line in five seconds.
        let engine = Engine::builder().start().await.unwrap();
        let mut bystander = Client::connect(&engine, LONG);
        let before = log.lines_with("connection closed");
        let is_logged = || log.lines_with("connection closed") == before + 1;
        let mut client = Client::connect(&engine, LONG);
        client.send_bytes(&request(1, op, &body));
        let mut goes_on = false;
        if let Ok((header, _)) = client.reply() {
            assert!(header.xid == 1 && header.error != 0, "{what}: {header:?}");
            client.try_send(&[Request::Ping]);
            goes_on = client.reply().is_ok_and(|(header, _)| header.xid == -2);
        }
        // The client may see its connection end before the engine has written the line.
        if !goes_on {
            eventually(&format!("the line in the log for {what}"), is_logged);
        }
        bystander.ping();
        assert_eq!(engine.stats().nodes, 4, "{what}: nothing was created");
    }
}

/// The client chooses xids: each request has its answer, in order.
#[tokio::test]
async fn a_reused_xid_is_answered_like_any_other() {
    let engine = Engine::builder().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let path = |path: &str| {
        let mut body = (path.len() as i32).to_be_bytes().to_vec();
        body.extend(path.bytes());
        body.push(0);
        body
    };
    for (path, error) in [(path("/"), 0), (path("/none"), -101), (path("/"), 0)] {
        client.send_bytes(&request(7, OpCode::GetData.code(), &path));
        let (header, _) = client.reply().unwrap();
        assert_eq!((header.xid, header.error), (7, error));
    }
    // An empty multi: only its end.
    let end = [&(-1_i32).to_be_bytes()[..], &[1], &(-1_i32).to_be_bytes()].concat();
    client.send_bytes(&request(7, OpCode::Multi.code(), &end));
    assert_eq!(client.reply().unwrap().0.error, 0);
}
