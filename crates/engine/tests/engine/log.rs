//! What the log says of clients that run into limits: one line for each kind, and no secrets (S9).

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_engine::Engine;
use lockkeeper_wire::{AuthRequest, CheckRequest, CreateMode, Op, PathWatchRequest, Request};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::client::{Client, eventually, exists, word};

const LONG: Duration = Duration::from_secs(30);

/// Keeps the lines from warnings up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn lines_with(&self, part: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// S9 for the secret.
#[tokio::test]
async fn s9_each_limit_has_one_line_however_often_it_is_met() {
    let log = Log::default();
    let _here = tracing::subscriber::set_default(log.clone());
    let builder = Engine::builder().max_frame(700).max_watches(1).max_multi(2).max_sessions(1);
    let engine = builder.max_connections(2).start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let secret = AuthRequest {
        kind: 0,
        scheme: "digest".to_owned(),
        auth: Bytes::from_static(b"user:very-secret"),
    };
    client.call(Request::Auth(secret)).unwrap();
    for i in 0..20 {
        client
            .create(&format!("/a-node-with-a-rather-long-name-{i:04}"), CreateMode::Persistent)
            .unwrap();
    }
    client.call(exists("/watched", true)).unwrap_err();
    for _ in 0..20 {
        let children = PathWatchRequest { path: "/".to_owned(), watch: false };
        assert_eq!(client.call(Request::GetChildren(children)), Err(-5));
        assert_eq!(client.call(exists("/another", true)), Err(-127));
        let check = || Op::Check(CheckRequest { path: "/".to_owned(), version: -1 });
        let multi = Request::Multi((0..3).map(|_| check()).collect());
        assert_eq!(client.call(multi), Err(-8));
    }
    let _second = Client::raw(&engine);
    eventually("no third place is left", || word(&engine, "ruok").is_empty());
    for _ in 0..20 {
        assert!(Client::raw(&engine).rest().is_empty());
    }
    for part in [
        "is over the limit of 700, and its client got an error",
        "a multi of 3 operations is over the limit of 2",
        "a client has watches on 1 paths, which is the limit",
        "connection refused: 2 connections are open, which is the limit",
    ] {
        assert_eq!(log.lines_with(part), 1, "{part}: {:#?}", log.0.lock().unwrap());
    }
    assert_eq!(log.lines_with("very-secret"), 0);
    assert_eq!(log.lines_with("peer=127.0.0.1:"), 4, "each says who it was");

    // The ones that end a connection.
    drop(_second);
    eventually("there is a place again", || word(&engine, "ruok") == "imok");
    let mut stranger = Client::raw(&engine);
    stranger.send_handshake(LONG);
    assert!(stranger.rest().is_empty());
    assert_eq!(log.lines_with("1 sessions are alive, which is the limit"), 1);
    client.send_bytes(&800_i32.to_be_bytes());
    client.rest();
    eventually("it is said", || {
        log.lines_with("a frame of 800 bytes is over the limit of 700") == 1
    });
}
