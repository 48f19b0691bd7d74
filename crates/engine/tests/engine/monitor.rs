//! The interfaces for operators: four-letter words and metrics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockkeeper_engine::{Builder, Durability, Engine};
use lockkeeper_wire::CreateMode;

use crate::client::{Client, LONG, create, eventually, exists, get_data, word};
use crate::figures::Page;

const SRVR: [&str; 9] = [
    "Zookeeper version",
    "Latency min/avg/max",
    "Received",
    "Sent",
    "Connections",
    "Outstanding",
    "Zxid",
    "Mode",
    "Node count",
];

fn keys(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split(':').next().unwrap()).collect()
}

fn talkative() -> Builder {
    Engine::builder().four_letter_word("*")
}

/// Symptom: without clients `cons` was empty, and `gtmk` and `stmk` answered nothing. ZooKeeper lists the connection of
/// the word itself, and keeps the mask.
#[tokio::test]
async fn k40_cons_lists_whoever_asks_and_the_trace_mask_is_kept() {
    let engine = talkative().start().await.unwrap();
    let cons = word(&engine, "cons");
    let (asker, rest) = cons.split_once('[').unwrap();
    assert!(asker.starts_with(" /127.0.0.1:"), "{cons}");
    assert_eq!(rest, "0](queued=0,recved=1,sent=0)\n\n");
    let stat = word(&engine, "stat");
    assert!(
        stat.contains("Clients:\n /127.0.0.1:") && stat.contains("recved=1,sent=0)\n\n"),
        "{stat}"
    );

    assert_eq!(word(&engine, "gtmk"), "306");
    let mut client = Client::raw(&engine);
    client.send_bytes(b"stmk\0\0\0\0");
    client.send_bytes(b"\0\0\0\x12");
    assert_eq!(client.rest(), b"18");
    assert_eq!(word(&engine, "gtmk"), "18");
    let mut short = Client::raw(&engine);
    short.send_bytes(b"stmk\0");
    short.half_close();
    assert_eq!(short.rest(), b"");
}

#[tokio::test]
async fn k40_a_whitelist_is_all_that_is_answered() {
    let builder = Engine::builder().four_letter_whitelist("mntr, kill").four_letter_word("wchs");
    let engine = builder.start().await.unwrap();
    for answered in ["srvr", "mntr", "wchs"] {
        assert!(!word(&engine, answered).contains("whitelist"), "{answered}");
    }
    for refused in ["ruok", "isro", "cons"] {
        assert!(word(&engine, refused).contains("not in the whitelist"), "{refused}");
    }
}

/// S8: every client could keep a server busy with words that list all watches, or read from others who holds which
/// locks. Without the check in `four_letter::answer` both are possible.
#[tokio::test]
async fn s8_only_the_harmless_words_are_answered_by_everybody() {
    let engine = Engine::builder().start().await.unwrap();
    let _client = Client::connect(&engine, LONG);
    assert_eq!(word(&engine, "ruok"), "imok");
    assert_eq!(word(&engine, "ruok\n"), "imok", "as typed into a terminal");
    assert_eq!(word(&engine, "isro"), "rw");
    assert_eq!(word(&engine, "kill"), "", "unknown");
    assert_eq!(word(&engine, "GET / HTTP/1.1\r\n\r\n"), "");
    let srvr = word(&engine, "srvr");
    assert_eq!(keys(&srvr), SRVR);
    assert!(srvr.contains("lockkeeper-") && srvr.contains("Connections: 1\n"));
    for hidden in ["mntr", "stat", "conf", "cons", "envi", "dump", "wchs", "wchc", "wchp", "dirs"] {
        let refusal = format!("{hidden} is not executed because it is not in the whitelist.\n");
        assert_eq!(word(&engine, hidden), refusal);
    }
    let engine = Engine::builder().four_letter_word("wchs").start().await.unwrap();
    assert!(word(&engine, "wchs").starts_with("0 connections watching 0 paths\n"));
    assert!(word(&engine, "wchc").contains("whitelist"));
}

/// An engine on a Unix socket, whose buffers are small, and a client with watches whose listing is much larger than
/// these buffers.
async fn with_long_listing(dir: &std::path::Path, builder: Builder) -> (Engine, Client) {
    let engine = builder.unix_socket(dir.join("socket")).start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let long = "x".repeat(1_000);
    for n in 0..2_000 {
        client.call(exists(&format!("/{n}{long}"), true)).unwrap_err();
    }
    (engine, client)
}

