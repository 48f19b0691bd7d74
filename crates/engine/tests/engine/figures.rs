//! Every value of `/metrics`, compared with the requests of clients and the bytes on their sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_engine::Engine;
use lockkeeper_wire::CreateMode;

use crate::client::{Client, LONG, Stream, auth, eventually, exists, get_data};
use crate::monitor::http;

const SHORT: Duration = Duration::from_secs(4);

/// The bytes on sockets, as the clients count them.
#[derive(Clone, Default)]
struct Traffic {
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

/// A socket whose bytes are counted.
struct Counted {
    stream: TcpStream,
    traffic: Traffic,
}

impl Traffic {
    /// A session over a socket whose bytes are counted.
    fn client(&self, engine: &Engine, timeout: Duration) -> Client {
        let stream = TcpStream::connect(engine.connect_string()).unwrap();
        let mut client = Client::over(Box::new(Counted { stream, traffic: self.clone() }));
        client.handshake(timeout).unwrap();
        client
    }

    fn bytes(&self) -> [u64; 2] {
        [self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed)]
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.traffic.received.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        self.traffic.sent.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Stream for Counted {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_timeout(timeout)
    }

    fn half_close(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

/// The present page.
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn of(engine: &Engine) -> Self {
        Self(http(engine, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    pub(crate) fn value(&self, name: &str) -> f64 {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.0)).parse().unwrap()
    }
}

async fn started(dir: &std::path::Path) -> Engine {
    let any = "127.0.0.1:0".parse().unwrap();
    Engine::builder().data_dir(dir).metrics_address(any).start().await.unwrap()
}

/// Symptom: `bytes_received_count` was smaller than what clients had sent, and `response_bytes` than what they had
/// received. Cause: the lengths before frames were counted in one direction only.
#[tokio::test]
async fn counters_say_what_clients_did_and_saw() {
    let dir = tempfile::tempdir().unwrap();
    let engine = started(dir.path()).await;
    let before = Page::of(&engine);
    let traffic = Traffic::default();
    let mut client = traffic.client(&engine, LONG);
    client.create("/kept", CreateMode::Persistent).unwrap();
    client.create("/mine", CreateMode::Ephemeral).unwrap();
    client.call(exists("/mine", true)).unwrap();
    client.call(get_data("/kept")).unwrap();
    client.call(get_data("/none")).unwrap_err();
    client.ping();

    // Deleted with its session, without an event for the other client.
    let mut expired = traffic.client(&engine, SHORT);
    expired.create("/theirs", CreateMode::Ephemeral).unwrap();
    engine.skip_time(SHORT * 2).await;
    let mut refused = traffic.client(&engine, LONG);
    refused.call(auth("unknown", "secret")).unwrap_err();

    // The end of a connection is noticed some time later.
    let dropped = |page: &Page| page.value("connection_drop_count");
    eventually("two connections have ended", || dropped(&Page::of(&engine)) == 2.0);
    let after = Page::of(&engine);
    let [sent, received] = traffic.bytes().map(|bytes| bytes as f64);
    let nodes = ["/kept", "/mine"].map(|path| path.len() + "data".len());
    for (name, expected) in [
        // Three handshakes; six, one and one requests, each with its reply.
        ("packets_received", 11.0),
        ("packets_sent", 11.0),
        ("bytes_received_count", sent),
        ("response_bytes", received),
        ("znode_count", 2.0),
        ("ephemerals_count", 1.0),
        ("watch_count", 1.0),
        ("approximate_data_size", nodes.iter().sum::<usize>() as f64),
        // The session with the refused credentials lives on without a connection.
        ("global_sessions", 2.0),
        ("num_alive_connections", 1.0),
        ("connection_request_count", 3.0),
        ("stale_sessions_expired", 1.0),
        ("auth_failed_count", 1.0),
    ] {
        assert_eq!(after.value(name) - before.value(name), expected, "{name}");
    }
    for none in [
        "connection_rejected",
        "large_requests_rejected",
        "unsuccessful_handshake",
        "local_sessions",
        "outstanding_requests",
    ] {
        assert_eq!(after.value(none), 0.0, "{none}");
    }
}

/// Symptom: new clients that found only reserved places were refused, and no metric counted them.
#[tokio::test]
async fn every_connection_over_a_limit_is_counted() {
    let any = "127.0.0.1:0".parse().unwrap();
    let builder = Engine::builder().metrics_address(any).max_connections(10);
    let engine = builder.max_connections_per_address(9).start().await.unwrap();
    let rejected = || Page::of(&engine).value("connection_rejected");
    let _clients: Vec<Client> = (0..9).map(|_| Client::connect(&engine, LONG)).collect();

    // It takes the reserved place, and shows only afterwards that it has no session.
    let mut new = Client::raw(&engine);
    assert_eq!(rejected(), 0.0);
    assert!(Client::raw(&engine).rest().is_empty());
    assert_eq!(rejected(), 1.0, "all places are taken");
    assert!(new.handshake_fails(LONG));
    assert_eq!(rejected(), 2.0, "the place is reserved");
}

#[tokio::test]
async fn times_agree_with_an_independent_clock() {
    const READS: f64 = 50.0;

    let begin = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let engine = started(dir.path()).await;
    let running = Instant::now();
    let mut client = Client::connect(&engine, LONG);
    client.create("/a", CreateMode::Persistent).unwrap();
    let reading = Instant::now();
    for _ in 0..READS as usize {
        client.call(get_data("/a")).unwrap();
    }
    let read = reading.elapsed().as_secs_f64();
    let least = running.elapsed().as_millis() as f64;
    let page = Page::of(&engine);
    let elapsed = begin.elapsed().as_secs_f64();

    let uptime = page.value("uptime");
    assert!(uptime >= least && uptime <= elapsed * 1_000.0, "{uptime} of {elapsed} s");
    let of_reads = |part: &str| page.value(&format!("lockkeeper_request_seconds_{part}"));
    assert_eq!(of_reads("count{op=\"get_data\"}"), READS);
    let sum = of_reads("sum{op=\"get_data\"}");
    // One after the other, and each is measured on both sides; the engine's clock counts whole microseconds.
    assert!(sum > 0.0 && sum <= read, "{sum} of {read} s");
    assert_eq!(of_reads("bucket{op=\"get_data\",le=\"+Inf\"}"), READS);

    let [min, mean, max] = ["min_latency", "avg_latency", "max_latency"].map(|n| page.value(n));
    // The longest and the shortest time are in whole milliseconds.
    assert!(min <= mean && mean < max + 1.0 && max <= elapsed * 1_000.0, "{min} {mean} {max}");
    // The session and the node; each was awaited, so neither was committed with another one. A handshake is not a
    // request.
    assert_eq!(page.value("lockkeeper_commit_seconds_count"), 2.0);
    assert_eq!(page.value("lockkeeper_commit_requests_count"), 2.0);
    assert_eq!(page.value("lockkeeper_commit_requests_sum"), 1.0);
    let syncs = ["nothing", "checkpoint", "preparation"]
        .map(|during| page.value(&format!("lockkeeper_sync_seconds_count{{during=\"{during}\"}}")));
    // The first one makes the log file longer.
    assert_eq!(syncs, [1.0, 0.0, 1.0]);
    let commits = page.value("lockkeeper_commit_seconds_sum");
    assert!(commits > 0.0 && commits <= elapsed, "{commits} of {elapsed} s");
    assert!(page.value("open_file_descriptor_count") >= 3.0);
    let most = page.value("max_file_descriptor_count");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    assert_eq!(most, limit.map_or(i64::MAX as f64, |limit| limit as f64));
}
