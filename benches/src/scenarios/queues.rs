//! `queue`, `queue-keys` and `queue-size`: items of a queue, by how many consumers there are, with keys and without,
//! and by how many items.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use lockkeeper::{Client, PutOptions};
use lockkeeper_engine::Durability;
use lockkeeper_testkit::process::Process;
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::lines::{close, sessions};
use crate::measure::{Measured, Plan};
use crate::peers::{child, ready_line};
use crate::queues::{self, Consumers, ours};
use crate::system::{Fsync, System};
use crate::tap::Tap;

/// How many consume from Apache ZooKeeper, and where everything is written to the disk before it is confirmed.
const ON_ZOOKEEPER: [usize; 2] = [1, 8];
const ON_DISK: usize = 8;

/// Items that go into one transaction, as long as one segment of the queue.
const FILLED_AT_ONCE: usize = 256;

/// From how many items on a listing is as long as it can be: three segments at most.
const FILLS_A_LISTING: usize = 3 * FILLED_AT_ONCE;

/// How many items are put, taken and ended one by one: several listings' worth.
const ONE_BY_ONE: usize = 2_048;

/// Where it is measured, and whether bare requests do what the queue does.
#[derive(Clone, Copy)]
struct Way {
    consumers: Consumers,
    is_bare: bool,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_bare { ", bare requests" } else { "" };
        let batches = if self.consumers.batches { ", batches" } else { "" };
        write!(f, "{} consumers{batches}{what}", self.consumers.count)
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    let ways = |system, count| {
        [false, true].map(|batches| {
            let consumers = Consumers { count, batches };
            [false, true].map(|is_bare| (system, Way { consumers, is_bare }))
        })
    };
    let with_bare = |system, count| ways(system, count).into_iter().flatten();
    let without = |system, count| with_bare(system, count).filter(|(_, way)| !way.is_bare);

    let of_target: Vec<_> = ON_ZOOKEEPER
        .into_iter()
        .flat_map(|count| {
            // Curator's consumers take one item at a time.
            let curator = without(System::Curator, count).filter(|(_, way)| !way.consumers.batches);
            with_bare(System::OnZooKeeper, count).chain(curator)
        })
        .collect();
    bench.interleave_systems(&of_target, true, measure_and_note).await;

    let on_disk: Vec<_> = with_bare(System::Engine(Durability::Sync), ON_DISK)
        .chain(without(System::Redis(Fsync::Always), ON_DISK))
        .chain(without(System::Postgres, ON_DISK))
        .collect();
    bench.interleave_systems(&on_disk, false, measure_and_note).await;
    Ok(())
}

async fn measure_and_note(
    bench: &mut Bench,
    &(system, way): &(System, Way),
    plan: Plan,
) -> Result<()> {
    let Measured { per_second, latency, .. } = measure(bench, system, way, plan).await?;
    let name = if way.is_bare { "bare requests" } else { system.name() };
    let config = match system {
        System::Postgres => "skip locked",
        _ => system.config(),
    };
    let config =
        if way.consumers.batches { format!("{config}, batches") } else { config.to_owned() };
    let side = (name, config.as_str());
    bench.note_as(side, way.consumers.count, "items_per_s", per_second);
    if !way.consumers.batches {
        bench.note_latency(side, way.consumers.count, "put_to_done", latency);
    }
    Ok(())
}

/// In a queue that is new.
async fn measure(bench: &mut Bench, system: System, way: Way, plan: Plan) -> Result<Measured> {
    let Way { consumers, is_bare } = way;
    if system == System::Curator {
        return bench.peers.curator().await?.measure("queue", consumers.count, plan).await;
    }
    let address = bench.peers.server_of(system).await?;
    let name = new_name();
    match system {
        System::Postgres if !is_on_disk(bench)? => bail!("its data is not on the measured disk"),
        System::Redis(_) => queues::measure_redis(&address, &name, consumers, plan).await,
        System::Postgres => queues::measure_postgres(&address, &name, consumers, plan).await,
        _ if is_bare => queues::measure_bare(&address, &format!("/{name}"), consumers, plan).await,
        _ => queues::measure_ours(&address, &format!("/{name}"), consumers, plan).await,
    }
}

/// Whether temporary folders, where PostgreSQL's data is, are on the disk that is measured.
fn is_on_disk(bench: &mut Bench) -> Result<bool> {
    let device = |folder: &Path| anyhow::Ok(fs::metadata(folder)?.dev());
    Ok(device(&std::env::temp_dir())? == device(&bench.peers.folder()?)?)
}

fn new_name() -> String {
    format!("bench_queue_{:016x}", fastrand::u64(..))
}

/// How many keys there are, and items of each.
const KEYS: usize = 1_000;
const OF_EACH: usize = 10;

/// Whether the items have keys.
#[derive(Clone, Copy)]
struct Keyed(bool);

impl fmt::Display for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "items with keys" } else { "items without" })
    }
}