/// Symptom: the part of an answer that the socket did not accept at once was dropped: of 9 MB, a slow reader got 2.8
/// MB.
///
/// Seen to fail with one flush.
#[tokio::test]
async fn e36_a_long_answer_arrives_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _client) = with_long_listing(dir.path(), talkative()).await;
    let mut monitor = Client::raw(&engine);
    monitor.send_bytes(b"wchp");
    monitor.half_close();
    let first = monitor.take(1);
    // The engine's thread has done by now what it did before it waited for the monitor.
    assert_eq!(word(&engine, "ruok"), "imok");
    let listing = monitor.rest();
    assert!(listing.ends_with(b"\n\n"), "it is cut off");
    assert_eq!(listing.iter().filter(|byte| **byte == b'/').count() + first, 2_000);
}

/// Seen to fail without `LastNotTaken` in `send_last`.
#[tokio::test]
async fn e36_a_monitor_that_takes_nothing_does_not_keep_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let limit = Duration::from_millis(100);
    let builder = talkative().max_connections(2).send_timeout(limit);
    let (engine, _client) = with_long_listing(dir.path(), builder).await;
    let mut monitor = Client::raw(&engine);
    monitor.send_bytes(b"wchp");
    monitor.take(1);
    eventually("its place is free", || {
        let mut other = Client::raw(&engine);
        other.try_send_bytes(b"ruok").is_ok() && other.rest() == b"imok"
    });
    assert!(!monitor.rest().ends_with(b"\n\n"), "all of it fits into a socket");
}

#[tokio::test]
async fn words_about_clients_name_their_sessions() {
    let engine = talkative().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    client.call(exists("/watched", true)).unwrap_err();
    let session = format!("0x{:x}", client.session.0);

    let dump = word(&engine, "dump");
    assert!(
        dump.starts_with("SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at "),
        "{dump}"
    );
    assert!(dump.contains(&format!(":\n\t{session}\nephemeral nodes dump:\n")));
    assert!(dump.contains(&format!("Sessions with Ephemerals (1):\n{session}:\n\t/lock\n")));
    assert!(dump.contains("Connections dump:\nConnections Sets (1)/(1):\n"));

    assert_eq!(word(&engine, "wchs"), "1 connections watching 1 paths\nTotal watches:1\n");
    assert_eq!(word(&engine, "wchc"), format!("{session}\n\t/watched\n\n"));
    assert_eq!(word(&engine, "wchp"), format!("/watched\n\t{session}\n\n"));

    let cons = word(&engine, "cons");
    let expected = format!("recved=2,sent=3,sid={session},lop=EXIS,est=");
    assert!(cons.starts_with(" /127.0.0.1:") && cons.contains(&expected), "{cons}");
    assert!(cons.contains(",to=30000,lcxid=0x2,lzxid=0x"), "{cons}");
    let stat = word(&engine, "stat");
    assert!(stat.contains("\nClients:\n /127.0.0.1:") && stat.contains("recved=2,sent=3)\n"));
    assert!(stat.contains("\n\nLatency min/avg/max: ") && stat.ends_with("Node count: 5\n"));
    assert_eq!(word(&engine, "crst"), "Connection stats reset.\n");
    assert!(word(&engine, "cons").contains("recved=0,sent=0"));
}

#[tokio::test]
async fn words_about_the_server_have_zookeepers_keys() {
    let dir = tempfile::tempdir().unwrap();
    let engine = talkative().data_dir(dir.path()).start().await.unwrap();
    let port = engine.addr().unwrap().port();
    let conf = word(&engine, "conf");
    let path = dir.path().display();
    assert!(conf.starts_with(&format!("clientPort={port}\nsecureClientPort=-1\ndataDir={path}\n")));
    assert!(conf.contains("tickTime=2000\n") && conf.contains("maxSessionTimeout=40000\n"));
    let dirs = word(&engine, "dirs");
    let size = dirs.lines().next().and_then(|line| line.strip_prefix("datadir_size: "));
    assert!(size.unwrap().parse::<u64>().unwrap() > 1_000, "{dirs}");
    assert!(word(&engine, "envi").starts_with("Environment:\nzookeeper.version=3.9."));
    assert_eq!(word(&engine, "hash"), "");
    assert_eq!(word(&engine, "srst"), "Server stats reset.\n");
    assert!(word(&engine, "srvr").contains("\nReceived: 0\n"));
}

