//! An engine that is killed in the middle of a write load, or stopped for a while. It is this test
//! program, started once more.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockkeeper_engine::{Durability, Engine};
use lockkeeper_wire::{CreateMode, Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Client, create, eventually};

const LONG: Duration = Duration::from_secs(30);
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
    let engine = builder.tick(TICK).start().await.unwrap();
    println!("\nlistening {}", engine.connect_string());
    // Ends with the parent, should that die first.
    let _ = std::io::stdin().read(&mut [0]);
}

struct Victim {
    process: Child,
    connect: String,
}

impl Victim {
    fn start(dir: &std::path::Path, durability: Durability) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["crash::child", "--exact", "--ignored", "--nocapture"])
            .env(DIR, dir)
            .env(DURABILITY, durability.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let connect = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening ").map(str::to_owned))
            .expect("the child did not start");
        Self { process, connect }
    }
}

impl Victim {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // SIGKILL; it may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates nodes, eight at a time, until the connection ends; returns those acknowledged.
fn write_until_the_end(connect: &str, writer: usize, written: &AtomicUsize) -> Vec<String> {
    let mut client = Client::connect_to(connect, LONG);
    let mut acknowledged = Vec::new();
    for round in 0.. {
        let paths: Vec<String> = (0..8).map(|i| format!("/w{writer}-r{round}-{i}")).collect();
        let requests: Vec<Request> =
            paths.iter().map(|path| create(path, CreateMode::Persistent)).collect();
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

async fn every_acknowledged_write_is_there(durability: Durability) {
    let dir = tempfile::tempdir().unwrap();
    let victim = Victim::start(dir.path(), durability);
    let written = AtomicUsize::new(0);
    let connect = victim.connect.clone();
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let (connect, written) = (&connect, &written);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_until_the_end(connect, writer, written)))
            .collect();
        eventually("a load of writes", || written.load(Ordering::Relaxed) > 500);
        drop(victim);
        let all = writers.into_iter().flat_map(|w| w.join().unwrap());
        all.collect()
    });
    assert!(acknowledged.len() > 500);

    let engine = Engine::builder().data_dir(dir.path());
    let engine = engine.durability(durability).start().await.unwrap();
    assert_eq!(engine.sessions(), WRITERS, "sessions survive as well");
    let mut client = Client::connect(&engine, LONG);
    for path in &acknowledged {
        assert!(client.exists(path), "{path} was acknowledged and is gone");
    }
    // What was written and not acknowledged may be there: at most a group for each writer.
    let nodes = engine.stats().nodes;
    let most = acknowledged.len() + WRITERS * 8 + 8;
    assert!(nodes <= most, "{nodes} nodes, {most} expected at most");
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn kill_9_loses_nothing_acknowledged_under_sync() {
    for _ in 0..3 {
        every_acknowledged_write_is_there(Durability::Sync).await;
    }
}

#[tokio::test]
async fn kill_9_loses_nothing_acknowledged_under_os() {
    for _ in 0..3 {
        every_acknowledged_write_is_there(Durability::Os).await;
    }
}

/// An engine that wakes up late finds deadlines that have passed and pings that came in time. It
/// must look at the pings first.
#[tokio::test]
async fn a_paused_engine_expires_only_those_who_were_silent() {
    let dir = tempfile::tempdir().unwrap();
    let victim = Victim::start(dir.path(), Durability::Sync);
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
    eventually("the silent one is gone", || !pinging.exists("/silent"));
    assert!(pinging.exists("/pinging"));
}