pub(super) async fn keys(bench: &mut Bench) -> Result<()> {
    let systems = [System::OnZooKeeper, System::Engine(Durability::Sync)];
    let turns: Vec<_> = systems
        .into_iter()
        .flat_map(|system| [true, false].map(|it| (system, Keyed(it))))
        .collect();
    let rounds = bench.settings.rounds;
    bench.interleave(rounds, &turns, drain).await;
    Ok(())
}

/// Has consumers take all items of a queue, and record each as done.
async fn drain(bench: &mut Bench, &(system, Keyed(keyed)): &(System, Keyed)) -> Result<()> {
    let servers = bench.peers.server_of(system).await?;
    let path = format!("/{}", new_name());
    let clients = sessions(&servers, ON_DISK + 1).await?;
    let queue = ours::queue(&clients[0], &path)?;
    let mut puts = JoinSet::new();
    for number in 0..KEYS * OF_EACH {
        let queue = queue.clone();
        let options = match keyed {
            true => PutOptions::new().key(format!("customer-{}", number % KEYS)),
            false => PutOptions::new(),
        };
        puts.spawn(async move {
            queue.put_with(&Bytes::from_static(&[0x55; 100]), &options).await.map(drop)
        });
    }
    puts.join_all().await.into_iter().collect::<Result<(), _>>()?;

    let start = Instant::now();
    let mut consuming = JoinSet::new();
    for client in &clients[1..] {
        let queue = ours::queue(client, &path)?;
        consuming.spawn(async move {
            let mut done = 0;
            while let Some(item) = queue.try_take().await? {
                item.done().await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    for consumed in consuming.join_all().await {
        done += consumed?;
    }
    let took = start.elapsed();
    // Who finds that all others of a key wait for somebody goes.
    ensure!(done * 10 > KEYS * OF_EACH * 9, "{done} items of {}", KEYS * OF_EACH);
    let name = if keyed { "with keys" } else { "without keys" };
    let config = format!("{}, {name}", system.config());
    bench.note_as(
        ("lockkeeper", &config),
        ON_DISK,
        "items_per_s",
        done as f64 / took.as_secs_f64(),
    );
    close(clients).await;
    Ok(())
}

/// What there may be many of in a queue.
struct Long(usize);

impl fmt::Display for Long {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} items", self.0)
    }
}

pub(super) async fn sizes(bench: &mut Bench) -> Result<()> {
    let system = System::Engine(Durability::Os);
    let turns: Vec<_> = bench.settings.queued.iter().map(|count| (system, Long(*count))).collect();
    bench.interleave(1, &turns, long).await;
    Ok(())
}

async fn long(bench: &mut Bench, &(system, Long(count)): &(System, Long)) -> Result<()> {
    let servers = bench.peers.server_of(system).await?;
    let path = format!("/{}", new_name());
    fill(&servers, &path, count).await?;

    // One connection each, so that what passes is what one of them sends and is sent.
    let (putting, consuming) = (Tap::start(&servers).await?, Tap::start(&servers).await?);
    let clients =
        [Client::connect(&putting.address()).await?, Client::connect(&consuming.address()).await?];
    let [producer, consumer] = [ours::queue(&clients[0], &path)?, ours::queue(&clients[1], &path)?];
    let mut bytes = [0; 2];
    for number in 0..ONE_BY_ONE + 1 {
        let before = [putting.passed().bytes(), consuming.passed().bytes()];
        producer.put(&Bytes::from_static(&[0x55; 100])).await?;
        consumer.take().await?.done().await?;
        let after = [putting.passed().bytes(), consuming.passed().bytes()];
        // Each learns first what there is.
        if number > 0 {
            bytes = [0, 1].map(|side| bytes[side] + after[side] - before[side]);
        }
    }
    for client in clients {
        client.close().await;
    }
    let [put, take] = bytes.map(|bytes| bytes as f64 / ONE_BY_ONE as f64);
    bench.note(system, count, "put_bytes", put);
    bench.note(system, count, "take_and_done_bytes", take);

    let arguments = ["consume", &servers, &path, &ONE_BY_ONE.to_string()];
    let mut process = Process::spawn("consumer", &child(&arguments)?, &bench.peers.folder()?)?;
    let memory: u64 = ready_line(&mut process).await?.parse()?;
    let kib = memory as f64 / 1024.0;
    bench.note(system, count, "consumer_kib", kib);
    if count >= FILLS_A_LISTING {
        bench.note(system, count, "consumer_of_full_listings_kib", kib);
    }
    Ok(())
}

/// Puts so many items.
async fn fill(servers: &str, path: &str, count: usize) -> Result<()> {
    let client = Client::connect(servers).await?;
    let queue = ours::queue(&client, path)?;
    let items = vec![Bytes::from_static(&[0x55; 100]); FILLED_AT_ONCE];
    for first in (0..count).step_by(FILLED_AT_ONCE) {
        queue.put_all(&items[..FILLED_AT_ONCE.min(count - first)]).await?;
    }
    let waiting = queue.inspect().await?.waiting;
    ensure!(waiting == count, "{waiting} items are in a queue of {count}");
    client.close().await;
    Ok(())
}
