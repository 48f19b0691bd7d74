//! The tree thread, held up, and at rest.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;

use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, PASSWORD_LEN, Record, SessionId, Zxid, split_frame,
    write_frame,
};

use super::*;
use crate::Engine;

#[cfg(target_os = "linux")]
fn commit_threads() -> std::collections::HashSet<String> {
    use std::fs;

    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_one = |id: &String| {
        let name = fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.starts_with("lockkeeper-comm"))
    };
    tasks.map(|task| task.file_name().to_string_lossy().into_owned()).filter(is_one).collect()
}

/// What a load has left goes back: seen by the commit thread, which does so by its end.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn when_a_load_is_over_another_commit_thread_goes_on() {
    let engine = Engine::builder().start().await.unwrap();
    // A thread names itself.
    let mut before = commit_threads();
    while before.is_empty() {
        before = commit_threads();
    }
    let client = come(&engine, None);
    answer(&client);
    let mut pings = BytesMut::new();
    for _ in 0..1_000 {
        write_frame(&mut pings, |out| out.extend_from_slice(&[255, 255, 255, 254, 0, 0, 0, 11]));
    }
    (&client).write_all(&pings).unwrap();
    let since = Instant::now();
    while commit_threads().is_empty() || !commit_threads().is_disjoint(&before) {
        assert!(since.elapsed() < Duration::from_secs(60), "in vain");
        engine.skip_time(Duration::from_secs(1)).await;
    }
    answer(&come(&engine, None));
}

const TICK: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_millis(200);

/// Sends a handshake for a session, or for a new one.
fn come(engine: &Engine, session: Option<&ConnectResponse>) -> TcpStream {
    let mut stream = TcpStream::connect(engine.addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let none = Bytes::from_static(&[0; PASSWORD_LEN]);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms: TIMEOUT.as_millis() as i32,
        session_id: session.map_or(SessionId::NONE, |known| known.session_id),
        password: session.map_or(none, |known| known.password.clone()),
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    write_frame(&mut out, |out| request.encode(out));
    stream.write_all(&out).unwrap();
    stream
}

fn answer(mut stream: &TcpStream) -> ConnectResponse {
    let mut bytes = BytesMut::new();
    loop {
        let mut part = [0; 256];
        let read = stream.read(&mut part).unwrap();
        assert_ne!(read, 0, "the engine has ended the connection");
        bytes.extend_from_slice(&part[..read]);
        if let Some(frame) = split_frame(&mut bytes, 1024).unwrap() {
            return ConnectResponse::decode(&mut Decoder::new(frame)).unwrap();
        }
    }
}

/// All that arrives while the tree thread is held up is heard before any session ends, a handshake on
/// a new connection as well.
#[tokio::test]
async fn who_comes_back_while_the_engine_is_held_up_keeps_the_session() {
    let engine = Engine::builder().tick(TICK).start().await.unwrap();
    let first = come(&engine, None);
    let session = answer(&first);
    assert_eq!(session.timeout_ms, TIMEOUT.as_millis() as i32);
    drop(first);

    let (held, is_held) = channel();
    let (let_go, go_on) = channel::<()>();
    let hold = Box::new(move |_: &TreeLoop| {
        held.send(()).unwrap();
        // Until the other end is dropped.
        let _ = go_on.recv();
    });
    assert!(engine.shared.events.send(Event::Look(hold)).is_ok());
    is_held.recv().unwrap();
    let second = come(&engine, Some(&session));
    // The engine's clock goes on while it is held up, and that is what this is about.
    std::thread::sleep(2 * TIMEOUT);
    drop(let_go);
    let back = answer(&second);
    assert_eq!(back.session_id, session.session_id);
    assert_eq!(back.timeout_ms, session.timeout_ms, "the session is over");
}
