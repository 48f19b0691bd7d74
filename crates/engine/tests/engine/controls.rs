//! The controls for tests, used as in a test.

use std::time::Duration;

use lockkeeper_engine::test::{self, DurableEngine};
use lockkeeper_wire::{CreateMode, CreateRequest, CreateTtlRequest, Request};

use crate::client::{Client, LONG, create, eventually, persistent};

#[tokio::test]
async fn a_fresh_engine_is_empty_and_grants_the_timeout_asked_for() {
    let (one, other) = (test::engine().await, test::engine().await);
    let mut client = Client::connect(&one, LONG);
    client.create("/a", CreateMode::Persistent).unwrap();
    assert!(!Client::connect(&other, LONG).exists("/a"));
    for timeout in [Duration::from_millis(100), Duration::from_secs(3_600)] {
        let granted = Client::raw(&one).handshake(timeout).unwrap().timeout_ms;
        assert_eq!(granted as u128, timeout.as_millis());
    }
}

#[tokio::test]
async fn one_connection_is_dropped_and_its_session_lives_on() {
    let engine = test::engine().await;
    let mut cut = Client::connect(&engine, LONG);
    let mut other = Client::connect(&engine, LONG);
    assert!(engine.drop_connection(cut.session).await);
    assert!(cut.reply().is_err());
    other.ping();
    assert_eq!(engine.sessions(), 2);
    eventually("it is gone", || engine.stats().connections == 1);
    assert!(!engine.drop_connection(cut.session).await, "it has no connection now");
    let (_, response) = Client::resume(&engine, &cut.ticket(), LONG);
    assert_eq!(response.session_id, cut.session);
}

#[tokio::test]
async fn skipped_time_ends_silent_sessions_and_old_nodes() {
    let engine = test::engine().await;
    let mut silent = Client::connect(&engine, LONG);
    silent.create("/lock", CreateMode::Ephemeral).unwrap();
    let mut client = Client::connect(&engine, LONG * 10);
    let CreateRequest { path, data, acl, .. } = persistent("/ttl");
    let flags = CreateMode::PersistentTtl.flags();
    let ttl = CreateTtlRequest { path, data, acl, flags, ttl_ms: 3_600_000 };
    client.call(Request::CreateTtl(ttl)).unwrap();

    engine.skip_time(LONG * 2).await;
    eventually("the silent session has expired", || engine.sessions() == 1);
    assert!(!client.exists("/lock") && client.exists("/ttl"));
    for _ in 0..30 {
        engine.skip_time(LONG * 5).await;
        client.ping();
    }
    eventually("the node is overdue", || !client.exists("/ttl"));
    assert_eq!(engine.sessions(), 1);
}

#[tokio::test]
async fn a_restart_keeps_what_was_acknowledged_even_after_a_failure() {
    let mut engine = DurableEngine::start().await;
    let mut client = Client::connect(&engine, LONG);
    client.create("/kept", CreateMode::Persistent).unwrap();
    engine.fail_next_commit();
    client.send(&[create("/lost", CreateMode::Persistent)]);
    assert!(client.reply().is_err());
    engine.restart().await;
    let mut client = Client::connect(&engine, LONG);
    assert!(client.exists("/kept") && !client.exists("/lost"));
    let directory = engine.directory().to_owned();
    assert!(directory.exists());
    drop(engine);
    assert!(!directory.join("lockkeeper.redb").exists());
}
