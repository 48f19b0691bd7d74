//! Requests, their order, and the time of their answers.

use std::time::Duration;

use lockkeeper_engine::{Durability, Engine};
use lockkeeper_wire::{CreateMode, EventKind, Request};

use crate::client::{Client, LONG, create, eventually, exists};

/// Engines of every durability; the directory lives as long as the engine.
async fn engines() -> Vec<(Engine, tempfile::TempDir)> {
    let mut engines = Vec::new();
    for durability in [Durability::Memory, Durability::Os, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let builder = Engine::builder().data_dir(dir.path()).durability(durability);
        engines.push((builder.start().await.unwrap(), dir));
    }
    engines
}

#[tokio::test]
async fn a_session_creates_and_another_sees_it() {
    for (engine, _dir) in engines().await {
        let mut one = Client::connect(&engine, LONG);
        let mut other = Client::connect(&engine, LONG);
        assert_ne!(one.session, other.session);
        assert_eq!(engine.sessions(), 2);
        assert_eq!(engine.idle_since(), None);
        assert_eq!(one.create("/a", CreateMode::Persistent).unwrap(), "/a");
        assert!(other.exists("/a"));
        assert_eq!(other.create("/a", CreateMode::Persistent), Err(-110));
        let name = one.create("/a/n-", CreateMode::EphemeralSequential);
        assert_eq!(name.unwrap(), "/a/n-0000000000");
        assert_eq!(engine.stats().ephemerals, 1);
        one.call(Request::CloseSession).unwrap();
        assert!(one.rest().is_empty(), "closed after the last reply");
        assert!(!other.exists("/a/n-0000000000"));
        engine.stop().await.unwrap();
    }
}

#[tokio::test]
async fn no_reply_leaves_before_its_commit_nor_a_read_of_what_it_wrote() {
    for (engine, _dir) in engines().await {
        let mut writer = Client::connect(&engine, LONG);
        let mut reader = Client::connect(&engine, LONG);
        let before = engine.stats().nodes;
        engine.pause_commits();

        writer.send(&[create("/a", CreateMode::Persistent)]);
        eventually("the tree has the node", || engine.stats().nodes == before + 1);
        reader.send(&[exists("/a", false), Request::Ping]);
        assert!(writer.is_silent() && reader.is_silent());

        engine.resume_commits();
        assert_eq!(writer.reply().unwrap().0.error, 0);
        assert_eq!(reader.reply().unwrap().0.error, 0, "the read saw the new node");
        reader.reply().unwrap();
    }
}

#[tokio::test]
async fn stopping_commits_and_answers_what_was_held_back() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(dir.path()).start();
    let engine = engine.await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let before = engine.stats().nodes;
    engine.pause_commits();
    client.send(&[create("/a", CreateMode::Persistent)]);
    eventually("the tree has the node", || engine.stats().nodes > before);
    engine.stop().await.unwrap();
    assert_eq!(client.reply().unwrap().0.error, 0);
    assert!(client.reply().is_err(), "then the connection ends");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    const COUNT: usize = 5_000;
    for (engine, _dir) in engines().await {
        let mut client = Client::connect(&engine, LONG);
        let requests: Vec<Request> = (0..COUNT)
            .map(|i| match i % 3 {
                0 => create(&format!("/n{i}"), CreateMode::Persistent),
                1 => exists(&format!("/n{}", i - 1), false),
                _ => Request::Sync(lockkeeper_wire::PathRequest { path: "/".to_owned() }),
            })
            .collect();
        client.call_all(&requests);
    }
}

#[tokio::test]
async fn the_handshake_and_the_first_requests_may_come_in_one_packet() {
    let engine = Engine::builder().start().await.unwrap();
    let mut client = Client::raw(&engine);
    client.send_handshake(LONG);
    client.send(&[create("/a", CreateMode::Ephemeral)]);
    client.frame().unwrap();
    assert_eq!(client.reply().unwrap().0.error, 0);
}

#[tokio::test]
async fn an_expired_session_leaves_nothing_and_tells_the_watchers() {
    for (engine, _dir) in engines().await {
        let mut owner = Client::connect(&engine, LONG);
        let mut watcher = Client::connect(&engine, LONG);
        owner.create("/lock", CreateMode::Ephemeral).unwrap();
        watcher.call(exists("/lock", true)).unwrap();

        assert!(engine.expire_session(owner.session).await);
        assert_eq!(watcher.event(), (EventKind::NodeDeleted, "/lock".to_owned()));
        assert!(!watcher.exists("/lock"));
        assert!(owner.reply().is_err(), "its connection ends");
        assert!(!engine.expire_session(owner.session).await, "only once");
    }
}

/// A silent client's session expires by itself, and that of one that pings does not, although no commit succeeds.
#[tokio::test]
async fn sessions_that_ping_survive_a_disk_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let tick = Duration::from_millis(20);
    let timeout = tick * 10;
    let builder = Engine::builder().data_dir(dir.path()).tick(tick);
    let engine = builder.start().await.unwrap();
    let silent = Client::connect(&engine, timeout);
    let mut pinging = Client::connect(&engine, timeout);
    engine.pause_commits();
    let mut pings = 0;
    eventually("the silent session has expired", || {
        pinging.send(&[Request::Ping]);
        pings += 1;
        engine.sessions() == 1
    });
    drop(silent);
    engine.resume_commits();
    for _ in 0..pings {
        pinging.reply().unwrap();
    }
    assert!(!pinging.exists("/nothing"));
}

#[tokio::test]
async fn a_dropped_connection_keeps_its_session() {
    let engine = Engine::builder().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    engine.drop_connections().await;
    assert!(client.reply().is_err());

    let (mut again, response) = Client::resume(&engine, &client.ticket(), LONG);
    assert_eq!(response.session_id, client.session);
    assert!(again.exists("/lock"));

    let mut forged = client.ticket();
    forged.password = bytes::Bytes::from_static(&[7; 16]);
    let (mut refused, response) = Client::resume(&engine, &forged, LONG);
    assert_eq!(response.timeout_ms, 0, "a wrong password");
    assert!(refused.rest().is_empty());
}

#[tokio::test]
async fn a_unix_socket_serves_like_tcp() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/engine.sock");
    let builder = Engine::builder().unix_socket(&path);
    let engine = builder.start().await.unwrap();
    assert_eq!(engine.addr(), None);
    assert_eq!(engine.connect_string(), format!("unix:{}", path.display()));
    let mut client = Client::connect(&engine, LONG);
    client.create("/a", CreateMode::Persistent).unwrap();
    engine.stop().await.unwrap();
    assert!(!path.exists(), "the socket goes with the engine");
}
