//! Ten thousand clients that crash at the same moment (lesson S10).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockkeeper_engine::{Durability, Engine};
use lockkeeper_wire::{CreateMode, Request};

use crate::client::{Client, PATIENCE, create, exists};
use crate::figures::Page;

const DEAD: usize = 10_000;
const NODES_EACH: usize = 3;
/// How many sessions end in one batch; between two batches, other clients are served.
const PORTION: usize = 256;
/// How many of the dead clients connect at once: fewer than the limit of open files.
const TOGETHER: usize = 250;
/// How many of these only become silent: their connections stay open, and so do their watches.
const SILENT: usize = 25;
/// Far longer than the test, so that no session expires before the test skips that time.
const TICK: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(600);

/// Opens the sessions, each with nodes as if it held locks and with a watch on its neighbour's node, as waiters for a
/// lock have, and abandons them. Returns the connections that stay open.
fn open_and_abandon(engine: &Engine) -> Vec<Client> {
    let mut silent = Vec::new();
    for group in 0..DEAD / TOGETHER {
        let mut clients: Vec<Client> = (0..TOGETHER).map(|_| Client::raw(engine)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_handshake(TIMEOUT);
            let node = |node| create(&format!("/n{group}-{number}-{node}"), CreateMode::Ephemeral);
            let mut requests: Vec<Request> = (0..NODES_EACH).map(node).collect();
            requests.push(exists(&format!("/n{group}-{}-0", (number + 1) % TOGETHER), true));
            client.send(&requests);
        }
        for client in &mut clients {
            client.frame().unwrap();
            for _ in 0..NODES_EACH {
                assert_eq!(client.reply().unwrap().0.error, 0);
            }
        }
        silent.extend(clients.into_iter().take(SILENT));
    }
    assert_eq!(engine.stats().ephemerals, DEAD * NODES_EACH);
    silent
}

/// A client that watches all nodes of the dead clients and reads the events.
fn watch_all(engine: &Engine) -> JoinHandle<usize> {
    let mut client = Client::connect(engine, TIMEOUT * 2);
    for group in 0..DEAD / TOGETHER {
        let paths = (0..TOGETHER).flat_map(|number| {
            (0..NODES_EACH).map(move |node| format!("/n{group}-{number}-{node}"))
        });
        let requests: Vec<Request> = paths.map(|path| exists(&path, true)).collect();
        client.call_all(&requests);
    }
    thread::spawn(move || {
        let mut events = 0;
        while events < DEAD * NODES_EACH {
            client.event();
            events += 1;
        }
        events
    })
}

/// A client with many pipelined requests, so that some wait at nearly every moment at which the system runs its thread.
/// A reply contains the newest transaction, and the end of a session is one: so the largest step from one reply to the
/// next shows how many sessions ended while a request waited.
struct Asker {
    over: Arc<AtomicBool>,
    thread: JoinHandle<i64>,
}

impl Asker {
    const ON_THEIR_WAY: usize = 400;
    const TOGETHER: usize = 20;

    /// Returns when the first replies have arrived.
    fn start(engine: &Engine) -> Self {
        let client = Client::connect(engine, TIMEOUT * 2);
        let over = Arc::new(AtomicBool::new(false));
        let (asking, is_asking) = mpsc::channel();
        let until = over.clone();
        let thread = thread::spawn(move || Self::ask(client, &until, &asking));
        is_asking.recv().unwrap();
        Self { over, thread }
    }

    fn ask(mut client: Client, over: &AtomicBool, asking: &mpsc::Sender<()>) -> i64 {
        // Long requests: the buffers of a socket hold hundreds of them, and one read returns a few.
        let question = exists(&format!("/{}", "x".repeat(8_000)), false);
        let questions = vec![question; Self::TOGETHER];
        let (mut last, mut largest, mut on_their_way) = (None, 0, 0);
        while !over.load(Ordering::Relaxed) {
            while on_their_way < Self::ON_THEIR_WAY {
                client.send(&questions);
                on_their_way += Self::TOGETHER;
            }
            for _ in 0..Self::TOGETHER {
                let newest = client.reply().unwrap().0.zxid.0;
                largest = largest.max(last.map_or(0, |last| newest - last));
                last = Some(newest);
            }
            on_their_way -= Self::TOGETHER;
            // Only the first message is awaited.
            let _ = asking.send(());
        }
        largest
    }

    fn largest_step(self) -> i64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// The number of commits that the engine has made.
fn commits(engine: &Engine) -> usize {
    Page::of(engine).value("lockkeeper_commit_seconds_count") as usize
}

/// Prints the slowest reply time; checks the limits that hold however busy the machine is.
async fn others_are_answered_between_the_portions(durability: Durability) {
    let dir = tempfile::tempdir().unwrap();
    let builder = Engine::builder().data_dir(dir.path()).durability(durability).tick(TICK);
    let builder = builder.metrics_address(([127, 0, 0, 1], 0).into());
    let engine = builder.connection_rate(1_000_000).start().await.unwrap();
    let mut living = Client::connect(&engine, TIMEOUT * 2);
    let mut round_trip = || {
        let asked = Instant::now();
        living.call(exists("/nothing", false)).unwrap_err();
        asked.elapsed()
    };
    let _silent = open_and_abandon(&engine);
    let watcher = watch_all(&engine);
    let asker = Asker::start(&engine);
    let usual = (0..200).map(|_| round_trip()).max().unwrap();
    let commits_before = commits(&engine);

    let start = Instant::now();
    engine.skip_time(TIMEOUT + TICK).await;
    let (mut replies, mut worst) = (0, Duration::ZERO);
    // Three sessions live on: this one, the watcher and the asker.
    while engine.sessions() > 3 {
        assert!(start.elapsed() < PATIENCE * 10, "{} sessions are left", engine.sessions());
        worst = worst.max(round_trip());
        replies += 1;
    }
    let took = start.elapsed();
    let (step, commits) = (asker.largest_step(), commits(&engine) - commits_before);
    println!(
        "{durability}: {DEAD} sessions with {NODES_EACH} watched nodes each ended in {took:.1?} and \
         {commits} commits; during that time another client got {replies} replies, the slowest after \
         {worst:.1?} (before: {usual:.1?}); at most {step} sessions ended between two replies"
    );
    // One or two batches, unless the machine is so busy that the asker runs out of requests; all at once if no other
    // client was served in between.
    assert!(step <= DEAD as i64 / 3, "{step} sessions ended while a request waited");
    if durability != Durability::Memory {
        // More batches in one commit would make all clients wait for its end.
        assert!(commits >= DEAD / PORTION, "{commits} commits");
    }
    assert_eq!(watcher.join().unwrap(), DEAD * NODES_EACH);
    assert_eq!(engine.stats().ephemerals, 0);
}

#[tokio::test]
async fn s10_a_mass_expiry_does_not_keep_others_waiting() {
    others_are_answered_between_the_portions(Durability::Memory).await;
}

#[tokio::test]
async fn s10_a_mass_expiry_does_not_keep_others_waiting_for_the_disk() {
    others_are_answered_between_the_portions(Durability::Sync).await;
}
