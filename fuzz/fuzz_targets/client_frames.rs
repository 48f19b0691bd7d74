//! Any frames from a server, with and without requests waiting.
#![no_main]

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use lockkeeper_session::{Config, Event, Instant, Session};
use lockkeeper_wire::{
    ConnectResponse, PathRequest, PathWatchRequest, Record, Request, SessionId, write_frame,
};

fn welcome(out: &mut BytesMut) {
    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 10_000,
        session_id: SessionId(7),
        password: Bytes::from_static(&[1; 16]),
        read_only: Some(false),
    };
    write_frame(out, |out| response.encode(out));
}

fn request(kind: u8) -> Request {
    let path = "/a".to_owned();
    match kind % 7 {
        0 => Request::GetData(PathWatchRequest { path, watch: true }),
        1 => Request::GetChildren2(PathWatchRequest { path, watch: false }),
        2 => Request::GetAcl(PathRequest { path }),
        3 => Request::MultiRead(Vec::new()),
        4 => Request::Multi(Vec::new()),
        5 => Request::WhoAmI,
        _ => Request::Exists(PathWatchRequest { path, watch: true }),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut now = Instant::from_start(Duration::from_secs(1));
    let mut session = Session::<u32>::new(Config::default(), now);
    let (mut asked, mut answered) = (0_u32, vec![]);
    let mut rest = data;
    session.handle_connected(now);
    while let [kind, argument, more @ ..] = rest {
        rest = more;
        let mut input = BytesMut::new();
        match kind % 8 {
            0 => welcome(&mut input),
            1 => {
                session.submit(now, request(*argument), asked);
                asked += 1;
                answered.push(false);
            }
            2 => now = now + Duration::from_millis(u64::from(*argument) * 20),
            3 => session.handle_disconnected(now),
            4 => session.handle_connected(now),
            // A reply whose xid is probably awaited.
            5 => {
                let body = &rest[..rest.len().min(usize::from(*argument))];
                rest = &rest[body.len()..];
                write_frame(&mut input, |out| {
                    out.put_i32(asked.saturating_sub(1) as i32);
                    out.put_i64(1);
                    out.put_slice(body);
                });
            }
            6 => {
                let body = &rest[..rest.len().min(usize::from(*argument))];
                rest = &rest[body.len()..];
                write_frame(&mut input, |out| out.put_slice(body));
            }
            _ => input.put_slice(&rest[..rest.len().min(usize::from(*argument))]),
        }
        if !input.is_empty() && session.handle_input(now, &mut input).is_err() {
            session.handle_disconnected(now);
        }
        let _ = session.handle_timeout(now);
        while session.poll_transmit().is_some() {}
        while let Some(event) = session.poll_event() {
            if let Event::Reply { token, .. } = event {
                let seen = &mut answered[token as usize];
                assert!(!*seen, "answered twice");
                *seen = true;
            }
        }
    }
});
