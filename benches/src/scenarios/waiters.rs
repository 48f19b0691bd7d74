//! What one more waiter costs, by how many there are: in one process, whose tasks have a line of
//! their own, and in many, which all stand in the line on the server.
//!
//! The many are handles of their own for one lock, which exclude each other as programs do.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper::{Client, CreateMode, Mutex, ZnodePath};
use lockkeeper_engine::Durability;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::lines::wait_for_queue;
use crate::measure::micros;
use crate::system::System;
use crate::tap::Tap;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    OneProcess,
    Many,
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneProcess => "one process",
            Self::Many => "many processes",
        })
    }
}

/// Waiters that come at once. The cost of one is the mean of those who come last.
const MORE: usize = 50;

/// When nothing has passed for so long, all who came have set their watches and wait.
const QUIET: Duration = Duration::from_millis(50);

/// The same for many processes who came first: after a quarter of a second each watches its own
/// node as well, and that is no cost of those who come later. (Of the later ones, it is not
/// counted: one more round trip and some 180 bytes for each who waits so long.)
const SETTLED: Duration = Duration::from_millis(400);

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.settings.rounds.min(3);
    let system = System::Engine(Durability::Os);
    for count in bench.settings.waiters.clone() {
        let turns = [Where::OneProcess, Where::Many].map(|place| Waiters { system, place, count });
        bench
            .interleave(rounds, &turns, async |bench, kind| {
                let servers = bench.peers.server_of(system).await?;
                let cost = measure(&servers, kind.place, count).await?;
                let config = format!("{}, {}", system.config(), kind.place);
                let who = (system.name(), config.as_str());
                bench.note_as(who, count, "time_per_waiter_us", cost.micros);
                bench.note_as(who, count, "bytes_per_waiter", cost.bytes);
                bench.note_as(who, count, "next_holder_us", cost.hand_off_micros);
                Ok(())
            })
            .await;
    }
    Ok(())
}

struct Waiters {
    system: System,
    place: Where,
    count: usize,
}

impl crate::bench::Turn for Waiters {
    fn describe(&self) -> String {
        format!("{}, {} waiters in {}", self.system, self.count, self.place)
    }
}

struct Cost {
    micros: f64,
    bytes: f64,
    hand_off_micros: f64,
}

async fn measure(servers: &str, place: Where, count: usize) -> Result<Cost> {
    let tap = Tap::start(servers).await?;
    let client = Client::builder()
        .session_timeout(Duration::from_secs(30))
        // The listing of ten thousand is half of the usual limit.
        .max_frame(8 * 1024 * 1024)
        .connect(&tap.address())
        .await?;
    // Not through the relay: what it asks is no waiter's cost.
    let observer = Client::connect(servers).await?;

    let path = ZnodePath::new("/locks/waiters")?;
    observer.ensure(&path, CreateMode::Container).await?;
    let mut queue = Queue { place, lock: Mutex::new(&client, path.as_str())?, client: &client };
    let holder = queue.lock.acquire().await?;
    let mut waiting = JoinSet::new();
    // Not all at once: programs have a connection each, and a single one that is asked for gigabytes
    // of listings in one go is dropped as one that does not read.
    for before in (0..count).step_by(MORE) {
        let more = MORE.min(count - before);
        queue.join(more, &mut waiting)?;
        queue.all_wait(&observer, &path, before + more).await?;
    }

    tap.quiet(if place == Where::Many { SETTLED } else { QUIET }).await;
    let (bytes, start) = (tap.passed().bytes(), Instant::now());
    queue.join(MORE, &mut waiting)?;
    queue.all_wait(&observer, &path, count + MORE).await?;
    let seen = Instant::now();
    let last = tap.quiet(QUIET).await;
    // Within one process nothing passes at all, and all wait as soon as they have run once.
    let took = if tap.passed().bytes() == bytes { seen - start } else { last - start };
    let bytes = tap.passed().bytes() - bytes;

    let start = Instant::now();
    holder.release().await?;
    // The first in line, with the lock.
    let next = waiting.join_next().await;
    let hand_off = start.elapsed();
    waiting.shutdown().await;
    drop(next);
    client.close().await;
    observer.close().await;
    Ok(Cost {
        micros: micros(took) / MORE as f64,
        bytes: bytes as f64 / MORE as f64,
        hand_off_micros: micros(hand_off),
    })
}

struct Queue<'a> {
    place: Where,
    lock: Mutex,
    client: &'a Client,
}

type Waiting = JoinSet<Result<lockkeeper::MutexGuard, lockkeeper::AcquireError>>;

impl Queue<'_> {
    /// Sends tasks to wait.
    fn join(&mut self, count: usize, waiting: &mut Waiting) -> Result<()> {
        for _ in 0..count {
            let lock = match self.place {
                Where::OneProcess => self.lock.clone(),
                Where::Many => Mutex::new(self.client, self.lock.path().as_str())?,
            };
            waiting.spawn(async move { lock.acquire().await });
        }
        Ok(())
    }

    /// Waits until all have come.
    async fn all_wait(&self, observer: &Client, path: &ZnodePath, count: usize) -> Result<()> {
        match self.place {
            // The holder is in line too.
            Where::Many => wait_for_queue(observer, path, count + 1).await,
            // Every task has run up to its place in line when this one runs again.
            Where::OneProcess => {
                tokio::task::yield_now().await;
                Ok(())
            }
        }
    }
}