/// K2: clients and monitors found no version in it.
#[tokio::test]
async fn k2_words_name_a_version_that_clients_can_read_and_the_server_itself() {
    let engine = talkative().start().await.unwrap();
    for (name, before) in [
        ("srvr", "Zookeeper version: "),
        ("stat", "Zookeeper version: "),
        ("envi", "zookeeper.version="),
        ("mntr", "zk_version\t"),
    ] {
        let answer = word(&engine, name);
        let version = answer.lines().find_map(|line| line.strip_prefix(before)).unwrap();
        let (like, itself) = version.split_once('-').unwrap();
        let numbers: Vec<u32> = like.split('.').map(|number| number.parse().unwrap()).collect();
        assert!(matches!(numbers[..], [3, 9, _]), "{name}: {version}");
        let (itself, date) =
            itself.split_once(", built on ").expect("the build date that clients expect");
        assert!(itself.starts_with("lockkeeper-0."), "{name}: {version}");
        // K41: without this, go-zookeeper and Metricbeat read nothing of an answer.
        let form = date.bytes().map(|b| if b.is_ascii_digit() { b'0' } else { b });
        assert_eq!(form.collect::<Vec<_>>(), b"0000-00-00 00:00 UTC", "{name}: {version}");
    }
}

#[tokio::test]
async fn mntr_has_zookeepers_names() {
    let dir = tempfile::tempdir().unwrap();
    let engine = talkative().data_dir(dir.path()).start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    client.create("/lock", CreateMode::Ephemeral).unwrap();
    client.call(get_data("/lock")).unwrap();
    engine.expire_session(Client::connect(&engine, LONG).session).await;
    let mntr = word(&engine, "mntr");
    let value = |name: &str| {
        let line = mntr.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
        line.unwrap_or_else(|| panic!("no {name} in {mntr}")).to_owned()
    };
    assert!(value("version").starts_with("3.9."));
    assert_eq!(value("server_state"), "standalone");
    for (name, expected) in [
        ("znode_count", "5"),
        ("ephemerals_count", "1"),
        ("watch_count", "0"),
        ("global_sessions", "1"),
        ("connection_request_count", "2"),
        ("cnt_readlatency", "1"),
        ("cnt_updatelatency", "1"),
        ("connection_rejected", "0"),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    for name in ["avg_latency", "uptime", "open_file_descriptor_count", "max_fsynctime"] {
        assert!(value(name).parse::<f64>().unwrap() >= 0.0, "{name}");
    }
    assert!(value("cnt_fsynctime").parse::<u64>().unwrap() >= 2);
    assert!(mntr.lines().all(|line| line.starts_with("zk_") && line.contains('\t')));
}

pub(crate) fn http(engine: &Engine, request: &str) -> String {
    let mut stream = TcpStream::connect(engine.metrics_addr().unwrap()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A client that requested much at once was answered after all of it, and was idle until then.
#[tokio::test]
async fn a_round_of_many_requests_leaves_in_parts() {
    const COUNT: usize = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let builder = Engine::builder().data_dir(dir.path()).durability(Durability::Os);
    let any = "127.0.0.1:0".parse().unwrap();
    let engine = builder.metrics_address(any).start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let requests: Vec<_> =
        (0..COUNT).map(|i| create(&format!("/{i}"), CreateMode::Ephemeral)).collect();
    client.call_all(&requests);
    let page = Page::of(&engine);
    let commits = |of_up_to: &str| {
        page.value(&format!("lockkeeper_commit_requests_bucket{{le=\"{of_up_to}\"}}")) as usize
    };
    assert_eq!(commits("128"), commits("+Inf"));
    assert!(commits("+Inf") >= COUNT / 128);
}

#[tokio::test]
async fn prometheus_gets_its_text_and_nothing_else_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let builder = Engine::builder().data_dir(dir.path()).metrics_address(any);
    let engine = builder.start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    client.create("/a", CreateMode::Persistent).unwrap();

    let answer = http(&engine, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    for line in [
        "# TYPE znode_count gauge\nznode_count 5\n",
        "# TYPE packets_received counter\npackets_received 2\n",
        "# TYPE lockkeeper_commit_seconds histogram\n",
        "lockkeeper_request_seconds_count{op=\"create\"} 1\n",
        "lockkeeper_commit_requests_bucket{le=\"+Inf\"} 2\n",
    ] {
        assert!(body.contains(line), "{line} is not in {body}");
    }
    assert!(http(&engine, "GET / HTTP/1.0\r\n\r\n").contains("/metrics"));
    assert!(http(&engine, "GET /etc HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(http(&engine, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(http(&engine, &"x".repeat(9_000)).starts_with("HTTP/1.1 400"), "bounded");
}
