//! What one client may take, and the words that need no session.

use std::time::Duration;

use bytes::Bytes;
use lockkeeper_engine::Engine;
use lockkeeper_wire::{CreateMode, PathRequest, Request};

use crate::client::{Client, create_with, eventually, get_data};

const LONG: Duration = Duration::from_secs(30);

fn word(engine: &Engine, word: &str) -> String {
    let mut client = Client::raw(engine);
    client.send_bytes(word.as_bytes());
    String::from_utf8(client.rest()).unwrap()
}

#[tokio::test]
async fn four_letter_words() {
    let engine = Engine::builder().start().await.unwrap();
    let _client = Client::connect(&engine, LONG);
    assert_eq!(word(&engine, "ruok"), "imok");
    assert_eq!(word(&engine, "ruok\n"), "imok", "as typed into a terminal");
    assert_eq!(word(&engine, "isro"), "rw");
    assert_eq!(word(&engine, "kill"), "", "unknown");
    assert_eq!(word(&engine, "GET / HTTP/1.1\r\n\r\n"), "");

    let srvr = word(&engine, "srvr");
    let keys: Vec<&str> = srvr.lines().map(|l| l.split(':').next().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "Zookeeper version",
            "Latency min/avg/max",
            "Received",
            "Sent",
            "Connections",
            "Outstanding",
            "Zxid",
            "Mode",
            "Node count"
        ]
    );
    assert!(srvr.contains("lockkeeper-") && srvr.contains("Connections: 1\n"));
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_until_one_goes() {
    let builder = Engine::builder().max_connections(5);
    let engine = builder.max_connections_per_address(2).start();
    let engine = engine.await.unwrap();
    let first = Client::connect(&engine, LONG);
    let mut second = Client::connect(&engine, LONG);
    assert!(Client::raw(&engine).rest().is_empty());
    second.ping();
    drop(first);
    eventually("the seat is free again", || {
        // A refused one is closed without a word.
        word(&engine, "ruok") == "imok"
    });
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let builder = Engine::builder().handshake_time(Duration::from_millis(20));
    let engine = builder.start().await.unwrap();
    let mut silent = Client::raw(&engine);
    assert!(silent.rest().is_empty());
    let mut slow = Client::raw(&engine);
    slow.send_bytes(&[0, 0]);
    assert!(slow.rest().is_empty());
}

/// A client that asks for far more than it reads is dropped; the others do not notice.
#[tokio::test]
async fn a_slow_reader_is_dropped_and_delays_nobody() {
    let builder = Engine::builder().max_outgoing(1024 * 1024);
    let engine = builder.start().await.unwrap();
    let mut greedy = Client::connect(&engine, LONG);
    let data = Bytes::from(vec![7; 512 * 1024]);
    let large = create_with("/large", CreateMode::Persistent, data);
    greedy.call(large).unwrap();
    let requests: Vec<Request> = (0..64).map(|_| get_data("/large")).collect();
    greedy.send(&requests);

    let mut other = Client::connect(&engine, LONG);
    eventually("the greedy connection is gone", || {
        other.call(Request::Sync(PathRequest { path: "/".to_owned() })).unwrap();
        engine.stats().connections == 1
    });
    let mut replies = 0;
    while greedy.reply().is_ok() {
        replies += 1;
    }
    assert!(replies < 64, "{replies} replies of 512 KiB got through");
    assert_eq!(engine.sessions(), 2, "its session lives on");
}

/// A connection whose end nobody takes note of does not keep its place.
#[tokio::test]
async fn a_closing_connection_that_takes_nothing_is_cut() {
    let engine = Engine::builder().max_connections(1).start().await.unwrap();
    let mut stuck = Client::connect(&engine, LONG);
    let data = Bytes::from(vec![7; 512 * 1024]);
    stuck.call(create_with("/large", CreateMode::Persistent, data)).unwrap();
    let requests: Vec<Request> = (0..32).map(|_| get_data("/large")).collect();
    stuck.send(&requests);
    engine.expire_session(stuck.session).await;
    eventually("its place is free", || word(&engine, "ruok") == "imok");
}

/// When too much waits for the disk the engine stops reading, and a session that it does not hear
/// must not expire for that.
#[tokio::test]
async fn a_flood_before_a_hanging_disk_is_held_back_and_expires_nobody() {
    const COUNT: usize = 100;
    const ENOUGH: usize = 80;
    let dir = tempfile::tempdir().unwrap();
    let tick = Duration::from_millis(50);
    let builder = Engine::builder().data_dir(dir.path()).tick(tick);
    let engine = builder.start().await.unwrap();
    let timeout = tick * 20;
    let mut quiet = Client::connect(&engine, timeout);
    let mut flood = Client::connect(&engine, timeout);
    engine.pause_commits();
    let flooding = std::thread::spawn(move || {
        let data = Bytes::from(vec![7; 900 * 1024]);
        let requests: Vec<Request> = (0..COUNT)
            .map(|i| create_with(&format!("/n{i}"), CreateMode::Persistent, data.clone()))
            .collect();
        let xids = flood.send(&requests);
        for xid in xids {
            assert_eq!(flood.reply().unwrap().0.xid, xid);
        }
    });
    // 64 MiB and a little may wait, which is less than all of it.
    eventually("the pipeline is full", || {
        quiet.send(&[Request::Ping]);
        engine.stats().nodes >= 73
    });
    std::thread::sleep(timeout * 2);
    let nodes = engine.stats().nodes;
    assert!(nodes < ENOUGH, "{nodes} nodes: reading went on");
    assert_eq!(engine.sessions(), 2, "nobody expires unheard");
    engine.resume_commits();
    flooding.join().unwrap();
    assert!(engine.stats().nodes > COUNT);
}

/// Nothing may be lost for a client that reads everything, late and slowly.
#[tokio::test]
async fn a_client_that_reads_late_gets_everything() {
    const COUNT: usize = 2_000;
    let engine = Engine::builder().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let data = Bytes::from(vec![7; 4 * 1024]);
    let node = create_with("/node", CreateMode::Persistent, data);
    client.call(node).unwrap();
    let requests: Vec<Request> = (0..COUNT).map(|_| get_data("/node")).collect();
    let xids = client.send(&requests);
    for xid in xids {
        assert_eq!(client.reply().unwrap().0.xid, xid);
    }
}
