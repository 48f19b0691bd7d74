//! An engine that is killed in the middle of a write load, or stopped for a while. It is this test program, started
//! again.

use std::collections::HashSet;
use std::env;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockkeeper_engine::{Durability, Engine};
use lockkeeper_wire::{CreateMode, Request};
use rustix::process::Signal;

use crate::child::{EngineProcess, serve};
use crate::client::{Client, LONG, create_op, eventually};

const DIR: &str = "LOCKKEEPER_TEST_CRASH_DIR";
const DURABILITY: &str = "LOCKKEEPER_TEST_CRASH_DURABILITY";
const WRITERS: usize = 4;
const TICK: Duration = Duration::from_millis(50);

/// Not a test by itself: the process that is killed.
#[tokio::test]
#[ignore = "the other half of the tests below"]
async fn child() {
    let Some(dir) = env::var_os(DIR) else { return };
    let durability: Durability = env::var(DURABILITY).unwrap().parse().unwrap();
    let builder = Engine::builder().data_dir(dir).durability(durability);
    serve(builder.tick(TICK)).await;
}

fn victim(dir: &Path, durability: Durability) -> EngineProcess {
    let durability = durability.to_string();
    let variables = [(DIR, dir.to_str().unwrap()), (DURABILITY, &durability)];
    EngineProcess::start("crash::child", &variables)
}

/// Creates pairs of nodes, each pair in one transaction, eight at a time until the connection ends; returns those that
/// were acknowledged.
fn write_until_the_end(mut client: Client, writer: usize, written: &AtomicUsize) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for round in 0.. {
        let paths: Vec<String> = (0..8).map(|i| format!("w{writer}-r{round}-{i}")).collect();
        let requests: Vec<Request> = paths.iter().map(|path| pair(path)).collect();
        if !client.try_send(&requests) {
            break;
        }
        for path in paths {
            let Ok((header, _)) = client.reply() else {
                return acknowledged;
            };
            assert_eq!(header.error, 0);
            acknowledged.push(path);
            written.fetch_add(1, Ordering::Relaxed);
        }
    }
    acknowledged
}

fn pair(name: &str) -> Request {
    Request::Multi(["", "+"].map(|half| create_op(&format!("/{name}{half}"))).to_vec())
}

/// How many engines are killed, by both tests together.
fn runs() -> usize {
    let given = env::var("LOCKKEEPER_CRASH_RUNS").ok().and_then(|runs| runs.parse().ok());
    given.unwrap_or(200)
}

async fn every_acknowledged_write_is_there(durability: Durability, load: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let victim = victim(dir.path(), durability);
    let written = AtomicUsize::new(0);
    // All of them before the load begins: the end may come soon after.
    let clients: Vec<Client> =
        (0..WRITERS).map(|_| Client::connect_to(&victim.connect, LONG)).collect();
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let written = &written;
        let spawn =
            |(writer, client)| scope.spawn(move || write_until_the_end(client, writer, written));
        let writers: Vec<_> = clients.into_iter().enumerate().map(spawn).collect();
        eventually("a load of writes", || written.load(Ordering::Relaxed) > load);
        drop(victim);
        let all = writers.into_iter().flat_map(|w| w.join().unwrap());
        all.collect()
    });
    assert!(acknowledged.len() > load);

    let engine = Engine::builder().data_dir(dir.path());
    let engine = engine.durability(durability).start().await.unwrap();
    let sessions = engine.sessions();
    let mut client = Client::connect(&engine, LONG);
    let found: HashSet<String> = client.children("/").into_iter().collect();
    for name in &acknowledged {
        assert!(found.contains(name), "{name} was acknowledged and is gone");
    }
    for name in found.iter().filter(|name| *name != "zookeeper") {
        let other = name.strip_suffix('+').map_or_else(|| format!("{name}+"), str::to_owned);
        assert!(found.contains(&other), "{name} is half of a transaction");
    }
    // Unacknowledged writes may be there: at most a group for each writer.
    let most = 1 + 2 * (acknowledged.len() + WRITERS * 8);
    assert!(found.len() <= most, "{} nodes, {most} expected at most", found.len());
    assert_eq!(sessions, WRITERS, "sessions survive as well");
    engine.stop().await.unwrap();
    acknowledged.len()
}

async fn survives_kills(durability: Durability) {
    let runs = runs().div_ceil(2);
    let mut acknowledged = 0;
    for run in 0..runs {
        // From soon after the first writes until well into the load.
        acknowledged += every_acknowledged_write_is_there(durability, 8 + run * 37 % 400).await;
    }
    println!("{durability}: killed {runs} times, {acknowledged} acknowledged writes all there");
}

/// S3.
#[tokio::test]
async fn kill_9_loses_nothing_acknowledged_under_sync() {
    survives_kills(Durability::Sync).await;
}

/// S3.
#[tokio::test]
async fn kill_9_loses_nothing_acknowledged_under_os() {
    survives_kills(Durability::Os).await;
}

/// An engine that resumes late finds deadlines that have passed and pings that arrived in time. It must handle the
/// pings first.
#[tokio::test]
async fn a_paused_engine_expires_only_those_who_were_silent() {
    let dir = tempfile::tempdir().unwrap();
    let victim = victim(dir.path(), Durability::Sync);
    let timeout = TICK * 10;
    let mut pinging = Client::connect_to(&victim.connect, timeout);
    let mut silent = Client::connect_to(&victim.connect, timeout);
    pinging.create("/pinging", CreateMode::Ephemeral).unwrap();
    silent.create("/silent", CreateMode::Ephemeral).unwrap();

    victim.signal(Signal::STOP);
    for _ in 0..20 {
        pinging.send(&[Request::Ping]);
        thread::sleep(timeout / 8);
    }
    victim.signal(Signal::CONT);
    for _ in 0..20 {
        pinging.reply().expect("the session is alive");
    }
    eventually("the silent session has expired", || !pinging.exists("/silent"));
    assert!(pinging.exists("/pinging"));
}
